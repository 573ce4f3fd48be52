"""What the variables of a script hold, piece by piece with the lines where the pieces stand."""

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from trainplan.planner.shell.launch import COMMAND_LINE, Place, Problem, Word
from trainplan.planner.shell.words import refuse


class Piece(NamedTuple):
    """Text of one line, or one thing that only a run would tell."""

    text: str
    place: Place
    names: tuple[str, ...] = ()
    """What only a run would tell; where there are some, `text` is as written."""
    whole: bool = False
    """Quoted inside an unquoted expansion: blanks do not split it."""
    fallback: bool = False
    """What `${NAME:-...}` gives where nobody sets the variable."""


Value = tuple[Piece, ...]
Array = dict[str, Value]
"""By index or key, in order; never changed in place while a journal is kept."""

_WORK_LIMIT = 12_000_000
_PIECE = 16
"""Work of a piece beside its characters."""
_NAMED_AT_MOST = 60
_NUMBERED = re.compile(r"[1-9]\d?")


def text_of(value: Value) -> str:
    """Its whole text."""
    return "".join(piece.text for piece in value)


def names_of(value: Value) -> tuple[str, ...]:
    """What it depends on and only a run would tell."""
    return tuple(dict.fromkeys(name for piece in value for name in piece.names))


def given(value: Value) -> Value:
    """Without arguments of the script that nobody gave: they are empty where one asks for that."""
    return tuple(p for p in value if not p.names or not all(n.isdecimal() for n in p.names))


def word_of(value: Value, place: Place) -> Word:
    """A word with the place where its text begins."""
    place = next((piece.place for piece in value if piece.text), place)
    fallback = any(piece.fallback for piece in value)
    return Word(text_of(value), place, names_of(value), fallback=fallback)


def clipped(written: str) -> str:
    """A construct, short enough for a message."""
    written = " ".join(written.split())
    return written if len(written) <= _NAMED_AT_MOST else written[: _NAMED_AT_MOST - 3] + "..."


class Variables:
    """All variables; what is assigned in a branch that may not be taken can be undone."""

    def __init__(
        self,
        settings: Mapping[str, str],
        beneath: Mapping[str, Value] | None = None,
    ) -> None:
        self.beneath = {**(beneath or {})}
        """What a scheduler sets."""
        self.settings: dict[str, Value] = {
            k: (Piece(v, COMMAND_LINE),) for k, v in settings.items()
        }
        self.held: dict[str, Value | Array] = {**self.beneath, **self.settings}
        last = max((int(k) for k in settings if _NUMBERED.fullmatch(k)), default=0)
        nobody = {str(at): (Piece(f"${at}", COMMAND_LINE, (str(at),)),) for at in range(1, last)}
        self.positional: list[Value] | None = [
            {**nobody, **self.settings}[str(at)] for at in range(1, last + 1)
        ]
        """Arguments of the script or of the function that is called; null: not known."""
        self.exported: set[str] = {name for name in self.settings if name.isidentifier()}
        self.exports_all = False
        """`set -a`."""
        self.unread: dict[str, Problem] = {}
        """Why a variable is known only in a run."""
        self.journals: list[dict[str, Value | Array | None]] = []
        self.work = 0

    def charge(self, amount: int, place: Place) -> None:
        """Count characters and pieces that were made."""
        self.work += amount
        if self.work > _WORK_LIMIT:
            refuse(
                place,
                "what the variables hold grows beyond all bounds: write the launch without them",
            )

    def charge_values(self, values: Iterable[Value], place: Place) -> None:
        """Count what was made."""
        self.charge(sum(len(piece.text) + _PIECE for value in values for piece in value), place)

    def put(self, name: str, held: Value | Array | None) -> None:
        """Replace what a variable holds; null: it is unset."""
        if self.journals:
            self.journals[-1].setdefault(name, self.held.get(name))
        if held is None:
            self.held.pop(name, None)
        else:
            self.held[name] = held
            self.exported |= {name} - {"0", "BASH_SOURCE"} if self.exports_all else set()

    def assign(self, name: str, value: Value, place: Place, *, append: bool = False) -> None:
        """`NAME=value`, `NAME+=value`; a setting stands for what only a run would tell."""
        key, name = _subscript(name)
        value = self._named(name, value, place)
        old = self.held.get(name)
        if key is not None or (append and isinstance(old, dict)):
            self.extend(name, [(key or "0", value)], place, append=True)
            return
        if append and not isinstance(old, dict) and old:
            self.charge(_PIECE * len(old), place)
            value = old + value
        self.charge_values((value,), place)
        self.put(name, value)

    def extend(
        self,
        name: str,
        elements: Iterable[tuple[str | None, Value]],
        place: Place,
        *,
        append: bool,
    ) -> None:
        """`NAME=(...)`, `NAME+=(...)`."""
        old = self.held.get(name) if append else None
        array: Array = old if isinstance(old, dict) else {"0": old} if old else {}
        if self.journals:
            self.charge(len(array), place)
            array = dict(array)
        for key, value in elements:
            array[str(len(array)) if key is None else key] = self._named(name, value, place)
            self.charge_values((value,), place)
        self.put(name, array)

    def enter(self, given: Mapping[str, Value], place: Place) -> None:
        """A program that the script runs begins: it has what is exported, and what it is given."""
        self.charge(_PIECE * len(self.held), place)
        self.journals.append({})
        self.exported = {*self.exported, *given}
        for name in self.held.keys() - self.exported - self.beneath.keys():
            self.put(name, None)
        for name, value in given.items():
            self.put(name, value)

    def commit(self) -> None:
        """What the last journal saw stays, as far as those before it let it."""
        journal = self.journals.pop()
        for name, old in journal.items() if self.journals else ():
            self.journals[-1].setdefault(name, old)

    def forget(self, name: str, problem: Problem) -> None:
        """Only a run would tell what it holds."""
        self.unread[name] = problem
        value = (Piece(f"${name}", problem.place or COMMAND_LINE, (name,)),)
        self.put(name, self.settings.get(name, value))

    def _named(self, name: str, value: Value, place: Place) -> Value:
        """Constructs that cannot be set go under the name of the variable that can."""
        written = [n for n in names_of(value) if n[0] in "$`<>"]
        if names_of(value) and name in self.settings:
            return self.settings[name]
        if not written:
            return value
        self.unread[name] = Problem(
            "shell_unread",
            "unread",
            f"{name} takes {' and '.join(written)}, known to a run alone: give --set {name}=VALUE",
            place,
        )
        return tuple(
            piece._replace(
                names=tuple(dict.fromkeys(name if n in written else n for n in piece.names))
            )
            for piece in value
        )

    def merge(
        self, outcomes: list[dict[str, Value | Array | None]], place: Place, kind: str
    ) -> None:
        """After branches of which only a run would tell which one is taken.

        Of each, what it changed; an empty one stands for none taken.
        """
        for name in dict.fromkeys(name for outcome in outcomes for name in outcome):
            old = self.held.get(name)
            ends = [outcome.get(name, old) for outcome in outcomes]
            if all(_flat(end) == _flat(ends[0]) for end in ends):
                self.put(name, ends[0])
            elif old is not None and all(
                _flat(end)[: len(_flat(old))] == _flat(old) for end in ends
            ):
                says = f"what this {kind} adds to {name} depends on a run and was left out"
                says += f": give --set {name}=VALUE, or what the {kind} needs"
                self.unread[f"+{name}"] = Problem("branch_unread", "unread", says, place)
            else:
                says = f"this {kind} sets {name}, and how is known to a run alone"
                says += f": give --set {name}=VALUE, or what the {kind} needs"
                self.forget(name, Problem("branch_unread", "unread", says, place))

    def undo(self) -> dict[str, Value | Array | None]:
        """Take back what the last journal saw; what had been changed to what."""
        journal = self.journals.pop()
        changed = {name: self.held.get(name) for name in journal}
        for name, old in journal.items():
            if old is None:
                self.held.pop(name, None)
            else:
                self.held[name] = old
        return changed


def _flat(held: Value | Array | None) -> str | list[str]:
    """For comparing."""
    if held is None:
        return ""
    return [text_of(value) for value in held.values()] if isinstance(held, dict) else text_of(held)


def _subscript(name: str) -> tuple[str | None, str]:
    """`NAME[key]` in two."""
    if name.endswith("]"):
        name, _, key = name[:-1].partition("[")
        return key.strip("\"'"), name
    return None, name
