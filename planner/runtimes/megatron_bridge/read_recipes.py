"""What recipes of the library set: model, degrees, batch; recorded from the recipes themselves."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.presets import preset
from trainplan.planner.runtimes.python_source import Unread


@dataclass(frozen=True, slots=True)
class Recipe:
    """One recipe of pretraining."""

    name: str
    model: str | None
    """Preset of the catalog; null: of no model that is there."""
    nested: bool
    """Its keys of `model.` stand under `model.transformer.`."""
    keys: Mapping[str, str]
    file: str = "recipe"
    """Where what it sets stands."""
    unread: Mapping[str, Unread] = field(default_factory=dict)
    """Keys that only a run would tell."""
    trains: str = ""
    """The model, in the recipe's words."""
    environment: Mapping[str, str] = field(default_factory=dict)
    shape: ModelSpec | None = None
    """Of a model that the recipe spells out in words that Megatron-LM has no options for."""

    adapters: str | None = None
    """As `write_recipe.ADAPTERS` has them; null: all is trained."""

    @property
    def spec(self) -> ModelSpec | None:
        """The model, where it is known."""
        return preset(self.model) if self.model else self.shape


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
