"""Headlines that are commands: published figures against what `plan` answers on its command line.

`headline_commands.toml` has, for each figure, the command, the number of its JSON document that is
compared (a path of keys), perhaps a second command that it is divided by, and the published value.
Commands run in `examples/headlines`, which holds their models and clusters.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import shlex
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Annotated

from headlines_figure import Figure, Headline, Test, Unit
from pydantic import BaseModel, ConfigDict, Field

from trainplan.cli.main import run

FILES = Path(__file__).parents[2] / "examples" / "headlines"
TABLE = Path(__file__).with_name("headline_commands.toml")


class Row(BaseModel):
    """One figure: commands without `plan`, and where their number is."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    what: str
    published: float
    unit: Unit
    tolerance: float = 0.0
    test: Test = "near"
    commands: Annotated[tuple[str, ...], Field(min_length=1)]
    """Several: choices that the publication leaves open, and their range is compared."""
    over: tuple[str, ...] = ()
    """Commands whose number divides those of `commands`, one each."""
    value: str
    """Path of the number in the JSON document, with dots."""
    scale: float = 1.0
    """Of the number, or of the ratio."""
    less: float = 0.0
    """Taken off after scaling: 100 makes a percentage a change."""
    why: str = ""

    def figure(self) -> Figure:
        """The figure with the answer of its commands."""
        numbers = [self._number(place) for place in range(len(self.commands))]
        return Figure(
            self.what,
            self.published,
            min(numbers),
            self.tolerance,
            self.unit,
            self.test,
            self.why,
            highest=max(numbers) if len(numbers) > 1 else None,
        )

    def _number(self, place: int) -> float:
        number = _at(answer(self.commands[place]), self.value)
        if self.over:
            number /= _at(answer(self.over[place]), self.value)
        return number * self.scale - self.less


class Table(BaseModel):
    """One headline: a title, what is compared and the figures."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    key: str
    title: str
    text: str
    figure: tuple[Row, ...]

    def headline(self) -> Headline:
        """The headline with its figures computed, and the commands a reader can run."""
        commands = dict.fromkeys(
            command for row in self.figure for command in (*row.commands, *row.over)
        )
        block = "\n".join(f"$ plan {command}" for command in commands)
        text = f"{self.text.strip()}\n\n```text\n{block}\n```"
        figures = tuple(row.figure() for row in self.figure)
        return Headline(self.key, self.title, text, figures)


def tables() -> Iterator[Table]:
    """The headlines of the file."""
    content = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    for one in content["headline"]:
        yield Table.model_validate(one)


@cache
def answer(command: str) -> object:
    """The JSON document that a command prints; a search has all the time it needs."""
    unlimited = ["--time-limit", "none"] if command.startswith("search ") else []
    out, said = io.StringIO(), io.StringIO()
    with (
        contextlib.chdir(FILES),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(said),
    ):
        code = run([*shlex.split(command), *unlimited, "--json"])
    assert code == 0, f"plan {command}: {said.getvalue()}"
    return json.loads(out.getvalue())


def _at(document: object, path: str) -> float:
    for key in path.split("."):
        assert isinstance(document, dict), path
        document = document[key]
    assert isinstance(document, int | float), path
    assert math.isfinite(document), path
    return float(document)
