"""Islands with outer steps: the best plan of one of them, compared with a plan without them."""

from trainplan.costmodel.base import PlanError, SpecError
from trainplan.costmodel.calibration import NOTHING, Measured, machine_for
from trainplan.costmodel.job import Job, OuterSpec
from trainplan.costmodel.outer import island_job, with_rounds
from trainplan.planner.plan import Infeasible, OuterStep, Plan, SearchOptions
from trainplan.planner.questions import best_plan
from trainplan.planner.work import ALONE, Budget, DeadlineBudget, Unlimited, Workers, part_of

FIRST, MAIN, BEFORE = 1 / 4, 3 / 4, 7 / 8
"""Shares of what is left of a time limit: to know what a local step takes, for the plan before it
is compared, and for one without islands before they are offered. Source: assumed."""
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

    Best is what `options.objective` says; where that may leave nodes out, the plan's job has fewer.
    Of islands (`job.outer`) it is the plan of one of them.

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
    island = _with_rounds(island_job(job), options, part_of(budget, FIRST), measured)
    plan = best_plan.search(island, options, part_of(budget, MAIN), measured, workers)
    if isinstance(plan, Infeasible) or options.only_answer:
        return plan
    joined = OuterStep.of(plan.job, machine_for(plan.job, measured), plan.best.estimate)
    if joined and not job.outer.is_parted and not budget.spent():
        whole = job.model_copy(update={"outer": None})
        fastest = _brief(options).model_copy(update={"objective": "time", "deadline_days": None})
        without = _found(whole, fastest, budget, measured)
        if without:
            step_s = without.best.estimate.step_time_s
            joined = joined.compared(step_s, without.job.cluster.num_gpus)
    return plan.model_copy(update={"outer_step": joined})


def _brief(options: SearchOptions) -> SearchOptions:
    """For the best layout alone."""
    return options.model_copy(update={"only_answer": True, "top": 1})


def _with_rounds(job: Job, options: SearchOptions, budget: Budget, measured: Measured) -> Job:
    """The job with local steps between syncs, if need be by what one of the best layout takes."""
    assert job.outer is not None
    if job.outer.every is not None:
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
