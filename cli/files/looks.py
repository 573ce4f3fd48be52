"""Files for someone else than the user: what may be read, and what a command has looked at.

An answer is given again only while all that it was made of still looks the same.
"""

import hashlib
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import wraps
from pathlib import Path
from typing import TypeVar

ResultT = TypeVar("ResultT")
KINDS: dict[str, Callable[[Path], object]] = {}
"""What may be looked up of a path, by name."""


@dataclass(slots=True)
class Looks:
    """What somebody may look at, and what each look showed."""

    readable: tuple[Path, ...] = ()
    """Folders whose files may be read."""
    results: dict[tuple[str, str], object] = field(default_factory=dict)
    """By kind and path."""
    steady: bool = True
    """False: a second look at the same path showed something else."""

    def begin(self) -> None:
        """From now on, in this context, files are looked at for this one."""
        LOOKS.set(self)

    def note(self, kind: str, path: Path, result: object) -> None:
        """Keep what a look showed."""
        self.steady = self.results.setdefault((kind, str(path)), result) == result and self.steady

    def outside(self, folder: Path) -> "Looks":
        """Those at other paths than in a folder."""
        others = {
            (kind, path): result
            for (kind, path), result in self.results.items()
            if not Path(path).is_relative_to(folder)
        }
        return replace(self, results=others)

    def hold(self) -> bool:
        """Does every look show the same again? Called in a context of its own."""
        replace(self, results={}).begin()
        return self.steady and all(
            KINDS[kind](Path(path)) == result for (kind, path), result in self.results.items()
        )


LOOKS: ContextVar[Looks | None] = ContextVar("LOOKS", default=None)
"""Null: the caller is the user, who may read all."""


def noted(look: Callable[[Path], ResultT]) -> Callable[[Path], ResultT]:
    """A look at a path that is kept with what it shows."""
    KINDS[look.__name__] = look

    @wraps(look)
    def kept(path: Path) -> ResultT:
        result = look(path)
        if (looks := LOOKS.get()) is not None:
            looks.note(look.__name__, path, result)
        return result

    return kept


def digest(path: Path, content: bytes) -> str:
    """Of the content of a file and of where it really lies, which gives some models their name."""
    place = str(path.resolve()).encode("utf-8", "surrogateescape")
    return hashlib.sha256(place + b"\0" + content).hexdigest()
