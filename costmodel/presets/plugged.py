"""Presets of plug-ins."""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from trainplan.costmodel.base import SpecError
from trainplan.costmodel.catalog import alongside
from trainplan.costmodel.families import model_from_config
from trainplan.costmodel.plugins import Added, Installed, added

SUFFIX, SOURCE = ".json", "_source"
Config = Mapping[str, object]


@cache
def plugged_presets(ours: frozenset[str]) -> Mapping[str, Added[Config]]:
    """The stored `config.json` of each that can be read and takes no name of ours."""
    return added("models", ours, _files, _config)


def _files(one: Installed) -> Mapping[str, Path]:
    folder = alongside(one, one.plugin.models)
    return {file.stem: file for file in folder.glob(f"*{SUFFIX}")} if one.plugin.models else {}


def _config(one: Installed, file: Path) -> Config:
    config: dict[str, object] = json.loads(file.read_text(encoding="utf-8"))
    if not isinstance(config.get(SOURCE), str):
        raise SpecError(f"no {SOURCE!r} states where its numbers are printed")
    model_from_config(config, file.stem)
    return {**config, SOURCE: f"{config[SOURCE]} ({one.who})"}
