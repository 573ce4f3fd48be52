"""One problem by a peer and by us, as a row of the table."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from math import inf
from textwrap import wrap

WIDTH = 100


class Clock:
    """A deadline some seconds ahead."""

    def __init__(self, seconds: float) -> None:
        self.end = time.monotonic() + seconds

    def seconds_left(self) -> float:
        """Until then."""
        return self.end - time.monotonic()


class Watch:
    """Seconds on the clock and of the CPU since it was made."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def read(self) -> tuple[float, float]:
        """Both."""
        return time.perf_counter() - self._wall, time.process_time() - self._cpu


@dataclass(frozen=True, slots=True)
class Row:
    """One problem, by the peer and by us."""

    peer: str
    problem: str
    unit: str
    """What the values are seconds of."""
    theirs_s: float | None
    """The answer of the peer under its definition; None if it was not found in time."""
    ours_s: float | None
    """None if there is none, or none was found in time."""
    lower_bound_s: float | None
    """No answer takes less under the peer's definition; None if nothing fits."""
    theirs_cpu_s: float | None
    """CPU seconds of the peer's own program, measured once; None if it was not run here."""
    solver_s: float
    """Of ours, on the clock."""
    solver_cpu_s: float
    """Of ours, of the CPU."""
    plan: str
    note: str

    @property
    def gap(self) -> float | None:
        """Part by which another answer could be better; None without an answer."""
        if self.ours_s is None or self.lower_bound_s is None:
            return None
        return 1 - self.lower_bound_s / self.ours_s


@dataclass(frozen=True, slots=True)
class Process:
    """CPU seconds of this process."""

    start_s: float
    """Until the first problem: the interpreter and its imports."""
    whole_s: float


def finite(value: float) -> float | None:
    """A number, or None for none."""
    return value if value < inf else None


def text(rows: Sequence[Row], process: Process) -> Iterator[str]:
    """A paragraph for each row, and the whole process."""
    for one in rows:
        yield f"{one.peer}: {one.problem}"
        theirs = "not found" if one.theirs_s is None else f"{one.theirs_s:.6f} s"
        yield f"  {one.unit}: theirs {theirs}, {_ours(one)}"
        known = one.theirs_cpu_s
        peer = "" if known is None else f", the peer's program in {known:g} CPU-seconds"
        took = f"solved in {one.solver_cpu_s:.2f} CPU-seconds{peer}; {one.note}"
        yield from _wrapped(took, "  ")
        yield from _wrapped(one.plan, "    ")
    whole, start = process.whole_s, process.start_s
    yield f"whole process: {whole:.2f} CPU-seconds, {start:.2f} of them its start"


def _ours(one: Row) -> str:
    """Our answer, as far as there is one."""
    if one.lower_bound_s is None:
        return "ours: nothing fits"
    bound = f"no less than {one.lower_bound_s:.6f} s"
    if one.ours_s is None or one.gap is None:
        return f"ours: none in time, {bound}"
    return f"ours {one.ours_s:.6f} s, {bound}, gap {one.gap:.2%}"


def _wrapped(paragraph: str, indent: str) -> list[str]:
    return wrap(paragraph, WIDTH, initial_indent=indent, subsequent_indent=indent)


def document(rows: Sequence[Row], process: Process) -> str:
    """The rows as JSON."""
    answers = [{**asdict(one), "gap_fraction": one.gap} for one in rows]
    return json.dumps(
        {"schema": "trainplan/home-ground/v1", "process": asdict(process), "answers": answers},
        indent=2,
    )
