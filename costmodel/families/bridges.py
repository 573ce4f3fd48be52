"""Models that Megatron-Bridge builds by itself, from a configuration of Hugging Face.

Source of every bridge and of what it lacks: NVIDIA-NeMo/Megatron-Bridge, commit and files in
bridges.json, which tests/runtimes/test_bridges.py holds.
"""

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from trainplan.costmodel.architecture import ModelSpec


@dataclass(frozen=True, slots=True)
class Bridge:
    """How one architecture is built."""

    architecture: str
    """As `architectures` of its config.json has it."""
    model_types: tuple[str, ...]
    """As its config.json, or the part of it that is the decoder, has them."""
    step: str = ""
    """Module of the forward step of a model with a tower, or of one that has its own; empty: that
    of GPT."""
    remote: bool = False
    """Its configuration is code beside its weights: transformers 5.12 has none of it."""
    ones: tuple[str, ...] = ()
    """Degrees that it has not."""
    dense_ones: tuple[str, ...] = ()
    """Degrees that a model of it has not that has no experts."""
    lacks: str = ""
    """What it has not of what is priced, as a noun phrase."""

    @property
    def has_tower(self) -> bool:
        """Does it build an encoder of images or sound?"""
        return not self.architecture.endswith("ForCausalLM")


@cache
def bridges() -> tuple[Bridge, ...]:
    """All of the release, by the name of their architecture."""
    text = files("trainplan.costmodel.families").joinpath("bridges.json").read_text("utf-8")
    rows: list[dict[str, Any]] = json.loads(text)["bridges"]
    lists = ("model_types", "ones", "dense_ones")
    return tuple(Bridge(**row | {name: tuple(row.get(name, ())) for name in lists}) for row in rows)


@cache
def _by_type() -> dict[tuple[str, bool], Bridge]:
    """The first bridge of a `model_type`, with a tower or without."""
    found: dict[tuple[str, bool], Bridge] = {}
    for bridge in bridges():
        for name in bridge.model_types:
            found.setdefault((name, bridge.has_tower), bridge)
    return found


def bridge_of(model: ModelSpec) -> Bridge | None:
    """What builds a model; null: nothing does.

    A decoder without its tower is built alone where it has a bridge, else with its tower.
    """
    known, name = _by_type(), model.model_type or ""
    whole = known.get((name, True))
    return whole if model.tower else known.get((name, False)) or whole
