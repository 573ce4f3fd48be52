"""Events from what is known."""

from collections.abc import Mapping
from math import exp
from types import MappingProxyType

import numpy as np

from trainplan.costmodel.base import PlanError
from trainplan.costmodel.calibration import LEAST_LEARNT, NOTHING, Measured, Observation, calibrate
from trainplan.costmodel.documents import Calibration, Trial
from trainplan.costmodel.measured import MEANINGS, SCALARS
from trainplan.costmodel.uncertainty import NORMAL_80
from trainplan.planner.tuning.events import (
    Best,
    Finished,
    Forecast,
    Learned,
    MemoryRange,
    Remains,
    ScalarRange,
    Started,
    StopReason,
    TrialEnded,
    TrialStarted,
    Tried,
)
from trainplan.planner.tuning.knowledge import Ended, Knowledge
from trainplan.planner.tuning.options import TuneOptions
from trainplan.planner.tuning.stop import Untried

NOTHING_STATED: Mapping[int, tuple[Forecast, float]] = MappingProxyType({})
LIKELIEST = 5
"""Untried layouts that are printed."""


def started(known: Knowledge, options: TuneOptions) -> Started:
    """Before the first trial."""
    likely = known.belief.log_seconds - np.log(np.maximum(known.runs, 1e-9))
    return Started(
        contenders=len(known.contenders),
        earlier_trials=len(known.ended),
        trials=options.trials,
        seconds=options.seconds,
        scalars=scalar_ranges(known),
        fastest=forecast(known, int(np.argmin(likely))),
    )


def trial_started(known: Knowledge, trial: Trial, row: int) -> TrialStarted:
    """Before a trial."""
    return TrialStarted(number=trial.number, why=trial.why, forecast=forecast(known, row))


def trial_ended(before: Knowledge, after: Knowledge, ended: Ended) -> TrialEnded:
    """After a trial."""
    number, layout = ended.trial.number, ended.trial.layout
    teaches = _teaches(before, after, ended)
    return TrialEnded(number=number, layout=layout, outcome=ended.outcome, teaches=teaches)


def _teaches(before: Knowledge, after: Knowledge, ended: Ended) -> str:
    outcome = ended.outcome
    if outcome.ending == "measured" and outcome.step_time_s:
        expected = exp(before.belief.log_seconds[ended.row])
        off = 100 * (outcome.step_time_s / expected - 1)
        word = "longer" if off > 0 else "shorter"
        return f"{abs(off):.1f} % {word} than expected ({expected:.4g} s)"
    if outcome.ending == "out_of_memory":
        mean, _ = after.memory.error
        return f"layouts take {100 * np.expm1(mean):+.1f} % of memory over the model, at a guess"
    if outcome.ending == "lost_node":
        return "nothing of the layout"
    return "this layout does not run here; those like it may not either"


def learned(known: Knowledge, left: Untried) -> Learned:
    """What is believed after a trial."""
    best = known.best
    return Learned(
        number=known.ended[-1].trial.number,
        scalars=scalar_ranges(known),
        memory_factor=memory_factor(known),
        best_number=best.trial.number if best else None,
        best_step_time_s=known.seconds_of(best.row) if best else None,
        probability_faster_remains=left.probability,
        expected_gain_fraction=left.gain,
    )


def finished(
    known: Knowledge,
    options: TuneOptions,
    left: Untried,
    stop: StopReason,
    measured: Measured = NOTHING,
    *,
    stated: Mapping[int, tuple[Forecast, float]] = NOTHING_STATED,
) -> Finished:
    """The result; `told` has by trial what was expected of it and what remained after it."""
    return Finished(
        stop=stop,
        says=_says(known, options, left, stop),
        best=_best(known),
        trials=tuple(_tried(known, one, stated.get(one.trial.number)) for one in known.ended),
        remains=_remains(known, options, left),
        scalars=scalar_ranges(known),
        memory_factor=memory_factor(known),
        noise_fraction=known.noise,
        calibration=_calibration(known, measured),
    )


def _says(known: Knowledge, options: TuneOptions, left: Untried, stop: StopReason) -> str:
    worth = f"{100 * options.worth:.3g} %"
    if stop == "settled":
        sure = 100 * (1 - left.probability)
        return f"with {sure:.0f} % probability no untried layout is faster by more than {worth}"
    if stop == "all_tried":
        return f"all {len(known.contenders)} layouts that may be the fastest were tried"
    spent = f"{options.trials} trials" if stop == "trials" else f"{options.seconds:g} s of trials"
    rest = f"an untried layout is faster by more than {worth} with {100 * left.probability:.0f} %"
    return f"the budget of {spent} is spent; {rest} probability"


def _planned(known: Knowledge, row: int) -> float:
    """Step time of a contender before any trial."""
    return exp(known.planned_log_seconds[row])


def _best(known: Knowledge) -> Best | None:
    best = known.best
    if best is None:
        return None
    numbers = [
        one.trial.number for one in known.ended if one.row == best.row and one.outcome.step_time_s
    ]
    return Best(
        number=best.trial.number,
        layout=best.trial.layout,
        options=best.trial.job.options.stated(),
        repeats=tuple(number for number in numbers if number != best.trial.number),
        measured_step_time_s=known.seconds_of(best.row),
        planned_step_time_s=_planned(known, best.row),
        peak_reserved_bytes=best.outcome.peak_reserved_bytes,
    )


def _tried(known: Knowledge, one: Ended, stated: tuple[Forecast, float] | None) -> Tried:
    expected, remained = stated or (None, None)
    return Tried(
        number=one.trial.number,
        layout=one.trial.layout,
        options=one.trial.job.options.stated(),
        why=one.trial.why,
        outcome=one.outcome,
        planned_step_time_s=_planned(known, one.row),
        expected=expected,
        probability_faster_remains=remained,
    )


def _remains(known: Knowledge, options: TuneOptions, left: Untried) -> Remains:
    order = np.argsort(-left.faster, kind="stable")[:LIKELIEST]
    likeliest = [int(row) for row in order if left.faster[row] > 0]
    return Remains(
        probability_faster=left.probability,
        worth_fraction=options.worth,
        expected_gain_fraction=left.gain,
        untried=int(known.open_rows.sum()),
        likeliest=tuple(forecast(known, row, float(left.faster[row])) for row in likeliest),
    )


def forecast(known: Knowledge, row: int, faster: float | None = None) -> Forecast:
    """What is believed of one contender."""
    job, layout = known.contenders.at(row)
    mean, half = float(known.belief.log_seconds[row]), NORMAL_80 * float(known.belief.spread[row])
    return Forecast(
        layout=layout,
        options=job.options.stated(),
        step_time_s=exp(mean),
        step_time_low_s=exp(mean - half),
        step_time_high_s=exp(mean + half),
        probability_fits=min(1.0, float(known.runs[row])),
        probability_faster=faster,
    )


def scalar_ranges(known: Knowledge) -> tuple[ScalarRange, ...]:
    """What is believed of the machine."""
    belief, found = known.belief, []
    for place, name in enumerate(SCALARS):
        mean, spread = float(belief.scalars[place]), float(belief.scalars_spread[place])
        low, high = mean - NORMAL_80 * spread, mean + NORMAL_80 * spread
        ends = (mean, low, high)
        value = [max(0.0, x) for x in ends] if name == "fixed_seconds" else [exp(x) for x in ends]
        apart = spread < LEAST_LEARNT * float(known.prior.spreads[place])
        found.append(
            ScalarRange(
                name=name,
                meaning=MEANINGS[name],
                value=value[0],
                low=value[1],
                high=value[2],
                told_apart=bool(known.ended) and apart,
            )
        )
    return tuple(found)


def memory_factor(known: Knowledge) -> MemoryRange:
    """Measured peak over that of the model."""
    mean, spread = known.memory.error
    half = NORMAL_80 * spread
    return MemoryRange(value=exp(mean), low=exp(mean - half), high=exp(mean + half))


def _calibration(known: Knowledge, measured: Measured) -> Calibration | None:
    """The machine for the next search, from what was measured."""
    some = [
        Observation(
            id=f"trial-{one.trial.number}",
            source="plan tune",
            job=one.trial.job,
            layout=one.trial.layout,
            step_time_s=one.outcome.step_time_s,
        )
        for one in known.ended
        if one.outcome.step_time_s
    ]
    try:
        return calibrate(some, measured.profile) if some else None
    except PlanError:  # unlike node groups, or steps that are not what they are said to be
        return None
