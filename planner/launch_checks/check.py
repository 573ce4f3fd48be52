"""A launch that was read, judged: legal, fits, its price, its slips, and the edits that pay."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf

from trainplan.costmodel.base import PlanError
from trainplan.costmodel.calibration import NOTHING, Measured, context_for
from trainplan.costmodel.job import Job
from trainplan.costmodel.layouts import LayoutTable, Rule
from trainplan.costmodel.runtimes import traits_of
from trainplan.costmodel.step import Estimate
from trainplan.planner.cases import Case
from trainplan.planner.launch_checks.changed import Run, with_options
from trainplan.planner.launch_checks.cures import Cures, cures
from trainplan.planner.launch_checks.edits import Edit, fewest_edits
from trainplan.planner.launch_checks.lints import Lint, lints
from trainplan.planner.launch_checks.saves import LaunchSaves, save_lints, saves_of_launch
from trainplan.planner.plan import Candidate, Plan, SearchOptions
from trainplan.planner.questions import check_model, estimate, search
from trainplan.planner.runtimes import Reading, SettingChange, why_unable
from trainplan.planner.shell import Place, Problem
from trainplan.planner.space import broken_rules
from trainplan.planner.work import ALONE, Budget, Workers, part_of

GATHERS = "overlap_param_gather"
"""An option whose meaning without a value depends on the layout."""
FREE = (
    "attention",
    "cuda_graph",
    "overlap_grad_reduce",
    GATHERS,
    "overlap_tp_comm",
    "microbatch_group_size",
    "overlap_moe_a2a",
    "overlap_shared_experts",
    "delay_wgrad",
    "moe_dispatcher",
    "cp_comm_type",
)
"""Options of a launch that an edit may change: numbers stay as they are, and either the search
varies them or what they are without is the fastest."""


SHARE_OF_PARTS = 3 / 4
"""Of a time limit, for the search that may leave nodes out: where it does, edits of the launch as
it is need one on all of them. Source: assumed."""


@dataclass(frozen=True, slots=True)
class LaunchCheck:
    """What is known of a launch."""

    reading: Reading
    """With the problems of the layout added."""
    estimate: Estimate | None
    """Null where it cannot be priced: too little was read, or it breaks a rule."""
    lints: tuple[Lint, ...]
    optimum: Plan | None
    """The best layout of the job, maybe on fewer nodes; null where none was found."""
    edits: tuple[Edit, ...]
    """The fewest that make it run, where it does not; those that bring most of what the optimum
    does, then the optimum whole."""
    untried: str
    """Why no edits were looked for; empty where they were."""
    cut_off: str = ""
    """Of a launch that does not run: which smaller sets of edits were not tried; empty: none."""
    saves: LaunchSaves | None = None
    """How often it saves; null: its cluster states no failures, or it is not priced."""

    @property
    def fits(self) -> bool | None:
        """In memory; null where it is not known or priced, or a part of the model is not."""
        if self.estimate is None or self.reading.job is None:
            return None
        whole = not self.reading.job.model.left_out
        fits = self.estimate.memory.fits
        return fits and (whole or None)


def check_launch(
    reading: Reading,
    options: SearchOptions,
    budget: Budget,
    measured: Measured = NOTHING,
    workers: Workers = ALONE,
) -> LaunchCheck:
    """Judge a launch; the budget bounds the search for something better."""
    job, layout = reading.job, reading.layout
    if job is None:
        return LaunchCheck(reading, None, (), None, (), "too little of the job could be read")
    try:
        check_model(job)
        context_for(job, measured)
        broken = () if layout is None else broken_rules(job, LayoutTable.of([layout]))[0]
    except PlanError as error:
        problem = Problem("not_priced", "unmodelled", str(error))
        given = replace(reading, job=_described(job), problems=(*reading.problems, problem))
        return LaunchCheck(given, None, (), None, (), "the job cannot be priced")
    judged = _compared(reading, broken)
    free = with_options(job, dict.fromkeys(FREE))
    priced: Estimate | None = None
    slips: tuple[Lint, ...] = ()
    saves = None
    margin = options.margin(job)
    if layout is not None and not broken and layout.world_size == job.cluster.num_gpus:
        priced = estimate(job, layout, measured, memory_margin=margin)
        found_slips = lints(Run(job, layout), priced, measured, memory_margin=margin)
        slips = tuple(replace(one, settings=_own(reading, one.settings)) for one in found_slips)
        saves = saves_of_launch(reading, job, priced.step_time_s)
        slips = (*slips, *save_lints(reading, saves))
    found, every, untried = None, None, ""
    try:
        first = part_of(budget, SHARE_OF_PARTS) if job.cluster.num_nodes > 1 else budget
        answer = search(free, options, first, measured, workers)
        every = found = answer if isinstance(answer, Plan) else None
        untried = "" if found else "nothing fits: `plan search` lists what would help"
        if found and found.job.cluster != free.cluster:
            whole = options.model_copy(update={"whole_cluster": True})
            answer = search(free, whole, budget, measured, workers)
            every = answer if isinstance(answer, Plan) else None
    except PlanError as error:
        untried = str(error)
    edits: tuple[Edit, ...] = ()
    near = Cures((), "")
    if layout is not None:
        job = _as_written(reading, job, measured) if priced else job
        run, optimum = Run(job, layout), None
        own = priced.step_time_s if priced and priced.memory.fits else None
        if every:
            optimum = _in_words_of(job, Run(every.job, every.best.layout), measured)
        if own is None:
            near = cures(Case(job, SearchOptions(memory_margin=margin), measured), layout)
        few = fewest_edits(run, optimum, own, measured, memory_margin=margin, cures=near.found)
        edits = tuple(replace(one, settings=_own(reading, one.settings)) for one in few)
        known = [(one.step_time_s, one.run) for one in edits]
        known += [] if own is None else [(own, run)]
        found = found and with_faster(found, known, measured, memory_margin=margin)
    return LaunchCheck(judged, priced, slips, found, edits, untried, near.cut_off, saves)


def with_faster(
    found: Plan,
    runs: Sequence[tuple[float, Run]],
    measured: Measured = NOTHING,
    *,
    memory_margin: float = 0.0,
) -> Plan:
    """The answer of a search, or what fits, is faster and in its space: its limit left that out.

    `runs` have the seconds of their steps.
    """
    bound, cluster = found.certificate.lower_bound_s, found.job.cluster
    known = [one for one in runs if one[0] >= bound and one[1].job.cluster == cluster]
    step, run = min(known, key=lambda one: one[0], default=(inf, None))
    if run is None or step >= found.best.estimate.step_time_s:
        return found
    priced = estimate(run.job, run.layout, measured, memory_margin=memory_margin)
    best = Candidate(rank=1, layout=run.layout, estimate=priced)
    certificate = found.certificate.model_copy(update={"gap_fraction": 1 - bound / step})
    return found.model_copy(update={"job": run.job, "best": best, "certificate": certificate})


def _described(job: Job) -> Job | None:
    """The job where its runtime trains such a model at all; else there are no words for it."""
    try:
        traits_of(job)
    except PlanError:
        return None
    return job


def _own(reading: Reading, settings: tuple[SettingChange, ...]) -> tuple[SettingChange, ...]:
    """Changes under the names that the launch has for them."""
    return tuple(replace(one, name=reading.own_name(one.name)) for one in settings)


def _as_written(reading: Reading, job: Job, measured: Measured) -> Job:
    """With gathers that the launch states to overlap, which costs what it costs without a value.

    In another layout no value is without the option, so an edit of the layout would drop it.
    """
    stated = {(one.name, one.origin) for one in reading.fields}
    layout, gathers = reading.layout, job.options.overlap_param_gather
    if layout is None or gathers is not None or (f"options.{GATHERS}", "stated") not in stated:
        return job
    kept = with_options(job, {GATHERS: True})
    same = why_unable(kept) is None and _same(Run(job, layout), Run(kept, layout), measured)
    return kept if same else job


def _in_words_of(job: Job, other: Run, measured: Measured) -> Run:
    """The other run, with the options of this job wherever they mean what it means without."""
    found = other
    for name in FREE:
        own = getattr(job.options, name)
        if own is None or getattr(other.job.options, name) is not None:
            continue
        kept = Run(with_options(found.job, {name: own}), other.layout)
        if _same(found, kept, measured):
            found = kept
    return found


def _same(one: Run, other: Run, measured: Measured) -> bool:
    """Do both jobs mean the same, in any layout or in theirs?"""
    contexts = [context_for(run.job, measured) for run in (one, other)]
    if contexts[0].traits == contexts[1].traits:
        return True
    broken = broken_rules(other.job, LayoutTable.of([other.layout]))[0]
    if broken:
        return False
    first, second = (estimate(run.job, run.layout, measured) for run in (one, other))
    return (first.step_time_s, first.memory) == (second.step_time_s, second.memory)


def _compared(reading: Reading, broken: Sequence[Rule]) -> Reading:
    """With every rule that the layout breaks among its problems, each with its line."""
    rules = {rule.name: rule for rule in broken}
    placed = [
        replace(one, place=_place(reading, rules[one.cause].columns))
        if one.place is None and one.cause in rules
        else one
        for one in reading.problems
    ]
    named = {problem.cause for problem in placed}
    added = [
        Problem(rule.name, "unmodelled", f"not priced: {rule.says}", _place(reading, rule.columns))
        for rule in broken
        if rule.name not in named
    ]
    return replace(reading, problems=(*placed, *added))


def _place(reading: Reading, columns: frozenset[str]) -> Place | None:
    """Of the first field that a rule reads and that the launch states."""
    names = {f"layout.{column}" for column in columns}
    stated = (f.place for f in reading.fields if f.name in names and f.origin == "stated")
    return next(stated, None)
