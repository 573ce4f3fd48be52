"""Why is a layout not the answer: the rule that refuses it, the bytes it lacks, or the seconds."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from trainplan.costmodel.axes import AXES, Held
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.layouts import LayoutTable
from trainplan.costmodel.step import RankMemory
from trainplan.costmodel.uncertainty import is_near_tie, probability_faster
from trainplan.planner.cases import Case
from trainplan.planner.comparisons.comparison import Side, TermDifference, term_differences
from trainplan.planner.comparisons.remedy import Remedy, remedies
from trainplan.planner.documents import Written, changed_values
from trainplan.planner.plan import Plan
from trainplan.planner.questions import estimate, search
from trainplan.planner.runtimes import launch_rules
from trainplan.planner.space import Choice, broken_rules, rules_of_job
from trainplan.planner.work import Budget, part_of

Verdict = Literal["refused", "too large", "slower", "near tie", "same", "faster"]
"""Illegal; over the memory; slower than the model can be wrong; within that; equal; faster."""


@dataclass(frozen=True, slots=True)
class BrokenRule:
    """A rule the layout breaks."""

    name: str
    says: str
    """What is wrong and what to do."""
    source: str


@dataclass(frozen=True, slots=True)
class Overflow:
    """A pipeline rank that needs more than it may use."""

    rank: RankMemory
    over_bytes: float


@dataclass(frozen=True, slots=True)
class WhyNot:
    """The layout against the plan's."""

    verdict: Verdict
    best: Side
    """The plan's layout, priced again."""
    fields: tuple[str, ...]
    """Fields that were named, all others free, as `--fix` has them; none: a whole layout."""
    layout: Layout
    """That one, or the best with these fields."""
    other: Side | None
    """The same, priced; null where a rule refuses it."""
    usable_bytes: float
    """Device memory that the plan's margin leaves."""
    broken: tuple[BrokenRule, ...]
    overflows: tuple[Overflow, ...]
    """Fullest rank first."""
    fits_without_margin: bool
    terms: tuple[TermDifference, ...]
    """Seconds of the plan and of the layout, largest difference first; they sum to the loss."""
    lost_s: float | None
    """Seconds a step takes longer; null where a rule refuses the layout."""
    probability_faster: float | None
    """That it is faster than the plan after all; null where it cannot run."""
    reasons: tuple[str, ...]
    """If it is as fast or faster: what may have kept it out of the plan."""
    listed_rank: int | None
    """Its place in the plan's table of alternatives; null where it is not listed."""
    remedies: tuple[Remedy, ...]
    """Of a layout that is refused or too large."""
    remedies_searched: bool = True
    """False: the budget was spent before all that keeps its tp was searched."""


def why_not(
    case: Case, plan: Written, layout: Layout, budget: Budget, choices: tuple[Choice, ...] = ()
) -> WhyNot:
    """Compare a layout with the one a plan chose; the budget bounds the searches.

    With `choices`, the best layout that has these fields is compared: `layout` has them, and all
    others as they usually are, and is used where a value is none that a search tries.

    Raises:
        SpecError: The plan's own layout breaks a rule of its job, or the budget was spent before
            a layout was found.
    """
    if choices:
        return _with_fields(case, plan, choices, layout, budget)
    margin = case.margin
    priced = estimate(case.job, plan.layout, case.measured, memory_margin=margin)
    best = Side(case.job, plan.layout, priced)
    broken = tuple(_broken(case, layout))
    if broken:
        found = remedies(case, layout, budget)
        refused = _refused(case, best, layout, broken, found)
        return replace(refused, remedies_searched=bool(found) or not budget.spent())
    own = estimate(case.job, layout, case.measured, memory_margin=margin)
    return _compared(case, plan, best, Side(case.job, layout, own), budget)


def _with_fields(
    case: Case, plan: Written, choices: tuple[Choice, ...], filled: Layout, budget: Budget
) -> WhyNot:
    names, fields = {one.field for one in choices}, tuple(one.text for one in choices)
    free = {
        "objective": "time",
        "deadline_days": None,
        "trusted": False,
        "near": plan.layout,
    }
    kept = {
        "fix": (*(one for one in case.options.fix if one.field not in names), *choices),
        "exclude": tuple(one for one in case.options.exclude if one.field not in names),
    }
    alone = {"only_answer": True, "tries_uneven": 0, "top": 1, "search_options": plan.varied}
    options = case.options.model_copy(update={**free, **kept, **alone})
    answer = search(case.job, options, part_of(budget, 1 / 2), case.measured)
    if not isinstance(answer, Plan) and options.published:  # what was published has no such fields
        options = options.model_copy(update={"published": False, "generation": False})
        answer = search(case.job, options, part_of(budget, 1 / 2), case.measured)
    if isinstance(answer, Plan):
        own = estimate(case.job, plan.layout, case.measured, memory_margin=options.margin(case.job))
        best = Side(case.job, plan.layout, own)
        other = Side(answer.job, answer.best.layout, answer.best.estimate)
        return replace(_compared(case, plan, best, other, budget), fields=fields)
    layout = filled if answer.untried else answer.least_memory_layout or filled
    found = why_not(case, plan, layout, budget)
    if answer.untried or answer.least_memory_layout:
        return replace(found, fields=() if answer.untried else fields)
    rules = {rule.name: rule for rule in (*rules_of_job(case.job), *launch_rules(case.job))}
    first = next((rules[name] for name in answer.refused if name in rules), None)
    broken = (BrokenRule(first.name, first.says, first.source),) if first else found.broken
    if not broken:  # no search has such fields together, and the filled layout is legal
        return found
    return replace(found, verdict="refused", fields=fields, broken=broken)


def _compared(case: Case, plan: Written, best: Side, other: Side, budget: Budget) -> WhyNot:
    margin, layout = case.margin, other.layout
    priced, own = best.estimate, other.estimate
    fits = own.memory.fits is not False
    usable = own.memory.capacity_bytes * (1 - margin)
    verdict = _verdict(best, other)
    chance = probability_faster(layout, own.step_time_s, plan.layout, priced.step_time_s)
    reasons = tuple(_reasons(case, plan, best, other)) if verdict == "faster" else ()
    found = () if fits else remedies(case, layout, budget)
    return WhyNot(
        verdict=verdict,
        best=best,
        fields=(),
        layout=layout,
        other=other,
        usable_bytes=usable,
        broken=(),
        overflows=tuple(_overflows(other, usable)),
        fits_without_margin=own.memory.headroom_bytes >= 0,
        terms=term_differences(priced, own),
        lost_s=own.step_time_s - priced.step_time_s,
        probability_faster=chance if fits else None,
        reasons=reasons,
        listed_rank=_rank(plan, layout),
        remedies=found,
        remedies_searched=fits or bool(found) or not budget.spent(),
    )


def _refused(
    case: Case,
    best: Side,
    layout: Layout,
    broken: tuple[BrokenRule, ...],
    remedies: tuple[Remedy, ...],
) -> WhyNot:
    """A layout that nothing can run has no seconds and no bytes."""
    return WhyNot(
        verdict="refused",
        best=best,
        fields=(),
        layout=layout,
        other=None,
        usable_bytes=best.estimate.memory.capacity_bytes * (1 - case.margin),
        broken=broken,
        overflows=(),
        fits_without_margin=False,
        terms=(),
        lost_s=None,
        probability_faster=None,
        reasons=(),
        listed_rank=None,
        remedies=remedies,
    )


def _rank(plan: Written, layout: Layout) -> int | None:
    listed = plan.candidates
    return listed.index(layout) + 1 if layout in listed else None


def _broken(case: Case, layout: Layout) -> Iterator[BrokenRule]:
    world = case.job.cluster.num_gpus
    if layout.world_size != world:
        dp = world // (layout.tp * layout.cp * layout.pp)
        yield BrokenRule(
            "uses_all_gpus",
            f"tp * cp * pp * dp = {layout.world_size}, the cluster has {world} GPUs: "
            + (f"set dp = {dp}, or leave it out" if dp else "lower tp, cp or pp"),
            "derived: every GPU is one rank",
        )
    for rule in broken_rules(case.job, LayoutTable.of([layout]))[0]:
        yield BrokenRule(rule.name, rule.says, rule.source)


def _verdict(best: Side, other: Side) -> Verdict:
    if other.estimate.memory.fits is False:
        return "too large"
    if other.layout == best.layout:
        return "same"
    chosen, own = best.estimate.step_time_s, other.estimate.step_time_s
    if own < chosen:
        return "faster"
    return "near tie" if is_near_tie(other.layout, own, best.layout, chosen) else "slower"


def _overflows(other: Side, usable: float) -> Iterator[Overflow]:
    """Ranks over the limit, fullest first."""
    ranks = sorted(other.estimate.memory.pipeline_ranks, key=lambda rank: -rank.total_bytes)
    for rank in ranks:
        if rank.total_bytes > usable:
            yield Overflow(rank, rank.total_bytes - usable)


def _untried(case: Case, layout: Layout) -> Iterator[str]:
    """Values that the search does not try."""
    traits = case.context.traits
    on_request = case.job.model_copy(update={"may_shard_matrices": True})
    for axis in AXES:
        value = axis.of(layout)
        if isinstance(axis.search, Held) and not axis.is_off(layout):
            yield axis.search.says
        tried = axis.tried(case.job, traits) or (value,)
        if isinstance(value, int | float | str) and value not in tried:
            wider = value in axis.tried(on_request, traits)
            how = f" without `--fix {axis.name}=free`" if wider else ""
            yield f"the search does not try {axis.name}={value}{how}"
    if layout.zero_stage == 1 and layout.dp_replicate > 1 and not case.job.may_replicate_shards:
        yield "the search tries dp_replicate > 1 under ZeRO-1 only with `--fix dp_replicate=free`"


def _reasons(case: Case, plan: Written, best: Side, other: Side) -> Iterator[str]:
    """What may have kept a faster layout out of the plan."""
    layout, slower = other.layout, best.estimate.step_time_s / other.estimate.step_time_s - 1
    table = LayoutTable.of([layout])
    if plan.objective != "time":
        yield f"the plan was made for --objective {plan.objective}, not for the shortest step"
    elif slower <= plan.slack_fraction:
        yield (
            f"the plan is the simplest layout within the slack of {plan.slack_fraction:.1%}, and "
            "`--slack 0` takes the fastest"
        )
    for rule in plan.options.rules_of_layouts(case.context):
        if rule.broken(case.job, table)[0]:
            yield f"the plan was made with {rule.name}"
    yield from _untried(case, layout)
    if other.estimate.memory.headroom_bytes < 0:
        sure = "99 of 100 steps fit" if other.estimate.memory.fits else "not known whether it fits"
        yield f"the search excludes it by an upper bound of memory, and {sure}"
    if not plan.optimal:
        yield f"the plan is not proved fastest: its gap is {plan.gap_fraction:.1%}"
    if changed := changed_values(plan.estimate, best.estimate):
        one = changed[0]
        yield (
            f"the plan was made with other numbers ({one.name} {one.before}, now {one.now}): give "
            "the --profile it was made with"
        )
