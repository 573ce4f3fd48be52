"""A request as the command line with the same question, and the files it names."""

import re
from collections.abc import Mapping
from pathlib import Path

from trainplan.cli.serve.fields import Apart, Inline, New, Positional, Request, Subcommand
from trainplan.cli.serve.inline import PLAIN, filed, option_words, put
from trainplan.cli.serve.requests import CheckRequest
from trainplan.costmodel.base import SpecError

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
            value = _kept(name, value, plans, folder)
        if New in marks:
            value = _new(name, value, writable)
        if Subcommand in marks:
            words.append(value)
        elif Positional in marks:
            positional.append(str(value))
        else:
            options += option_words(field.alias or name, value)
    if any("\0" in word for word in (*words, *options, *positional)):
        raise SpecError("a text has a NUL character in it: take it out")
    return (*words, *options, "--", *positional)


def _new(name: str, value: str, writable: Path | None) -> Path:
    """The path of a file or folder to make."""
    if writable is None:
        raise SpecError(f"{name}: nothing is written here: start it with --write-files FOLDER")
    if not PLAIN.fullmatch(value):
        raise SpecError(f"{name}: {value[:60]!r}: give a bare name, without folders")
    return writable / value


def _kept(name: str, value: object, plans: Mapping[str, str], folder: Path) -> object:
    """A document as the path of its file, one that was kept as well; a name as it is."""
    if isinstance(value, tuple):
        return [_kept(f"{name}-{i}", one, plans, folder) for i, one in enumerate(value, 1)]
    if isinstance(value, str) and value in plans:
        return put(folder, f"{value}.json", plans[value])
    if isinstance(value, str) and KEPT.fullmatch(value):
        names = ", ".join(plans) or "none"
        raise SpecError(f"{name} {value}: not kept here ({names} is): search again")
    return filed(name, value, folder) if isinstance(value, dict) else value


def _launch(request: CheckRequest, folder: Path) -> Path:
    """The script of a launch, with the files that it names."""
    launch = folder / "launch"
    launch.mkdir()
    for name, text in request.files.items():
        if not PLAIN.fullmatch(name):
            raise SpecError(f"files: {name[:60]!r}: give the bare name of a file, without folders")
        put(launch, name, text)
    return put(launch, request.file_name, request.script)
