"""Formats of configurations: a table of the keys that only each of them has."""

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

import yaml

LARGEST = 200_000
"""Characters of a YAML that is read; PyYAML takes three seconds for so many."""


@dataclass(frozen=True, slots=True)
class Format:
    """One format."""

    title: str
    """As a sentence names it: `a configuration of axolotl`."""
    own: Sequence[Sequence[str]]
    """Keys that only it has, sections joined by a point: all of one of these."""
    source: str
    """Where its keys are defined."""
    instead: str = ""
    """What can be done, where no reader reads it."""


FORMATS: Mapping[str, Format] = {
    name: Format(**one)
    for name, one in tomllib.loads(
        resources.files(__package__).joinpath("formats.toml").read_text("utf-8")
    ).items()
}
"""Every format that is known, by its name, in the order in which they are tried."""


class _Loader(yaml.SafeLoader):
    """YAML with tags of other programs: what they stand before is taken, they are not."""


def _untagged(loader: _Loader, _tag: str, node: yaml.Node) -> object:
    if isinstance(node, yaml.MappingNode):
        return loader.construct_mapping(node, deep=True)
    if isinstance(node, yaml.SequenceNode):
        return loader.construct_sequence(node, deep=True)
    return node.value


_Loader.add_multi_constructor("", _untagged)


def document_of(text: str, suffix: str) -> tuple[Mapping[str, Any], ...]:
    """The mappings of a configuration, one a document; none where it cannot be read as one.

    `suffix` is the ending of its file, with the point: JSON, TOML or else YAML.
    """
    try:
        if suffix == ".json":
            documents = [json.loads(text)]
        elif suffix == ".toml":
            documents = [tomllib.loads(text)]
        elif len(text) > LARGEST:
            return ()
        else:
            documents = list(yaml.load_all(text, _Loader))
    except (ValueError, RecursionError, yaml.YAMLError, TypeError):
        return ()
    mappings = (one for one in documents if isinstance(one, dict))
    return tuple({str(name): value for name, value in one.items()} for one in mappings)


def format_of(document: Mapping[str, Any]) -> str:
    """The name of its format; empty: of none that is known."""
    return next(
        (
            name
            for name, one in FORMATS.items()
            if any(all(_has(document, key) for key in keys) for keys in one.own)
        ),
        "",
    )


def _has(document: object, key: str) -> bool:
    for part in key.split("."):
        if not isinstance(document, Mapping) or part not in document:
            return False
        document = document[part]
    return True
