"""Islands with outer steps: the best number of them, or none, and the plan of one island."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from trainplan.costmodel.base import PlanError, SpecError
from trainplan.costmodel.calibration import NOTHING, Measured, machine_for
from trainplan.costmodel.job import Job, OuterSpec
from trainplan.costmodel.outer import island_count, island_job, with_rounds
from trainplan.costmodel.run_costs import stretch_of
from trainplan.costmodel.timeline import settled
from trainplan.planner.plan import Certificate, Infeasible, OuterStep, Plan, SearchOptions
from trainplan.planner.questions import best_plan
from trainplan.planner.work import ALONE, Budget, DeadlineBudget, Unlimited, Workers, part_of

FIRST, BRIEF, BEFORE = 1 / 4, 1 / 2, 7 / 8
"""Shares of what is left of a time limit: to know what a local step takes, for all numbers of
islands before the plan, and for one without islands before they are offered. Source: assumed."""
NOT_KNOWN = (
    "not known whether islands with outer steps (--allow diloco, which changes the training) are "
    "faster: the time limit struck"
)
SHORTER = 0.95
"""A local step of a plan over that of the first, brief search, at least: uneven stages and settings
of the runtime make it shorter. Source: assumed; rounds are as much longer than they need be."""
OFFERED = 0.9
"""Step over that without outer steps, from which on they are not offered. Source: assumed; a plan
that changes the training for less than a tenth is no offer."""


def search(
    job: Job,
    options: SearchOptions | None = None,
    budget: Budget | None = None,
    measured: Measured = NOTHING,
    workers: Workers = ALONE,
) -> Plan | Infeasible:
    """Find the best layout of a job, with alternatives and a certificate.

    Best is by `options.objective`; where that may leave nodes out, the plan's job has fewer.
    Of islands (`job.outer`) it is the plan of one of them, of the number that is best where none is
    stated, or a plan without outer steps where that is better.

    What was measured of the machine replaces the catalog; the proof then holds for that machine.

    Raises:
        PlanError: The job names something unknown or lacks a number it needs, or the budget was
            spent before anything was found.
    """
    options, budget = options or SearchOptions(), budget or Unlimited()
    if job.outer is None:
        island = None if options.objective != "time" or options.only_answer else _as_islands(job)
        if island is None:
            return best_plan.search(job, options, budget, measured, workers)
        plan = best_plan.search(job, options, part_of(budget, BEFORE), measured, workers)
        return _offering(plan, island, budget, measured) if isinstance(plan, Plan) else plan
    if options.tower == "apart":
        raise SpecError("--fix tower=apart is not priced on islands: leave out one of the two")
    if not job.outer.is_parted:
        return _best_number(job, options, budget, measured, workers)
    island = _with_rounds(job, options, part_of(budget, FIRST), measured)
    plan = best_plan.search(island, options, budget, measured, workers)
    if isinstance(plan, Infeasible) or options.only_answer:
        return plan
    return plan.model_copy(update={"outer_step": _of_rounds(plan, measured)})


@dataclass(frozen=True, slots=True)
class _Number:
    """A number of islands, or none, with what a brief search of it found."""

    job: Job
    """Of one of the islands, with its rounds."""
    found: Plan | None
    reason: str = ""
    """Why it has no plan; empty without one: there was no time to know."""

    @property
    def value(self) -> float:
        """The objective of its best layout; of the step time, seconds that pass for a step."""
        return _value(self.found) if self.found else inf

    @property
    def bound(self) -> float:
        """No layout of it has a smaller one."""
        if self.found is None:
            return inf if self.reason else 0.0
        return self.found.certificate.objective.lower_bound * _passing(self.found)

    def order(self) -> tuple[float, float, int]:
        """What is best comes first, of equals the faster one, then fewer islands."""
        step_s = self.found.best.estimate.step_time_s if self.found else inf
        return self.value, step_s, self.job.islands


def _value(plan: Plan) -> float:
    return plan.certificate.objective.value * _passing(plan)


def _passing(plan: Plan) -> float:
    """Of the step time, seconds that pass for one of it, where nodes fail."""
    return stretch_of(plan.job) if plan.certificate.objective.name == "time" else 1.0


def _best_number(
    job: Job, options: SearchOptions, budget: Budget, measured: Measured, workers: Workers
) -> Plan | Infeasible:
    """The best number of islands, or none; all are searched briefly, and the best in full.

    A number that is stated is the answer's, and objectives that use all nodes have all islands:
    then the plan without outer steps is only compared.
    """
    assert job.outer is not None
    most, in_all = island_count(job.cluster), options.objective in ("memory", "context")
    held = job.outer.islands is not None or in_all
    fewer = () if held or options.whole_cluster else range(most - 1, 1, -1)
    jobs = [_of_number(job, one) for one in (job.outer.islands or most, *fewer)]
    jobs.append(job.model_copy(update={"outer": None}))
    known, time = list[_Number](), part_of(budget, BRIEF)
    for place, one in enumerate(jobs):
        share = part_of(time, 1 / (len(jobs) - place))
        known.append(_searched(one, options, share, measured))
    answers = [one for one in (known[:1] if held else known) if one.found] or known[:1]
    best = min(answers, key=_Number.order)
    plan = best_plan.search(best.job, options, budget, measured, workers)
    if isinstance(plan, Infeasible) or options.only_answer:
        return plan
    plan = _with_known(plan, known, best, measured, held=held)
    if best.job.outer is None or not plan.outer_step:
        return plan
    return _with_seconds(plan, known[-1], options, budget, measured)


def _with_known(
    plan: Plan, known: Sequence[_Number], best: _Number, measured: Measured, *, held: bool
) -> Plan:
    """The plan with what is known of other numbers, which its proof is over if it may be any."""
    own, target = _passing(plan), plan.certificate.objective
    tried = []
    for one in known:
        mine = one is best
        job = plan.job if mine else one.found.job if one.found else one.job
        value = target.value if mine else one.value / own
        bound = target.lower_bound if mine else min(one.bound / own, value)
        tried.append((job, value, bound, one.reason))
    joined = _of_rounds(plan, measured)
    if joined is None:
        others = [one for one in known[:-1] if one.found]
        if not others:
            none = all(one.reason for one in known[:-1])
            why = (
                f"have no plan: {known[0].reason}"
                if none
                else "are not known: the time limit struck"
            )
            reason = f"islands with outer steps {why}"
            return plan.model_copy(update={"notes": (*plan.notes, reason)})
        found = min(others, key=_Number.order).found
        assert found
        joined = _of_rounds(found, measured, chosen=False)
        assert joined
        joined = joined.compared(plan.best.estimate.step_time_s, plan.job.num_gpus)
    groups = len(known[-1].job.cluster.groups)
    joined = joined.among(tried, max(0, groups - joined.islands), held=held)
    proof = plan.certificate if held else _over(plan.certificate, [bound for *_, bound, _ in tried])
    return plan.model_copy(update={"outer_step": joined, "certificate": proof})


def _over(proof: Certificate, bounds: Sequence[float]) -> Certificate:
    """What is proved over several numbers of islands, each with its bound of the objective."""
    target = proof.objective
    bound = settled(target.value, min(bounds))
    target = target.model_copy(update={"lower_bound": bound})
    step = {"lower_bound_s": min(proof.lower_bound_s, bound)} if target.name == "time" else {}
    optimal = proof.optimal and bound >= target.value
    found = {"objective": target, "optimal": optimal, "gap_fraction": target.gap_fraction}
    return proof.model_copy(update=found | step)


def _of_rounds(plan: Plan, measured: Measured, *, chosen: bool = True) -> OuterStep | None:
    """Of a plan of one of the islands; null: it has none."""
    machine = machine_for(plan.job, measured)
    return OuterStep.of(plan.job, machine, plan.best.estimate, chosen=chosen)


def _with_seconds(
    plan: Plan, whole: _Number, options: SearchOptions, budget: Budget, measured: Measured
) -> Plan:
    """The plan of islands with the step without outer steps, if need be one that is too late."""
    without = whole.found
    if without is None and options.deadline_days and not budget.spent():
        late = _brief(options).model_copy(update={"objective": "time", "deadline_days": None})
        without = _found(whole.job, late, budget, measured)
    if without is None or plan.outer_step is None:
        return plan
    step_s, gpus = without.best.estimate.step_time_s, without.job.cluster.num_gpus
    return plan.model_copy(update={"outer_step": plan.outer_step.compared(step_s, gpus)})


def _of_number(job: Job, count: int) -> Job:
    """The job on so many islands, not parted yet."""
    assert job.outer is not None
    return job.model_copy(update={"outer": job.outer.model_copy(update={"islands": count})})


def _searched(job: Job, options: SearchOptions, budget: Budget, measured: Measured) -> _Number:
    """A number of islands, with even stages, for its best layout alone.

    Raises:
        UnsupportedError: The runtime joins no islands.
    """
    try:
        job = _with_rounds(island_job(job), options, part_of(budget, 1 / 2), measured)
        found = best_plan.search(job, _brief(options), DeadlineBudget(budget), measured)
    except SpecError as error:
        reason = str(error)
    else:
        if isinstance(found, Plan):
            return _Number(job, found)
        reason = "nothing fits" if found.least_memory_bytes else "no layout is legal"
    return _Number(job, None, "" if budget.spent() else reason)


def _brief(options: SearchOptions) -> SearchOptions:
    """For the best layout alone."""
    return options.model_copy(update={"only_answer": True, "top": 1})


def _with_rounds(job: Job, options: SearchOptions, budget: Budget, measured: Measured) -> Job:
    """The job with local steps between syncs, if need be by what one of the best layout takes."""
    if job.outer is None or job.outer.every is not None:
        return job
    found = _found(job, _brief(options), budget, measured)
    if found is None:
        return job
    step_s = SHORTER * found.best.estimate.local_step_s
    rounds = with_rounds(found.job, machine_for(found.job, measured), step_s).outer
    return job.model_copy(update={"outer": rounds})


def _found(job: Job, options: SearchOptions, budget: Budget, measured: Measured) -> Plan | None:
    """A plan; null: none is found in time, or none fits."""
    try:
        found = best_plan.search(job, options, DeadlineBudget(budget), measured)
    except PlanError:
        return None
    return found if isinstance(found, Plan) else None


def _as_islands(job: Job) -> Job | None:
    """The job of one of its islands; null: it may not be parted."""
    try:
        return island_job(job.model_copy(update={"outer": OuterSpec()}))
    except SpecError:
        return None


def _offering(plan: Plan, island: Job, budget: Budget, measured: Measured) -> Plan:
    """The plan with what islands would make of it, where they are much faster, or not known."""
    if budget.spent():
        return plan.model_copy(update={"notes": (*plan.notes, NOT_KNOWN)})
    options = SearchOptions(only_answer=True, top=1, memory_margin=plan.memory_margin)
    found = _found(island, options, budget, measured)
    if found is None:
        return plan
    machine, step_s = machine_for(found.job, measured), plan.best.estimate.step_time_s
    joined = OuterStep.of(found.job, machine, found.best.estimate, chosen=False)
    if joined is None or joined.step_time_s > OFFERED * step_s:
        return plan
    joined = joined.compared(step_s, plan.job.cluster.num_gpus)
    return plan.model_copy(update={"outer_step": joined})
