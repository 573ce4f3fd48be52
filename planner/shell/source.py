"""Text with its lines, and the errors of what no shell would take."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from trainplan.costmodel.base import PlanError


class ShellError(PlanError):
    """Text that no shell would take, or that is too deep or too large to read."""


@dataclass(frozen=True, slots=True)
class Source:
    """Text with the lines that it stands on."""

    text: str
    file: str | None
    starts: Sequence[int]
    """Where in `text` something of another line begins; the first is 0."""
    lines: Sequence[int | None]
    """The line of what begins there."""

    def line(self, at: int) -> int | None:
        """Line of a position."""
        return self.lines[bisect_right(self.starts, at) - 1]

    def fail(self, at: int, what: str) -> NoReturn:
        """Refuse the text at a position."""
        raise ShellError(f"{where(self.file, self.line(at))}: {what}")


def where(file: str | None, line: int | None) -> str:
    """A place, as errors begin with it."""
    return (file or "the command") + (f", line {line}" if line is not None else "")


def source_of(text: str, file: str | None) -> Source:
    """A whole file."""
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise ShellError(f"{where(file, line)}: a NUL byte: this is no shell script, name another")
    text = text.replace("\r\n", "\n")
    starts = [0, *(found.end() for found in re.finditer("\n", text))]
    return Source(text, file, starts, range(1, len(starts) + 1))
