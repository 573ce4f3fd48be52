"""Tune a job: run contenders one after the other until no other is likely to be faster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from trainplan.costmodel.base import SpecError
from trainplan.costmodel.calibration import NOTHING, Measured
from trainplan.costmodel.documents import Outcome, Trial
from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import Layout
from trainplan.planner.plan import Infeasible, Plan
from trainplan.planner.questions import search
from trainplan.planner.tuning import reports
from trainplan.planner.tuning.choose import choose, reason
from trainplan.planner.tuning.contenders import Contenders, contenders, exports
from trainplan.planner.tuning.events import Event, Forecast, StopReason
from trainplan.planner.tuning.knowledge import Ended, Knowledge, knowledge_of
from trainplan.planner.tuning.options import TuneOptions
from trainplan.planner.tuning.stop import Untried, untried

Launch = Callable[[Trial], Outcome]
LISTED = 30
"""Alternatives of a search that are contenders in any case."""


@dataclass(frozen=True, slots=True)
class Start:
    """Where a run starts: a plan."""

    chosen: Job
    """The job with the settings of the plan."""
    layouts: tuple[Layout, ...]
    """Of the plan's table, the answer first."""

    @classmethod
    def of(cls, plan: Plan) -> Start:
        """Where a search has led."""
        return cls(plan.job, tuple(one.layout for one in plan.candidates))


def tune(
    job: Job,
    launch: Launch,
    options: TuneOptions | None = None,
    *,
    start: Start | None = None,
    measured: Measured = NOTHING,
    earlier: Sequence[tuple[Trial, Outcome]] = (),
    can_start: Callable[[Job, Layout], bool] = exports,
) -> Iterator[Event]:
    """Run trials of a job and learn from each; the last event is `Finished`.

    Without a `start` it searches for one. Trials of `earlier` count as done and are not repeated.
    Only layouts that `can_start` allows are tried.
    An interrupted iterator has lost nothing: what ended was reported.

    Raises:
        PlanError: The job names something unknown, or no layout can be tried.
    """
    options = options or TuneOptions()
    start = start or searched(job, options, measured)
    known = _known(job, options, start, measured, earlier=earlier, can_start=can_start)
    yield from run(known, launch, options, measured)


def run(
    known: Knowledge, launch: Launch, options: TuneOptions, measured: Measured = NOTHING
) -> Iterator[Event]:
    """As `tune`, from what is known already."""
    left = what_remains(known, options)
    yield reports.started(known, options)
    stop = stop_reason(known, options, left)
    stated: dict[int, tuple[Forecast, float]] = {}
    while stop is None:
        trial, row = next_trial(known, left, options)
        begun = reports.trial_started(known, trial, row)
        yield begun
        ended = Ended(row, trial, launch(trial))
        before, known = known, known.after(ended).priced_near(measured)
        yield reports.trial_ended(before, known, ended)
        left = what_remains(known, options)
        stated[trial.number] = begun.forecast, left.probability
        yield reports.learned(known, left)
        stop = stop_reason(known, options, left)
    yield reports.finished(known, options, left, stop, measured, stated=stated)


def searched(job: Job, options: TuneOptions, measured: Measured = NOTHING) -> Start:
    """A start from a search, where no plan was given.

    Raises:
        PlanError: As `search`.
    """
    alone = {"top": LISTED, "only_answer": True, "whole_cluster": True}
    request = options.search.model_copy(update=alone)
    found = search(job, request, measured=measured)
    if isinstance(found, Infeasible):
        return Start(job, ())
    return Start.of(found)


def _known(
    job: Job,
    options: TuneOptions,
    start: Start,
    measured: Measured,
    *,
    earlier: Sequence[tuple[Trial, Outcome]],
    can_start: Callable[[Job, Layout], bool],
) -> Knowledge:
    """What is known before the first trial.

    Raises:
        SpecError: No layout can be tried.
    """
    before = [(trial.job, trial.layout) for trial, _ in earlier]
    found = contenders(
        job,
        options.search,
        measured,
        start.layouts,
        chosen=start.chosen,
        tried=before,
        can_start=can_start,
    )
    if not len(found):
        raise SpecError(
            f"no layout can be tried: none that may fit can be started on {job.runtime}: "
            "`plan search` lists what was refused, `plan catalog runtimes` what is written"
        )
    known = knowledge_of(found, measured)
    place = {(one.options, layout): row for row, (one, layout) in enumerate(found)}
    for trial, outcome in earlier:
        known = known.after(Ended(place[trial.job.options, trial.layout], trial, outcome))
    return known.priced_near(measured)


def next_trial(known: Knowledge, left: Untried, options: TuneOptions) -> tuple[Trial, int]:
    """The next trial, and which contender it runs.

    Where trials of a layout differ the last ones of the budget, or those before an early end, run
    the first two of the ranking again.
    """
    number = 1 + max((one.trial.number for one in known.ended), default=0)
    again = known.to_repeat
    if again is not None:
        why = "once more: a node was lost, no fault of the layout"
        return _trial(known.contenders, again, number, why), again
    first = known.unconfirmed
    if first and (len(first) >= _trials_left(known, options) or _all_known(known, options, left)):
        why = f"once more, of the first two: trials differ by {100 * known.noise:.0f} %"
        return _trial(known.contenders, first[0], number, why), first[0]
    row, best = choose(known.belief, left, known.promising_rows), known.best
    reference = float(np.log(known.seconds_of(best.row))) if best else None
    why = reason(known.belief, left, row, reference)
    return _trial(known.contenders, row, number, why), row


def _trial(found: Contenders, row: int, number: int, why: str) -> Trial:
    job, layout = found.at(row)
    return Trial(number=number, job=job, layout=layout, why=why)


def what_remains(known: Knowledge, options: TuneOptions) -> Untried:
    """What untried contenders may bring beyond the best measured."""
    best = known.best
    row = best.row if best else None
    return untried(known.belief, known.runs, known.open_rows, row, options.worth)


def stop_reason(known: Knowledge, options: TuneOptions, left: Untried) -> StopReason | None:
    """Why to stop now; null: go on."""
    spent = options.seconds is not None and known.seconds >= options.seconds
    budget: StopReason | None = "trials" if known.counted >= options.trials else None
    budget = budget or ("seconds" if spent else None)
    if known.unconfirmed and not budget:
        return None
    return _all_known(known, options, left) or budget


def _all_known(known: Knowledge, options: TuneOptions, left: Untried) -> StopReason | None:
    """Why no other contender is worth a trial; null: one is."""
    if known.best and left.probability <= 1 - options.settled:
        return "settled"
    return None if known.open_rows.any() else "all_tried"


def _trials_left(known: Knowledge, options: TuneOptions) -> float:
    """Trials that the budget still has; those of its seconds take as long as those before."""
    rest = options.trials - known.counted
    if options.seconds is None or not known.counted:
        return rest
    return min(rest, (options.seconds - known.seconds) * known.counted / known.seconds)
