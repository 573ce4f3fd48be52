"""A published figure against the model's, and the published runs such figures are taken from."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from trainplan.costmodel.candidates import context_of
from trainplan.costmodel.documents.measured_run import MeasuredRun
from trainplan.costmodel.job.job import Job
from trainplan.costmodel.layouts.rules import Rule
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.machine import Machine
from trainplan.costmodel.step import Estimate
from trainplan.costmodel.uncertainty import FIT_CHANCE, margin_of
from trainplan.costmodel.validate.predict import Prediction, predict
from trainplan.planner.space import parse_choice, rules_of_job
from trainplan.planner.tree.branch_and_bound import Search
from trainplan.planner.tree.result import SearchLimits
from trainplan.planner.work.budget import Unlimited

Test = Literal["near", "sign", "at most", "at least", "range"]
Unit = Literal["s", "ms", "TFLOP/s", "%", "GiB", "tokens/s", "tokens", "points", "times", "place"]

DIGITS: Mapping[Unit, int] = {
    "s": 2,
    "ms": 2,
    "TFLOP/s": 1,
    "%": 1,
    "GiB": 1,
    "tokens/s": 0,
    "tokens": 0,
    "points": 1,
    "times": 2,
    "place": 0,
}
DRIFT = 0.03
"""Largest move of the error of a missed figure, of the larger of published and predicted: beyond it
a test fails."""
PLACES = 10
"""Alternatives `plan search` lists."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One published number and the model's."""

    what: str
    published: float
    predicted: float
    tolerance: float = 0.0
    """Largest error, a fraction; only of `near`."""
    unit: Unit = "s"
    test: Test = "near"
    """`near`: within the tolerance; `sign`: both gains or both losses; `range`: between the
    predictions for choices that the publication leaves open; else a limit."""
    why: str = ""
    """Why the model does not reach it; empty: it must."""
    highest: float | None = None
    """Of `range`: the other end; `predicted` is the lowest."""
    held_error: float | None = None
    """Of a figure that is missed: its error as it is on file, a fraction."""

    @property
    def error_fraction(self) -> float:
        """Predicted over published, less one."""
        return self.predicted / self.published - 1

    @property
    def reached(self) -> bool:
        """Does the model give what was published?"""
        if self.test == "sign":
            return self.predicted * self.published > 0
        if self.test == "range":
            assert self.highest is not None
            return self.predicted <= self.published <= self.highest
        if self.test == "near":
            return abs(self.error_fraction) <= self.tolerance
        within = self.predicted <= self.published
        return within if self.test == "at most" else self.predicted >= self.published

    def complaint(self) -> str | None:
        """What is wrong with it: missed without a reason, or no longer by the error on file."""
        if self.reached:
            return None if self.held_error is None else "is reached: take its error off the file"
        if not self.why:
            return "is missed, and nothing says why"
        if self.held_error is None:
            return f"is missed: write its error, {self.error_fraction:.3f}, into the file"
        drift = DRIFT * max(1.0, abs(1 + self.error_fraction))
        if math.isclose(self.error_fraction, self.held_error, rel_tol=0, abs_tol=drift):
            return None
        return f"is off by {self.error_fraction:+.3f}, on file is {self.held_error:+.3f}"

    def cells(self) -> tuple[str, ...]:
        """As a row: what, published, predicted, error, tolerance, reached."""
        near, sign = self.test == "near", "+" if self.test == "sign" else ""
        mark = {"at most": "\u2264 ", "at least": "\u2265 "}.get(self.test, "")
        error = f"{self.error_fraction * 100:+.1f} %" if near or not self.reached else ""
        tolerance = f"{self.tolerance * 100:g} %" if near else "sign" if sign else ""
        predicted = self._text(self.predicted, sign)
        if self.highest is not None:
            tolerance, predicted = "range", f"{predicted} to {self._text(self.highest, sign)}"
        published = mark + self._text(self.published, sign)
        reached = "yes" if self.reached else "**no**"
        return self.what, published, predicted, error, tolerance, reached

    def _text(self, value: float, sign: str) -> str:
        unit = "" if self.unit in ("place", "times") else f" {self.unit}"
        if math.isinf(value):
            return f"not in the first {PLACES}"
        return f"{value:{sign}.{DIGITS[self.unit]}f}{unit}"


@dataclass(frozen=True, slots=True)
class Headline:
    """One headline result: what is compared, and its figures."""

    key: str
    title: str
    text: str
    figures: tuple[Figure, ...]


class Runs:
    """The published runs by id."""

    def __init__(self, runs: Iterable[MeasuredRun]) -> None:
        self._runs = {run.id: run for run in runs}

    def __getitem__(self, name: str) -> MeasuredRun:
        return self._runs[name]

    def changed(self, name: str, **parts: Mapping[str, object]) -> MeasuredRun:
        """A run with some of its fields replaced, part by part."""
        run = self._runs[name]
        return run.model_copy(
            update={
                part: getattr(run, part).model_copy(update=dict(values))
                for part, values in parts.items()
            }
        )


def estimates(runs: Sequence[MeasuredRun]) -> tuple[Estimate, ...]:
    """Estimates of runs that the model must be able to price."""
    return tuple(_estimate(one) for one in predict(runs))


def _estimate(prediction: Prediction) -> Estimate:
    assert prediction.estimate, prediction.skipped
    return prediction.estimate


def step_time(what: str, run: MeasuredRun, tolerance: float, why: str = "") -> Figure:
    """Measured step time of a run against the predicted one."""
    (estimate,) = estimates([run])
    measured = run.measured.step_time_s
    assert measured
    return Figure(what, measured, estimate.step_time_s, tolerance, why=why)


def rules(held: Sequence[str]) -> tuple[Rule, ...]:
    """Choices as `plan search --fix` takes them."""
    return tuple(parse_choice(text, excluded=False).rule() for text in held)


def fastest(
    job: Job,
    machine: Machine,
    held: Sequence[Rule] = (),
    *,
    without: Sequence[Rule] = (),
    places: int = PLACES,
) -> LayoutTable:
    """What the planner finds under these rules: best layouts of the best degrees, in order.

    The run was of another runtime, which did not have the rules it is `without`.
    """
    limits = SearchLimits(machine.memory_bytes * (1 - margin_of(job, FIT_CHANCE)), places)
    legal = [rule for rule in rules_of_job(job) if rule not in without]
    found = Search(context_of(job, machine), [*held, *legal], limits).run(Unlimited())
    assert found.finalists is not None
    return found.finalists


def place(table: LayoutTable, degrees: Mapping[str, int]) -> float:
    """Place of the layout with these degrees among the best; infinite: not among them."""
    for row in range(len(table)):
        layout = table.row(row)
        if all(getattr(layout, name) == value for name, value in degrees.items()):
            return row + 1
    return math.inf
