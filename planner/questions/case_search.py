"""The best layout of a changed question, or why there is none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf
from typing import Literal

from trainplan.costmodel.base import PlanError
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.layouts import LayoutTable, legal_rows
from trainplan.planner.cases import Case
from trainplan.planner.plan import Candidate, Certificate, Plan
from trainplan.planner.questions.best_plan import search
from trainplan.planner.questions.estimation import estimate
from trainplan.planner.work import Budget, Deadline, DeadlineBudget, Workers

Status = Literal["proved", "even", "found", "memory", "rules", "impossible", "untried"]
"""Searched to the proof; proved with even stages, some uneven ones tried; no proof was reached;
nothing fits in memory; every layout breaks a rule; no such job; no time was left."""
ANSWERED: frozenset[Status] = frozenset(("proved", "even", "found"))
UNSEARCHED: frozenset[Status] = frozenset(("impossible", "untried"))


@dataclass(frozen=True, slots=True)
class Outcome:
    """How the search of one question ended."""

    status: Status
    reason: str
    """Why the job is impossible; else empty."""
    best: Candidate | None
    """The fastest layout found; null where there is none."""
    settings: tuple[str, ...] = ()
    """Those that were chosen for it, as `--option` takes them."""

    def at_least(self, kept: Candidate | None) -> Outcome:
        """This or the layout of a similar job, whichever is faster.

        Uneven stages are only tried: that layout may be faster, or the only one that fits.
        """
        if kept is None or self.status in UNSEARCHED:
            return self
        if self.best and self.best.estimate.step_time_s <= kept.estimate.step_time_s:
            return self
        return Outcome("even" if self.status == "even" else "found", "", kept)


def outcome(case: Case, budget: Budget, uneven: int = 0) -> Outcome:
    """Search a question for its best layout alone.

    Uneven stages are tried, and so many layouts opened for them; not all are searched.
    """
    if budget.spent():
        return Outcome("untried", "", None)
    changes = {"top": 1, "only_answer": True, "tries_uneven": uneven, "whole_cluster": True}
    options = case.options.model_copy(update=changes)
    try:
        answer = search(case.job, options, budget, case.measured)
    except PlanError as error:
        late = budget.spent()
        return Outcome("untried" if late else "impossible", "" if late else str(error), None)
    if isinstance(answer, Plan):
        chosen = tuple(answer.job.options.arguments().values())
        stated = case.job.options.arguments().values()
        own = tuple(text for text in chosen if text not in stated)
        return Outcome(_status(answer.certificate), "", answer.best, own)
    return Outcome("rules" if answer.least_memory_bytes is None else "memory", "", None)


def kept_layout(case: Case, layout: Layout) -> Candidate | None:
    """The layout of a similar job, data parallelism filling the cluster; None if illegal here."""
    kept = layout.resized(case.job.cluster.num_gpus)
    if kept is None:
        return None
    margin, table = case.margin, LayoutTable.of([kept])
    rules = case.options.rules_of_layouts(case.context)
    if not legal_rows(case.job, rules, table)[0]:
        return None
    try:
        priced = estimate(case.job, kept, case.measured, memory_margin=margin)
    except PlanError:
        return None
    return Candidate(rank=1, layout=kept, estimate=priced) if priced.memory.fits else None


def _status(certificate: Certificate) -> Status:
    if certificate.optimal:
        return "proved"
    uneven = certificate.uneven_stages
    even = uneven is not None and uneven.even_lower_bound_s >= uneven.even_step_time_s
    return "even" if even else "found"


@dataclass(frozen=True, slots=True)
class OutcomeTask:
    """The search of a question, as a task."""

    case: Case
    uneven: int

    def __call__(self, deadline: Deadline) -> Outcome:
        """Search it."""
        return outcome(self.case, DeadlineBudget(deadline), self.uneven)


def outcomes(
    cases: Sequence[Case], budget: Budget, workers: Workers, uneven: int = 0
) -> Iterator[Outcome]:
    """Search some questions, the first ones first; those the budget does not reach are untried."""
    tasks = [OutcomeTask(case, uneven) for case in cases]
    for number, found in enumerate(workers.run(tasks, budget), start=1):
        budget.report(number / len(cases), 0.0, inf)
        yield found
