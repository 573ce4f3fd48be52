"""Configurations and parameter counts of the decoder classes of transformers, as recorded."""

import json
from pathlib import Path
from typing import NamedTuple

PATH = Path(__file__).with_suffix(".json")


class Recorded(NamedTuple):
    """One configuration of a class."""

    model_type: str
    variant: str
    config: dict[str, object]
    parameters: int


def recorded() -> list[Recorded]:
    """All of them, in the order of the file."""
    types = json.loads(PATH.read_text("utf-8"))["types"]
    return [
        Recorded(model_type, variant, one["config"], one["parameters"])
        for model_type, variants in types.items()
        for variant, one in variants.items()
    ]
