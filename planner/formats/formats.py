"""Formats of configurations: a table of the keys that only each of them has."""

import json
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib import resources
from typing import Any

import yaml

from trainplan.planner.formats.python import python_keys

LARGEST = 200_000
"""Characters of a YAML that is read; PyYAML takes three seconds for so many."""
MOST = 50
"""Entries of a list, or keys, that a star looks at."""
KEY = re.compile(r"[+~]{0,2}[A-Za-z_][\w./-]*")
"""Of a word KEY=VALUE."""


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

    `suffix` is the ending of its file, with the point: JSON, TOML, Python or else YAML.
    """
    try:
        if suffix == ".json":
            documents = [json.loads(text)]
        elif suffix == ".toml":
            documents = [tomllib.loads(text)]
        elif len(text) > LARGEST:
            return ()
        elif suffix == ".py":
            documents = [python_keys(text)]
        else:
            documents = list(yaml.load_all(text, _Loader))
    except (ValueError, RecursionError, yaml.YAMLError, TypeError):
        return ()
    mappings = (one for one in documents if isinstance(one, dict))
    return tuple({str(name): value for name, value in one.items()} for one in mappings)


def command_keys(program: str, words: Iterable[str]) -> Mapping[str, Any]:
    """A command as keys: `program`, the names of its options, and its words KEY=VALUE."""
    keys: dict[str, Any] = {"program": program}
    for word in words:
        name, equals, value = word.partition("=")
        if word.startswith("--"):
            keys[name] = value
        elif equals and KEY.fullmatch(name):
            _put(keys, name.lstrip("+~"), value)
    return keys


def _put(keys: dict[str, Any], name: str, value: object) -> None:
    *sections, last = name.split(".")
    for section in sections:
        inner = keys.setdefault(section, {})
        if not isinstance(inner, dict):
            return
        keys = inner
    keys[last] = value


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
    name, equals, pattern = key.partition("=")
    head, _, tail = name.partition(".")
    if isinstance(document, list) and head == "*":
        inner = [one for one in document[:MOST] if isinstance(one, Mapping)]
    elif isinstance(document, Mapping):
        inner = list(document.values())[:MOST] if head == "*" else _named(document, head)
    else:
        return False
    if tail:
        return any(_has(one, f"{tail}{equals}{pattern}") for one in inner)
    if not equals:
        return bool(inner)
    words = (str(one) for one in inner if isinstance(one, str | int | float))
    return any(fnmatchcase(one, pattern) for one in words)


def _named(document: Mapping[str, Any], name: str) -> list[Any]:
    """The value of a key under either spelling."""
    spellings = dict.fromkeys((name, name.replace("_", "-")) if name[:2] != "--" else (name,))
    return [document[one] for one in spellings if one in document]
