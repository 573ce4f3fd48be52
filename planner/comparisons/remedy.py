"""What would make a layout run that is illegal or too large."""

from collections.abc import Iterator
from dataclasses import dataclass

from trainplan.costmodel.base import PlanError
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.layouts import LayoutTable
from trainplan.costmodel.step import explicit
from trainplan.planner.cases import LIGHTER, Case, with_choice, with_usual_chance
from trainplan.planner.comparisons.comparison import FieldDifference, field_differences
from trainplan.planner.comparisons.neighbours import nearest_fitting
from trainplan.planner.plan import Candidate
from trainplan.planner.questions import outcome
from trainplan.planner.space import broken_rules, parse_choice
from trainplan.planner.work import Budget

HELD = (("tp", "cp", "pp"), ("tp", "pp"), ("tp",))
"""Degrees a remedy keeps: as many as it can, tensor parallelism last."""


@dataclass(frozen=True, slots=True)
class Remedy:
    """The layout with something changed: legal, and it fits."""

    candidate: Candidate
    changes: tuple[FieldDifference, ...]
    option: str = ""
    """What else the command needs; empty: the job as it is."""


def remedies(case: Case, layout: Layout, budget: Budget) -> tuple[Remedy, ...]:
    """The fastest layouts one change away, then the best one that holds its degrees."""
    own, case = layout.model_dump(mode="json"), with_usual_chance(case)
    found = [*nearest_fitting(case, layout), *_with_its_degrees(case, layout, budget)]
    ordered = sorted(found, key=lambda one: one.estimate.step_time_s)
    same_job = (
        Remedy(one, field_differences(own, one.layout.model_dump(mode="json")))
        for place, one in enumerate(ordered)
        if one.layout not in [other.layout for other in ordered[:place]]
    )
    return (*same_job, *_with_lighter_states(case, layout))


def _with_lighter_states(case: Case, layout: Layout) -> Iterator[Remedy]:
    """The layout with states that take less, of each field the first that fits."""
    table, offered = LayoutTable.of([layout]), set[str]()
    for one in LIGHTER:
        try:
            light = one.applied(case)
            context = light.context.with_table(table)
        except PlanError:
            continue
        if light == case or one.field in offered or broken_rules(light.job, table)[0]:
            continue
        (priced,) = explicit(context, memory_margin=light.margin)
        if priced.memory.fits:
            offered.add(one.field)
            difference = FieldDifference(one.field, one.usual, one.value)
            yield Remedy(
                Candidate(rank=1, layout=layout, estimate=priced), (difference,), one.option
            )


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
