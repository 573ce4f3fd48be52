"""What would make a layout run that is illegal or too large."""

from collections.abc import Iterator
from dataclasses import dataclass

from trainplan.costmodel.layout import Layout
from trainplan.planner.cases import Case, with_choice
from trainplan.planner.comparisons.comparison import FieldDifference, field_differences
from trainplan.planner.comparisons.neighbours import nearest_fitting
from trainplan.planner.plan import Candidate
from trainplan.planner.questions import outcome
from trainplan.planner.space import parse_choice
from trainplan.planner.work import Budget

HELD = (("tp", "cp", "pp"), ("tp", "pp"), ("tp",))
"""Degrees a remedy keeps: as many as it can, tensor parallelism last."""


@dataclass(frozen=True, slots=True)
class Remedy:
    """The layout with something changed: legal, and it fits."""

    candidate: Candidate
    changes: tuple[FieldDifference, ...]


def remedies(case: Case, layout: Layout, budget: Budget) -> tuple[Remedy, ...]:
    """The fastest layouts one change away, then the best one that holds its degrees."""
    own = layout.model_dump(mode="json")
    found = [*nearest_fitting(case, layout), *_with_its_degrees(case, layout, budget)]
    ordered = sorted(found, key=lambda one: one.estimate.step_time_s)
    return tuple(
        Remedy(one, field_differences(own, one.layout.model_dump(mode="json")))
        for place, one in enumerate(ordered)
        if one.layout not in [other.layout for other in ordered[:place]]
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
