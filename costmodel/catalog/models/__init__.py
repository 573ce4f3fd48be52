"""Model presets: one Hugging Face `config.json` per model, each with its `_source`.

To add a model, add `<name>.json` with the architecture fields of its published file and a
`_source` that says where the numbers are printed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import cast

from trainplan.costmodel.base import SpecError, unknown_name
from trainplan.costmodel.base.plugins import Added, Installed, added
from trainplan.costmodel.catalog.plugged import beside
from trainplan.costmodel.model.families import model_from_config
from trainplan.costmodel.spec import ModelSpec

SUFFIX, SOURCE = ".json", "_source"


def preset_names() -> tuple[str, ...]:
    """Names of all presets, in alphabetical order."""
    return tuple(sorted((*_files(_folder()), *_plugged())))


def plugged_models() -> dict[str, str]:
    """Presets of plug-ins, and which plug-in each is from."""
    return {name: one.origin.who for name, one in _plugged().items()}


def preset_config(name: str) -> Mapping[str, object]:
    """The stored `config.json` of a preset, with its `_source`."""
    if name not in preset_names():
        hint = (
            "(a Hugging Face config.json or its folder works too; all presets: plan catalog models)"
        )
        raise unknown_name("model", name, preset_names(), hint)
    return _plugged()[name].value if name in _plugged() else _read(_files(_folder())[name])


def preset(name: str) -> ModelSpec:
    """The model of that name.

    Raises:
        CatalogError: No preset has this name; the message carries the nearest names.
    """
    return model_from_config(preset_config(name), name)


def _folder() -> Traversable:
    return files("trainplan.costmodel.catalog.models")


def _files(folder: Traversable) -> dict[str, Traversable]:
    entries = {one.name: one for one in folder.iterdir()}
    return {
        name.removesuffix(SUFFIX): one for name, one in entries.items() if name.endswith(SUFFIX)
    }


def _read(file: Traversable) -> dict[str, object]:
    return cast("dict[str, object]", json.loads(file.read_text(encoding="utf-8")))


@cache
def _plugged() -> dict[str, Added[dict[str, object]]]:
    """Presets of plug-ins that can be read."""
    return added("models", _files(_folder()), _files_of, _config)


def _files_of(one: Installed) -> dict[str, Traversable]:
    return _files(beside(one, one.plugin.models)) if one.plugin.models else {}


def _config(one: Installed, file: Traversable) -> dict[str, object]:
    config = _read(file)
    if not isinstance(config.get(SOURCE), str):
        raise SpecError(f"no {SOURCE!r} says where its numbers are printed")
    model_from_config(config, file.name)
    return {**config, SOURCE: f"{config[SOURCE]} ({one.who})"}
