"""A search whose answer fits when load shifts: as experts are full in 99 of 100 steps.

The tree prices the rows of the mean step. So where its answer does not fit, one is looked for among
layouts that leave more free: as much as it lacks, then as little as does, by halves.
"""

from trainplan.costmodel.base import GIB, SpecError
from trainplan.costmodel.calibration import NOTHING, Measured
from trainplan.costmodel.job import Job
from trainplan.planner.plan import Candidate, Infeasible, Plan, SearchOptions
from trainplan.planner.questions import islands
from trainplan.planner.questions.load_shift import load_shift
from trainplan.planner.work import ALONE, Budget, Unlimited, Workers, part_of

FIRST, NEXT = 1 / 2, 1 / 4
"""Shares of what is left of a time limit: for the search of all layouts, and for each of those that
leave more free. Source: assumed."""
CLOSE = 0.01
"""Of the memory: limits that are nearer to each other are not distinguished."""
ROUNDING = 1e-9
"""Of a share of the memory."""


def search(
    job: Job,
    options: SearchOptions | None = None,
    budget: Budget | None = None,
    measured: Measured = NOTHING,
    workers: Workers = ALONE,
) -> Plan | Infeasible:
    """Find the best layout of a job, with alternatives and a certificate.

    Source: as `islands.search`. Under `fit_p99` of those that fit when load shifts, or of which too
    few steps were counted to know; the bound is that of the layouts that leave as much free.

    Raises:
        PlanError: As there, or none that fits when load shifts was found.
    """
    options, budget = options or SearchOptions(), budget or Unlimited()
    if not options.fit_p99:
        return islands.search(job, options, budget, measured, workers)
    _check(job, options)
    first = islands.search(job, options, part_of(budget, FIRST), measured, workers)
    if isinstance(first, Infeasible) or (usable := _usable_bytes(first, measured)) is None:
        return first
    capacity = first.best.estimate.memory.capacity_bytes

    def within(usable: float) -> Plan | Infeasible:
        held = {"memory_margin": 1 - usable / capacity - ROUNDING}
        own, limit = options.model_copy(update=held), part_of(budget, NEXT)
        return islands.search(job, own, limit, measured, workers)

    low, high, fits = 0.0, first.best.estimate.memory.peak_reserved_bytes, None
    while high - low > CLOSE * capacity and not budget.spent():
        found = within(usable)
        more = None if isinstance(found, Infeasible) else _usable_bytes(found, measured)
        if isinstance(found, Plan) and more is not None:
            high = found.best.estimate.memory.peak_reserved_bytes
        else:
            low, fits = usable, found if isinstance(found, Plan) else fits
        far = more is not None and low < more <= high - CLOSE * capacity
        usable = more if more is not None and far else (low + high) / 2
    if fits is None:
        raise _none(first, timed=budget.spent())
    return _with_note(fits, first, measured)


def _check(job: Job, options: SearchOptions) -> None:
    """May the load shift, as far as is stated?

    Raises:
        SpecError: It is not stated.
    """
    routing = job.options.routing
    if job.model.moe is None:
        raise SpecError(f"--fit-p99: {job.model.name} has no experts whose load shifts: drop it")
    if options.tower == "apart":
        raise SpecError("--fit-p99 is not priced with --fix tower=apart: leave out one of the two")
    if routing is None or routing.kind in {"balanced", "load"}:
        raise SpecError(
            f"--fit-p99: routing={routing or 'balanced'} is one load for all steps, so how it "
            "shifts is not known: give --option routing=FILE with counts by step, or random"
        )


def _usable_bytes(plan: Plan, measured: Measured) -> float | None:
    """What a mean step may need, less than that of the answer; null: the answer fits.

    The most that leaves free what a listed layout lacks in 99 of 100 steps.
    """
    peak = plan.best.estimate.memory.peak_reserved_bytes
    if not _lacks_bytes(plan, plan.best, measured):
        return None
    limits = (
        one.estimate.memory.peak_reserved_bytes - _lacks_bytes(plan, one, measured)
        for one in (plan.best, *plan.candidates)
    )
    return max(one for one in limits if one < peak)


def _lacks_bytes(plan: Plan, one: Candidate, measured: Measured) -> float:
    """What a layout of the table lacks where it does not fit when load shifts, else 0."""
    shift = load_shift(plan.job, one.layout, one.estimate, measured)
    return shift.lacks_bytes if shift and shift.fits is False else 0.0


def _with_note(plan: Plan, first: Plan, measured: Measured) -> Plan:
    """A plan with a note on what was left out of its search."""
    best, memory = first.best.estimate, first.best.estimate.memory
    lacks = _lacks_bytes(first, first.best, measured)
    free = plan.memory_margin * memory.capacity_bytes
    note = (
        f"not known whether a faster layout that leaves less than {free / GIB:.3g} GiB free fits "
        f"when load shifts (--fit-p99): the best without it takes {best.step_time_s:.4g} s and "
        f"lacks {lacks / GIB:.3g} GiB, none takes less than "
        f"{first.certificate.lower_bound_s:.4g} s"
    )
    return plan.model_copy(update={"notes": (note, *plan.notes)})


def _none(first: Plan, *, timed: bool) -> SpecError:
    best = first.best.estimate
    reason = "the time limit struck: raise --time-limit" if timed else "in limits of memory by 1 %"
    return SpecError(
        f"--fit-p99: no layout that fits when load shifts was found, {reason}; the best without it "
        f"takes {best.step_time_s:.4g} s and {best.memory.peak_reserved_bytes / GIB:.4g} GiB"
    )
