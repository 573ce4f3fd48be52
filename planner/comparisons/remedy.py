"""What would make a layout run that is illegal or too large."""

from collections.abc import Iterator
from dataclasses import dataclass

from trainplan.costmodel.base import PlanError
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.layouts import LayoutTable
from trainplan.costmodel.step import explicit
from trainplan.planner.cases import Case, with_choice, with_states
from trainplan.planner.comparisons.comparison import FieldDifference, field_differences
from trainplan.planner.comparisons.neighbours import nearest_fitting
from trainplan.planner.plan import Candidate
from trainplan.planner.questions import outcome
from trainplan.planner.space import broken_rules, parse_choice
from trainplan.planner.work import Budget

HELD = (("tp", "cp", "pp"), ("tp", "pp"), ("tp",))
"""Degrees a remedy keeps: as many as it can, tensor parallelism last."""
NARROW = "bf16"
"""What states may be stored in instead."""


@dataclass(frozen=True, slots=True)
class Remedy:
    """The layout with something changed: legal, and it fits."""

    candidate: Candidate
    changes: tuple[FieldDifference, ...]
    option: str = ""
    """What else the command needs; empty: the job as it is."""


def remedies(case: Case, layout: Layout, budget: Budget) -> tuple[Remedy, ...]:
    """The fastest layouts one change away, then the best one that holds its degrees."""
    own = layout.model_dump(mode="json")
    found = [*nearest_fitting(case, layout), *_with_its_degrees(case, layout, budget)]
    ordered = sorted(found, key=lambda one: one.estimate.step_time_s)
    same_job = (
        Remedy(one, field_differences(own, one.layout.model_dump(mode="json")))
        for place, one in enumerate(ordered)
        if one.layout not in [other.layout for other in ordered[:place]]
    )
    return (*same_job, *_with_narrow_states(case, layout))


def _with_narrow_states(case: Case, layout: Layout) -> Iterator[Remedy]:
    """The layout with all states in bf16, where that is another job and fits."""
    own = case.job.training.state_precision
    try:
        narrow = with_states(case, NARROW)
    except PlanError:
        return
    table = LayoutTable.of([layout])
    if own == NARROW or broken_rules(narrow.job, table)[0]:
        return
    (priced,) = explicit(narrow.context.with_table(table), memory_margin=narrow.margin)
    if priced.memory.fits:
        difference = FieldDifference("state_precision", own, NARROW)
        option = f"--state-precision {NARROW} (changes the training)"
        yield Remedy(Candidate(rank=1, layout=layout, estimate=priced), (difference,), option)


def _with_its_degrees(case: Case, layout: Layout, budget: Budget) -> Iterator[Candidate]:
    """The best layout with the same degrees, all of them or as many as allow one."""
    for names in HELD:
        held = case
        for name in names:
            choice = parse_choice(f"{name}={getattr(layout, name)}", excluded=False)
            held = with_choice(held, choice)
        best = outcome(held, budget).best
        if best:
            yield best
            return
