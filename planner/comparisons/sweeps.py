"""How the best plan changes with the job: a search at every point of one knob or several."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise, product
from typing import ClassVar

from trainplan.costmodel.base import PlanError, SpecError
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.lengths import real_tokens_per_step
from trainplan.costmodel.run_costs import goodput_of, stretch_of
from trainplan.planner.cases import Case, with_batch
from trainplan.planner.comparisons.parameters import Varied, turned
from trainplan.planner.goals import SearchContext, part_alone, time_before_part
from trainplan.planner.questions import UNSEARCHED, Outcome, kept_layout, outcomes
from trainplan.planner.work import ALONE, Budget, Workers

KNEE_EFFICIENCY = 0.8
"""A scaling curve bends where an added GPU gives less than this share of a GPU of the best point
before.

Source: assumed; below it a fifth of what is bought is lost.
"""
MOST_POINTS = 256
EXPANDED_FOR_UNEVEN = 40
"""Layouts of each point opened for uneven stages, most of a second's work: small jobs are proved
with so many. Source: measured on sweeps of seven models; 20 leave up to 1.2 % of the step."""


@dataclass(frozen=True, slots=True)
class Setting:
    """A knob at a value."""

    knob: str
    value: str


@dataclass(frozen=True, slots=True)
class Point:
    """One job of the sweep and its best plan."""

    settings: tuple[Setting, ...]
    """The first knob first."""
    num_gpus: int
    outcome: Outcome
    tokens_per_s: float | None
    """Of the whole job, failures and saves included where they are stated; null without a plan."""
    efficiency: float | None
    """Tokens per second and GPU over those of the first point with a plan."""
    marginal_efficiency: float | None
    """What a GPU added since the point before gives over a GPU of the best one before; null where
    none was added."""
    goodput_fraction: float | None
    """Of the time that trains; null: failures are not stated."""
    alone: str = ""
    """That part of the cluster alone is faster, or that it is not known; usually empty."""
    knee: bool = False
    """The last point before marginal efficiency falls under `KNEE_EFFICIENCY`."""


@dataclass(frozen=True, slots=True)
class Curve:
    """Points along the first knob, all other knobs held."""

    held: tuple[Setting, ...]
    points: tuple[Point, ...]


@dataclass(frozen=True, slots=True)
class Sweep:
    """One curve for every combination of the knobs after the first."""

    KNEE_EFFICIENCY: ClassVar[float] = KNEE_EFFICIENCY
    varied: tuple[Varied, ...]
    weak: bool
    """The batch grew with the GPUs."""
    curves: tuple[Curve, ...]


def sweep(
    case: Case,
    varied: Sequence[Varied],
    budget: Budget,
    workers: Workers = ALONE,
    *,
    weak: bool = False,
) -> Sweep:
    """Search every point until the budget is spent; later points are then untried.

    `weak` grows the batch with the GPUs, so that every GPU keeps its share.

    Raises:
        SpecError: A knob is varied twice, or there are too many points.
    """
    names = [one.knob for one in varied]
    if not names or len(set(names)) != len(names):
        raise SpecError("vary at least one knob, and each only once")
    first, others = varied[0], varied[1:]
    combinations = list(product(*(_settings(one) for one in others)))
    if len(combinations) * len(first.values) > MOST_POINTS:
        raise SpecError(f"more than {MOST_POINTS} points: vary less")
    settings = [(at, *held) for held in combinations for at in _settings(first)]
    changed = [_changed(case, some, weak=weak) for some in settings]
    cases = [one for one in changed if isinstance(one, Case)]
    searched = outcomes(
        cases, time_before_part((one.job for one in cases), budget), workers, EXPANDED_FOR_UNEVEN
    )
    found = _compared(changed, searched, len(first.values))
    several = zip(settings, changed, found, strict=True)
    points = iter([_point(*at, case, budget) for at in several])
    curves = tuple(
        Curve(held, _with_margins(islice(points, len(first.values)))) for held in combinations
    )
    return Sweep(tuple(varied), weak, curves)


def _settings(varied: Varied) -> tuple[Setting, ...]:
    return tuple(Setting(varied.knob, value) for value in varied.values)


def _compared(
    changed: Sequence[Case | PlanError], searched: Iterator[Outcome], width: int
) -> Sequence[Outcome]:
    """Outcomes in order, none slower than with the layout of a point next to it.

    So no better machine gives a slower point, whichever uneven stages were tried for it. Points
    next to it are on its curve of `width` points or have its place on the curve before or behind.
    None is slower than with the plan's own layout either, however little time there was.
    """
    found = [
        Outcome("impossible", str(one), None)
        if isinstance(one, PlanError)
        else _at_least(next(searched), one, one.options.near)
        for one in changed
    ]
    steps = dict.fromkeys((1, width))
    pairs = [(at - step, at) for at in range(len(found)) for step in steps if at >= step]
    for here, there in (*pairs, *((behind, before) for before, behind in reversed(pairs))):
        best, case = found[here].best, changed[there]
        if best is not None and isinstance(case, Case):
            found[there] = _at_least(found[there], case, best.layout)
    return found


def _at_least(found: Outcome, case: Case, layout: Layout | None) -> Outcome:
    """As `Outcome.at_least`; the layout is priced only where that may change the point."""
    kept = layout and layout.resized(case.job.cluster.num_gpus)
    own = found.best and found.best.layout == kept
    if kept is None or own or found.status in UNSEARCHED:
        return found
    return found.at_least(kept_layout(case, kept))


def _point(
    settings: tuple[Setting, ...],
    changed: Case | PlanError,
    outcome: Outcome,
    case: Case,
    budget: Budget,
) -> Point:
    """One job and its best plan."""
    case = changed if isinstance(changed, Case) else case
    job, best, goodput = case.job, outcome.best, goodput_of(case.job)
    on = SearchContext.of(job, case.options, case.measured, budget) if best else None
    alone = part_alone(on, best.estimate) if on and best else ()
    tokens = job.islands * real_tokens_per_step(job.training) / stretch_of(job)
    speed = tokens / best.estimate.step_time_s if best else None
    share = None if goodput is None else goodput.fraction
    return Point(settings, job.num_gpus, outcome, speed, None, None, share, "".join(alone))


def _changed(case: Case, settings: Sequence[Setting], *, weak: bool) -> Case | PlanError:
    """The question with all knobs turned, or why there is none."""
    try:
        return _turned(case, settings, weak=weak)
    except PlanError as error:
        return error


def _turned(case: Case, settings: Sequence[Setting], *, weak: bool) -> Case:
    """The question with all knobs turned.

    Raises:
        PlanError: There is no such job.
    """
    changed = case
    for setting in settings:
        changed = turned(changed, setting.knob, setting.value)
    if not weak:
        return changed
    before, after = case.job.cluster.num_gpus, changed.job.cluster.num_gpus
    batch, rest = divmod(changed.job.training.global_batch_size * after, before)
    if rest or not batch:
        raise SpecError(f"the batch of {before} GPUs has no whole share for {after}")
    return with_batch(changed, batch)


def _with_margins(points: Iterable[Point]) -> tuple[Point, ...]:
    """Points with their efficiencies, the knee marked."""
    rated: list[Point] = []
    planned: list[Point] = []
    for point in points:
        if point.tokens_per_s is None:
            rated.append(point)
            continue
        planned.append(point)
        efficiency = _per_gpu(point) / _per_gpu(planned[0])
        marginal = _marginal(planned[:-1], point)
        rated.append(replace(point, efficiency=efficiency, marginal_efficiency=marginal))
    return tuple(_with_knee(rated))


def _per_gpu(point: Point) -> float:
    return (point.tokens_per_s or 0.0) / point.num_gpus


def _marginal(before: Sequence[Point], point: Point) -> float | None:
    """What each added GPU gives, over what each GPU of the best point before gives.

    Source: derived; difference of throughputs over difference of GPUs. The best point, because
    the first may be slow for want of memory.
    """
    if not before or point.num_gpus <= before[-1].num_gpus:
        return None
    added = (point.tokens_per_s or 0.0) - (before[-1].tokens_per_s or 0.0)
    best = max(_per_gpu(one) for one in before)
    return added / (point.num_gpus - before[-1].num_gpus) / best


def _with_knee(points: Sequence[Point]) -> Iterator[Point]:
    """Mark the last point before the first whose added GPUs are not worth it."""
    planned = [place for place, point in enumerate(points) if point.tokens_per_s is not None]
    knee = -1
    for before, after in pairwise(planned):
        marginal = points[after].marginal_efficiency
        if marginal is not None and marginal < KNEE_EFFICIENCY:
            knee = before
            break
    for place, point in enumerate(points):
        yield replace(point, knee=place == knee)
