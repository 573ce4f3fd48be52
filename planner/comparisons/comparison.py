"""Two plans side by side: where their jobs, layouts, seconds and bytes differ."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Self

from trainplan.costmodel.base import PlanError
from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.lengths import real_tokens_per_step
from trainplan.costmodel.step import Estimate
from trainplan.costmodel.uncertainty import probability_faster
from trainplan.planner.cases import Case
from trainplan.planner.documents import Json, Written, layout_json
from trainplan.planner.operations import CheckpointMove, checkpoint_move
from trainplan.planner.questions import estimate


@dataclass(frozen=True, slots=True)
class FieldDifference:
    """A field of a job or a layout that differs; values as JSON text."""

    field: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class TermDifference:
    """One term of two steps."""

    term: str
    """Field of `costmodel.step.simulate.Terms`."""
    before_s: float
    after_s: float
    difference_s: float
    """What the second takes more; over all terms these sum to the difference of the steps."""


@dataclass(frozen=True, slots=True)
class Proof:
    """What the search of a plan proved of it, under the cost model."""

    objective: str
    """What it was searched for: `time`, `memory`, `cost`, `energy`, `gpus` or `context`."""
    optimal: bool
    """No layout of its space is better."""
    gap_fraction: float
    """What a better one may take less, at most; 0 and not `optimal`: not known."""
    slack_fraction: float
    """It is the simplest layout that takes no more than this longer than the best."""
    like_published: bool = False
    """The space is that of layouts like published runs; others may be better."""

    @classmethod
    def of(cls, plan: Written) -> Self:
        """That of a plan as it was written."""
        held = plan.options.published or plan.options.generation
        gap, slack = plan.gap_fraction, plan.slack_fraction
        return cls(plan.objective, plan.optimal, gap, slack, held)


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two plans, priced."""

    job: Job
    layout: Layout
    estimate: Estimate
    proof: Proof | None = None
    """Null: not known."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """All that differs; the second against the first."""

    first: Side
    second: Side
    job: tuple[FieldDifference, ...]
    layout: tuple[FieldDifference, ...]
    terms: tuple[TermDifference, ...]
    """Largest difference first."""
    throughput_ratio: float
    """Tokens per second of the second over those of the first."""
    probability_second_faster: float | None
    """Null for two jobs: the errors of their estimates differ."""
    checkpoint: CheckpointMove
    """What a checkpoint of the first needs before the second can load it."""


def compare(
    first: Case,
    one: Layout,
    second: Case,
    other: Layout,
    proofs: tuple[Proof | None, Proof | None] = (None, None),
) -> Comparison:
    """Compare two layouts, each of its job, with what their searches proved.

    Raises:
        SpecError: A layout breaks a rule of its job; the message names the plan.
    """
    before, after = _side(first, one, "first"), _side(second, other, "second")
    steps = before.estimate.step_time_s, after.estimate.step_time_s
    tokens = [one.job.islands * real_tokens_per_step(one.job.training) for one in (first, second)]
    same = before.job == after.job
    return Comparison(
        first=replace(before, proof=proofs[0]),
        second=replace(after, proof=proofs[1]),
        job=field_differences(
            before.job.model_dump(mode="json"), after.job.model_dump(mode="json")
        ),
        layout=layout_differences(before, after),
        terms=term_differences(before.estimate, after.estimate),
        throughput_ratio=tokens[1] / tokens[0] * steps[0] / steps[1],
        probability_second_faster=(
            probability_faster(other, steps[1], one, steps[0]) if same else None
        ),
        checkpoint=checkpoint_move(first.job, one, second.job, other),
    )


def _side(case: Case, layout: Layout, which: str) -> Side:
    margin = case.margin
    try:
        priced = estimate(case.job, layout, case.measured, memory_margin=margin)
    except PlanError as error:
        raise type(error)(f"the {which} plan: {error}") from error
    return Side(case.job, layout, priced)


def term_differences(before: Estimate, after: Estimate) -> tuple[TermDifference, ...]:
    """Seconds of every term, largest difference first; terms that neither has are left out."""
    others = asdict(after.terms)
    rows = (
        TermDifference(name, float(value), float(others[name]), float(others[name] - value))
        for name, value in asdict(before.terms).items()
        if value or others[name]
    )
    return tuple(sorted(rows, key=lambda row: -abs(row.difference_s)))


def layout_differences(before: Side, after: Side) -> tuple[FieldDifference, ...]:
    """Fields of the layouts that differ, with what follows from them."""
    return field_differences(
        layout_json(before.job, before.layout), layout_json(after.job, after.layout)
    )


def field_differences(before: Json, after: Json) -> tuple[FieldDifference, ...]:
    """Fields of two documents that differ, in the order of the first."""
    one, other = dict(_flat(before)), dict(_flat(after))
    names = dict.fromkeys((*one, *other))
    absent = "-"
    return tuple(
        FieldDifference(name, one.get(name, absent), other.get(name, absent))
        for name in names
        if one.get(name, absent) != other.get(name, absent)
    )


def _flat(document: Json, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Every value with the path to it; a list of numbers or words, and the stages, is one value."""
    for key, value in document.items():
        yield from _parts(f"{prefix}{key}", value)


def _parts(path: str, value: object) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        yield from _flat(value, f"{path}.")
    elif isinstance(value, list) and path == "cluster.groups":
        for place, item in enumerate(value):
            yield from _parts(f"{path}[{place}]", item)
    else:
        yield path, value if isinstance(value, str) else json.dumps(value)
