"""A request as the command line that asks the same, and the files it names."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import yaml

from trainplan.cli.serve.fields import Apart, Inline, New, Positional, Request, Subcommand
from trainplan.cli.serve.requests import CheckRequest
from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.base import SpecError
from trainplan.planner.documents import COUNTS

PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,80}")
"""Names that may be those of a file."""
KEPT = re.compile(r"plan-\d{1,9}")
"""What the server calls the plans it keeps."""


def command_line(
    command: str, request: Request, plans: Mapping[str, str], folder: Path, writable: Path | None
) -> tuple[str, ...]:
    """The words after `plan`; documents that are given inline are written into `folder`.

    `plans` are the documents that were kept, by their names; in `writable` new files are made. A
    field becomes the option of its name; those the client leaves out are left out, so defaults are
    those of the command.

    Raises:
        SpecError: A file has no plain name or may not be made, or a text has a NUL character.
    """
    options, words = ["--json"], command.split()
    positional = [str(_launch(request, folder))] if isinstance(request, CheckRequest) else []
    for name, field in type(request).model_fields.items():
        marks = {type(mark) for mark in field.metadata}
        value = getattr(request, name)
        if name not in request.model_fields_set or value is None or Apart in marks:
            continue
        if Inline in marks:
            value = _written(name, value, plans, folder)
        if New in marks:
            value = _new(name, value, writable)
        if Subcommand in marks:
            words.append(value)
        elif Positional in marks:
            positional.append(str(value))
        else:
            options += _option(field.alias or name, value)
    if any("\0" in word for word in (*words, *options, *positional)):
        raise SpecError("a text has a NUL character in it: take it out")
    return (*words, *options, "--", *positional)


def _option(name: str, value: object) -> Iterator[str]:
    """A field as the option of its name: once, once a value, or as a flag."""
    option = f"--{name.replace('_', '-')}"
    if isinstance(value, bool):
        yield from (option,) * value
    else:
        for one in value if isinstance(value, list | tuple) else [value]:
            yield f"{option}={one}"


def _new(name: str, value: str, writable: Path | None) -> Path:
    """The path of a file or folder to make."""
    if writable is None:
        raise SpecError(f"{name}: nothing is written here: start it with --write-files FOLDER")
    if not PLAIN.fullmatch(value):
        raise SpecError(f"{name}: {value[:60]!r}: give a bare name, without folders")
    return writable / value


def _written(name: str, value: object, plans: Mapping[str, str], folder: Path) -> object:
    """A name as it is, a document as the path of its file."""
    if isinstance(value, tuple):
        return [_written(f"{name}-{i}", one, plans, folder) for i, one in enumerate(value, 1)]
    if isinstance(value, str) and value in plans:
        return _put(folder, f"{value}.json", plans[value])
    if isinstance(value, str) and KEPT.fullmatch(value):
        names = ", ".join(plans) or "none"
        raise SpecError(f"{name} {value}: not kept here ({names} is): search again")
    if not isinstance(value, dict):
        return value
    if name in ("model", "name"):
        return _model(value, folder)
    if name == "cluster" and "schema" not in value:
        return _put(folder, "cluster.yaml", _yaml(value))
    return _put(folder, f"{name}.json", _json(value))


def _model(values: dict[str, object], folder: Path) -> Path:
    """Our own document, or a config.json, which is called as its model is."""
    fields = ModelSpec.model_fields
    own = {key: value for key, value in values.items() if key not in COUNTS}
    needed = {name for name, field in fields.items() if field.is_required()}
    if "model_type" not in own or needed <= own.keys() <= fields.keys():
        return _put(folder, "model.yaml", _yaml(own))
    called = str(values.get("_name_or_path", "")).rpartition("/")[2]
    return _put(folder, f"{called if PLAIN.fullmatch(called) else 'model'}.json", _json(values))


def _launch(request: CheckRequest, folder: Path) -> Path:
    """The script of a launch, with the files it names beside it."""
    launch = folder / "launch"
    launch.mkdir()
    for name, text in request.files.items():
        if not PLAIN.fullmatch(name):
            raise SpecError(f"files: {name[:60]!r}: give the bare name of a file, without folders")
        _put(launch, name, text)
    return _put(launch, request.file_name, request.script)


def _put(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8", errors="surrogatepass")
    return path


def _json(values: object) -> str:
    return json.dumps(values)


def _yaml(values: object) -> str:
    dumped = yaml.safe_dump(values, sort_keys=False, allow_unicode=True)
    assert isinstance(dumped, str)
    return dumped
