"""Strict JSON and YAML: no duplicate keys, no NaN, no aliases; errors know line and column."""

import json
import math
from collections.abc import Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import yaml
from pydantic import ValidationError

from trainplan.cli.files.disk import FileError, read_text
from trainplan.cli.files.readable import is_folder
from trainplan.costmodel.base import read_json as json_of
from trainplan.costmodel.spec import MISSING, UNKNOWN, Spec, complaints

LARGEST_NUMBER, LARGEST_WHOLE = 1e30, 10**18
"""Beyond them a number is a slip, and its products overflow."""
OTHERS = {MISSING: "is missing", UNKNOWN: "is unknown"}
"""Slips that are printed after the first one."""
LISTED = 4
"""So many of them."""
MOST_NESTED = 64
"""Lists and mappings of YAML within each other, as in JSON."""
NESTED_TOO_DEEPLY = f"nested too deeply: {MOST_NESTED} lists and mappings within each other at most"
LARGEST_YAML_BYTES, MOST_YAML_NODES = 1_000_000, 50_000
"""PyYAML reads 40,000 keys or values in a second; JSON is read a hundred times as fast."""
TOO_MANY_NODES = f"more than {MOST_YAML_NODES:,} keys and values: write it as JSON"
SpecT = TypeVar("SpecT", bound=Spec)


@dataclass(frozen=True, slots=True)
class Document:
    """A parsed file: a mapping, and where its parts are."""

    path: Path
    values: dict[str, object]
    root: yaml.Node | None = None
    """The tree with line numbers; JSON has none."""

    def error(self, message: str, field: Sequence[str | int] = ()) -> FileError:
        """An error at a field, with the line where it is known."""
        line = _line(self.root, field)
        where = f"{self.path}:{line}" if line else f"{self.path}"
        name = ".".join(str(part) for part in field)
        return FileError(f"{where}: field {name!r}: {message}" if name else f"{where}: {message}")

    def refuse_large(self) -> None:
        """Refuse numbers that no quantity comes near.

        Raises:
            FileError: There is one; the message names its field.
        """
        if place := _large(self.values):
            raise self.error("too large a number: no quantity comes near it", place)

    def validated(self, spec: type[SpecT]) -> SpecT:
        """The values as a spec.

        Raises:
            FileError: A field is missing, unknown or wrong; the message names it.
        """
        self.refuse_large()
        try:
            return spec.model_validate(self.values)
        except ValidationError as error:
            first, *others = complaints(error)
            names = [
                f"'{one.field}' {OTHERS[one.reason]}" for one in others if one.reason in OTHERS
            ]
            more = f"; also {', '.join(names[:LISTED])}" if names else ""
            more += f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
            raise self.error(f"{first.reason}{more}", first.place) from error


def read_document(path: Path, *, entries: str = "", endless: Collection[str] = ()) -> Document:
    """Read a JSON or YAML file that holds a mapping, or a list to be filed under `entries`.

    `endless` names keys of JSON of which a value may be `Infinity`.

    Raises:
        FileError: It cannot be read or parsed, or holds something else.
    """
    text = read_text(path)
    if path.suffix.lower() in (".yaml", ".yml"):
        return _yaml(path, text, entries)
    if path.suffix.lower() == ".toml":
        raise FileError(f"{path}: TOML is not read: write the same fields as YAML, in a .yaml file")
    return Document(path, _json(path, text, entries, endless=endless))


def read_json(path: Path, inside: str = "") -> tuple[str, Document]:
    """Text and content of a JSON file, both; of a folder its file `inside`, where that is stated.

    Raises:
        FileError: As `read_document`.
    """
    path = path / inside if inside and is_folder(path) else path
    text = read_text(path)
    return text, Document(path, _json(path, text))


def _json(
    path: Path, text: str, entries: str = "", *, endless: Collection[str] = ()
) -> dict[str, object]:
    try:
        values = json_of(text, endless=endless)
    except json.JSONDecodeError as error:
        if not text.strip():
            raise FileError(f"{path}:1:1: not JSON: the file is empty") from None
        if text.startswith("#!") or path.suffix == ".sh":
            raise FileError(
                f"{path}: a script, not JSON: give a plan that `plan search --output` wrote; "
                f"`plan check {path}` reads scripts"
            ) from None
        raise FileError(f"{path}:{error.lineno}:{error.colno}: not JSON: {error.msg}") from error
    except ValueError as error:
        raise FileError(f"{path}: {error}") from error
    return _mapping(path, _filed(values, entries))


def _filed(values: object, entries: str) -> object:
    return {entries: values} if entries and isinstance(values, list) else values


def _large(value: object, place: tuple[str | int, ...] = ()) -> tuple[str | int, ...] | None:
    """Place of the first number that is too large; null: nowhere."""
    if isinstance(value, int | float):
        most = LARGEST_WHOLE if isinstance(value, int) else LARGEST_NUMBER
        return place if most < abs(value) < math.inf else None
    parts: Iterable[tuple[str | int, object]] = ()
    if isinstance(value, dict):
        parts = value.items()
    elif isinstance(value, list):
        parts = enumerate(value)
    found = (_large(part, (*place, name)) for name, part in parts)
    return next((one for one in found if one is not None), None)


class _Loader(yaml.SafeLoader):
    """Safe YAML without aliases (they can grow without bound), tags and duplicate keys."""

    def __init__(self, text: str) -> None:
        """Nothing is read yet."""
        super().__init__(text)
        self.nodes = self.depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Refuse aliases, tags and what is too much where they are."""
        self.nodes += 1
        if self.nodes > MOST_YAML_NODES or self.depth > MOST_NESTED:
            raise yaml.MarkedYAMLError(
                problem=NESTED_TOO_DEEPLY if self.depth > MOST_NESTED else TOO_MANY_NODES,
                problem_mark=self.get_mark(),
            )
        if self.check_event(yaml.AliasEvent):
            raise yaml.MarkedYAMLError(
                problem="aliases are refused: write the value out", problem_mark=self.get_mark()
            )
        event = self.peek_event()  # type: ignore[no-untyped-call]
        tag = getattr(event, "tag", None)
        if tag is not None:
            raise yaml.MarkedYAMLError(
                problem=f"tags are refused: remove {tag[:40]!r}", problem_mark=event.start_mark
            )
        self.depth += 1
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def construct_mapping(
        self,
        node: yaml.MappingNode,
        deep: bool = False,  # noqa: FBT001, FBT002 (PyYAML's signature)
    ) -> dict[Hashable, object]:
        """Refuse a key that is no word, or appears twice."""
        seen: set[object] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise yaml.MarkedYAMLError(
                    problem="a list or mapping is no key: write a word", problem_mark=key.start_mark
                )
            if key.value in seen:
                raise yaml.MarkedYAMLError(
                    problem=f"key {key.value!r} appears twice: remove one",
                    problem_mark=key.start_mark,
                )
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def _yaml(path: Path, text: str, entries: str = "") -> Document:
    if len(text) > LARGEST_YAML_BYTES:
        raise FileError(f"{path}: more than {LARGEST_YAML_BYTES // 10**6} MB of YAML: write JSON")
    try:
        loader = _Loader(text)
        root = loader.get_single_node()
        found = loader.construct_document(root) if root is not None else None
        values = _mapping(path, _filed(found, entries))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"{path}:{mark.line + 1}:{mark.column + 1}" if mark else f"{path}"
        raise FileError(f"{where}: not YAML we read: {error.problem}") from error
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        raise FileError(f"{path}: not YAML: {error}") from error
    return Document(path, values, root)


def _mapping(path: Path, values: object) -> dict[str, object]:
    if not isinstance(values, dict):
        raise FileError(f"{path}: expected fields and values, got {_kind(values)}")
    wrong = next((key for key in values if not isinstance(key, str)), None)
    if wrong is not None:
        raise FileError(f"{path}: field name {wrong!r} is not a word")
    return values


def _kind(value: object) -> str:
    if value is None:
        return "an empty file"
    return "a list" if isinstance(value, list) else f"only {str(value)[:40]!r}"


def _line(root: yaml.Node | None, field: Sequence[str | int]) -> int | None:
    """Line of the deepest part of `field` that is in the file."""
    if root is None:
        return None
    node = root
    line: int = node.start_mark.line
    for part in field:
        if isinstance(node, yaml.MappingNode):
            pairs = {key.value: (key, value) for key, value in node.value}
            if part not in pairs:
                break
            key, node = pairs[part]
            line = key.start_mark.line
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int):
            if part >= len(node.value):
                break
            node = node.value[part]
            line = node.start_mark.line
    return line + 1
