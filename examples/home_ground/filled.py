"""Answers to problems of filling stages, solved by our integer program."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from answers import Clock, Row, Watch, finite
from relaxed import Best, Case, best_of

from trainplan.planner.solvers import layer_assignment as milp


@dataclass(frozen=True, slots=True)
class Solved:
    """An answer and the seconds it took."""

    best: Best
    seconds: float
    cpu_seconds: float

    @property
    def plan(self) -> str:
        """In words."""
        best = self.best
        return "none" if best.case is None or best.counts is None else best.case.text(best.counts)

    def row(
        self, peer: str, problem: str, theirs: float | None, cpu: float | None, note: str
    ) -> Row:
        """A row of a step in seconds; `cpu` are those of the peer's program."""
        best = self.best
        return Row(
            peer,
            problem,
            "a step",
            theirs,
            finite(best.value),
            finite(best.lower_bound),
            cpu,
            self.seconds,
            self.cpu_seconds,
            self.plan,
            note,
        )


def solved(cases: Callable[[], list[Case]], limit: float) -> Solved:
    """The best of some cases; the seconds count the making of the cases."""
    watch = Watch()
    best = best_of(cases(), milp.solve, Clock(limit))
    return Solved(best, *watch.read())
