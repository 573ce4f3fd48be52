"""What recipes of the library set: model, degrees, batch; recorded from the recipes themselves."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources


@dataclass(frozen=True, slots=True)
class Recipe:
    """One recipe of pretraining."""

    name: str
    model: str
    """Preset of the catalog."""
    nested: bool
    """Its keys of `model.` stand under `model.transformer.`."""
    keys: Mapping[str, str]


@cache
def recipes() -> Mapping[str, Recipe]:
    """Recorded recipes by each of their names."""
    text = resources.files(__package__).joinpath("recipes.json").read_text("utf-8")
    read = json.loads(text)
    return {
        name: Recipe(name, one["model"], one["nested"], read["base"] | one["keys"])
        for one in read["recipes"]
        for name in one["names"]
    }


PRECISIONS: Mapping[str, Mapping[str, str]] = {
    "bf16_mixed": {},
    "fp16_mixed": {
        "bf16": "false",
        "fp16": "true",
        "params_dtype": "fp16",
        "pipeline_dtype": "fp16",
        "grad_reduce_in_fp32": "false",
    },
    "bf16_with_fp8_delayed_scaling_mixed": {"fp8": "hybrid", "fp8_recipe": "delayed"},
    "bf16_with_fp8_current_scaling_mixed": {"fp8": "hybrid", "fp8_recipe": "tensorwise"},
    "bf16_with_fp8_subchannel_scaling_mixed": {"fp8": "hybrid", "fp8_recipe": "blockwise"},
    "bf16_with_mxfp8_mixed": {"fp8": "e4m3", "fp8_recipe": "mxfp8"},
    "bf16_with_nvfp4_mixed": {"fp4": "e2m1", "fp4_recipe": "nvfp4"},
}
"""Named formats as keys of `mixed_precision`. Source: `training/mixed_precision.py`."""
