"""Model presets: one Hugging Face `config.json` per model, each with its `_source`.

To add a model, add `<name>.json` with the architecture fields of its published file, a `_source`
that says where the numbers are printed, and `_repositories`: the Hugging Face names of checkpoints
with that architecture, the one that was read first. A `_note` says what was left out.
"""

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import cast

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.base import unknown_name
from trainplan.costmodel.families import model_from_config
from trainplan.costmodel.presets.plugged import SUFFIX, plugged_presets

REPOSITORIES, NOTE = "_repositories", "_note"
VARIANT = re.compile(r"-(instruct|base|chat|it|pt|hf|fp8|bf16|thinking|2507)$")
"""Ends of names of checkpoints whose architecture is that of the name without them."""


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
    """The stored `config.json` of a preset, with its `_source`; `name` as for `preset`."""
    known = preset_named(name)
    if known is None:
        hint = (
            "(a Hugging Face config.json or its folder works too; all presets: plan catalog models)"
        )
        raise unknown_name("model", name, preset_names(), hint, alike=name.rsplit("/", 1)[-1])
    return _stored(known)


def preset(name: str) -> ModelSpec:
    """The model of that name, or of that Hugging Face repository.

    Raises:
        CatalogError: No preset has this name; the message carries the nearest names.
    """
    return model_from_config(preset_config(name), preset_named(name) or name)


def preset_named(text: str) -> str | None:
    """The preset of a name in any case, or of a Hugging Face repository; null: there is none.

    `meta-llama/Llama-3.1-8B`, the same without its owner, and names of its variants such as
    `meta-llama/Llama-3.1-8B-Instruct`, are all the one preset that has their architecture.
    """
    known = text in _ours() or text in preset_names()
    return text if known else _spellings().get(_without_variant(text))


def repositories(name: str) -> tuple[str, ...]:
    """Hugging Face names of checkpoints that have the architecture of a preset, read from first."""
    return tuple(cast("list[str]", _stored(name).get(REPOSITORIES, [])))


def note_of(name: str) -> str:
    """What a preset leaves out of its repository's file; empty: nothing."""
    return str(_stored(name).get(NOTE, ""))


@cache
def _spellings() -> Mapping[str, str]:
    """Every name that stands for a preset, without the ends that name a variant."""
    return {spelling: name for name in preset_names() for spelling in _called(name)}


def _called(name: str) -> Iterator[str]:
    yield _without_variant(name)
    for repository in repositories(name):
        yield _without_variant(repository)
        yield _without_variant(repository.partition("/")[2])


def _without_variant(text: str) -> str:
    name = text.lower().rstrip("/")
    while (shorter := VARIANT.sub("", name)) != name:
        name = shorter
    return name


def _stored(name: str) -> Mapping[str, object]:
    if name not in _ours():
        return plugged_presets(_ours())[name].value
    text = (_folder() / f"{name}{SUFFIX}").read_text(encoding="utf-8")
    return cast("dict[str, object]", json.loads(text))


def _folder() -> Traversable:
    return files("trainplan.costmodel.presets") / "models"
