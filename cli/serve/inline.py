"""A command that a program needs: its values as they are typed, and who receives the answer."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import yaml

from trainplan.cli.terminal import named
from trainplan.costmodel.architecture import ModelSpec
from trainplan.planner.documents import COUNTS

PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,80}")
"""Names that may be those of a file."""
PLAN = "trainplan.cli.main:plan"
"""The command line, by name: where processes are not forked, nothing of this one is there."""


def invoke(words: Sequence[str]) -> None:
    """Run the command of these words, the first its name.

    Raises:
        click.exceptions.Exit: It ends with another exit code than 0, with an answer or without.
        click.ClickException: An option is unknown, missing or wrong.
        PlanError: As the command.
    """
    root = named(PLAN)
    assert isinstance(root, click.Command)
    with root.make_context("plan", list(words)) as context:
        root.invoke(context)


def option_words(name: str, value: object) -> Iterator[str]:
    """A value as the option of its name: once, once a value, or as a flag."""
    option = f"--{name.replace('_', '-')}"
    if isinstance(value, bool):
        yield from (option,) * value
    else:
        for one in value if isinstance(value, list | tuple) else [value]:
            yield f"{option}={one}"


def filed(name: str, values: Mapping[str, Any], folder: Path) -> Path:
    """The file of a document that is given inline, in a folder for it."""
    if name in ("model", "name"):
        return _model(values, folder)
    if name == "cluster" and "schema" not in values:
        return put(folder, "cluster.yaml", _yaml(values))
    return put(folder, f"{name}.json", _json(values))


def _model(values: Mapping[str, Any], folder: Path) -> Path:
    """Our own document, or a config.json, which is called as its model is."""
    fields = ModelSpec.model_fields
    own = {key: value for key, value in values.items() if key not in COUNTS}
    needed = {name for name, field in fields.items() if field.is_required()}
    if "model_type" not in own or needed <= own.keys() <= fields.keys():
        return put(folder, "model.yaml", _yaml(own))
    called = str(values.get("_name_or_path", "")).rpartition("/")[2]
    return put(folder, f"{called if PLAIN.fullmatch(called) else 'model'}.json", _json(values))


def put(folder: Path, name: str, text: str) -> Path:
    """A new file of a folder."""
    path = folder / name
    path.write_text(text, encoding="utf-8", errors="surrogatepass")
    return path


def _json(values: object) -> str:
    return json.dumps(values)


def _yaml(values: object) -> str:
    dumped = yaml.safe_dump(values, sort_keys=False, allow_unicode=True)
    assert isinstance(dumped, str)
    return dumped
