"""Model presets: one Hugging Face `config.json` per model, each with its `_source`.

To add a model, add `<name>.json` with the architecture fields of its published file and a
`_source` that says where the numbers are printed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import cast

from trainplan.costmodel.base import unknown_name
from trainplan.costmodel.catalog.models.plugged import SUFFIX, plugged_presets
from trainplan.costmodel.model.families import model_from_config
from trainplan.costmodel.spec import ModelSpec


def preset_names() -> tuple[str, ...]:
    """Names of all presets, in alphabetical order."""
    return tuple(sorted((*_ours(), *plugged_presets(_ours()))))


def plugged_models() -> Mapping[str, str]:
    """Presets of plug-ins, and which plug-in each is from."""
    return {name: one.origin.who for name, one in plugged_presets(_ours()).items()}


def _ours() -> frozenset[str]:
    entries = (entry.name for entry in _folder().iterdir())
    return frozenset(name.removesuffix(SUFFIX) for name in entries if name.endswith(SUFFIX))


def preset_config(name: str) -> Mapping[str, object]:
    """The stored `config.json` of a preset, with its `_source`."""
    if name not in preset_names():
        hint = (
            "(a Hugging Face config.json or its folder works too; all presets: plan catalog models)"
        )
        raise unknown_name("model", name, preset_names(), hint)
    if name not in _ours():
        return plugged_presets(_ours())[name].value
    text = (_folder() / f"{name}{SUFFIX}").read_text(encoding="utf-8")
    return cast("dict[str, object]", json.loads(text))


def preset(name: str) -> ModelSpec:
    """The model of that name.

    Raises:
        CatalogError: No preset has this name; the message carries the nearest names.
    """
    return model_from_config(preset_config(name), name)


def _folder() -> Traversable:
    return files("trainplan.costmodel.catalog.models")
