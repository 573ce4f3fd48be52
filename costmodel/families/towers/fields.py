"""Fields that most encoders of images share. Source: as `towers.encoders`."""

from typing import Final

from trainplan.costmodel.base import SpecError
from trainplan.costmodel.families.aliases import activation
from trainplan.costmodel.families.reader import HfConfig

Fields = dict[str, object]
"""Fields of a `TowerSpec`."""
ASSUMED_PATCHES: Final = 1_024
"""Patches of a sample where images come in their own sizes: 448 x 448 pixels at 14 a side.

Source: assumed; what the choice is printed as, and `--tower patches=N` replaces it."""


def side(config: HfConfig, name: str) -> int:
    """Pixels of a side, given as a number or as two equal ones."""
    value = config.values.get(name, config.defaults.get(name))
    if not isinstance(value, list | tuple):
        return config.integer(name)
    sides = config.indices(name)
    if len(set(sides)) != 1 or not sides[0]:
        raise SpecError(f"{config.where}: '{config.path}{name}' must have equal sides, got {value}")
    return sides[0]


def hidden_activation(config: HfConfig, name: str = "hidden_act") -> str:
    """In our spelling; the quick GELU of CLIP costs what a GELU costs."""
    value = config.with_defaults({name: "gelu"}).text(name)
    return "gelu" if value == "quick_gelu" else activation(config, name)


def patches_of(config: HfConfig) -> int:
    """Patches of an image of the size that the file gives."""
    image, patch = side(config, "image_size"), side(config, "patch_size")
    if image < patch:
        raise SpecError(
            f"{config.where}: '{config.path}image_size' = {image} is less than a patch of {patch}"
        )
    return (image // patch) ** 2


def sizes(config: HfConfig) -> Fields:
    """Sizes by the names that most encoders have."""
    return {
        "num_hidden_layers": config.integer("num_hidden_layers", "depth"),
        "hidden_size": config.integer("hidden_size"),
        "intermediate_size": config.integer("intermediate_size"),
        "num_attention_heads": config.integer("num_attention_heads", "num_heads"),
        "num_channels": config.integer("num_channels", "in_channels"),
        "patch_size": side(config, "patch_size"),
        "activation": hidden_activation(config),
    }
