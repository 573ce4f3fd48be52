"""The trials of a tuning run: what is read of its plan, and the trials in order."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from math import inf
from typing import Annotated

from pydantic import BeforeValidator

from trainplan.cli.blocks import Block, Table, number, table
from trainplan.cli.pages.figures import chart, label, scatter
from trainplan.cli.pages.report.read import ModelValue, Read
from trainplan.cli.pages.tune import ENDINGS, LEVEL, trials_table
from trainplan.cli.words import layout_line, plural, seconds
from trainplan.costmodel.hardware import ClusterSpec
from trainplan.planner.tuning import Finished, Tried

ALONGSIDE = 0.12
"""Trials that what was believed stands to the left of what was measured."""
BAR = {"thickness": 1.5, "width": 5, "color": "@quiet"}
"""How an interval is drawn."""
FEW_TRIALS = 25
"""Each has a tick of its own."""


def _result(value: object) -> object:
    """What a plan says of its tuning, as the event it was."""
    return {**value, "calibration": None} if isinstance(value, Mapping) else value


class TunedPlan(Read):
    """The document of a tuned plan, in the folder of `plan tune`."""

    model: ModelValue
    cluster: ClusterSpec
    tuned: Annotated[Finished, BeforeValidator(_result)]


def trials_blocks(plan: TunedPlan) -> Iterator[Block]:
    """Trials in order, beside what was believed of each before it."""
    found = plan.tuned
    measured = [one for one in found.trials if one.outcome.step_time_s]
    says = f"{len(measured)} of {plural(len(found.trials), 'trial')} measured"
    if found.best:
        first = found.best.number
        says += f"; the fastest is trial {first}, with {seconds(found.best.measured_step_time_s)}"
    yield chart(
        "trials-in-order",
        "Seconds of a step by trial: believed before it, measured in it, best so far",
        f"{says}.",
        _trial_traces(plan),
        _believed(found.trials),
        x="trial",
        y="seconds of a step",
        xaxis=ticks(found.trials),
        height=420,
    )
    yield trials_table(plan.model, found)


def _believed_of(one: Tried) -> tuple[float, float, float]:
    """Seconds, and the ends of the interval; without one where it ran in an earlier run."""
    was = one.expected
    if was is None:
        return (one.planned_step_time_s,) * 3
    return was.step_time_s, was.step_time_low_s, was.step_time_high_s


def _trial_traces(plan: TunedPlan) -> Iterator[dict[str, object]]:
    trials = plan.tuned.trials
    believed = [_believed_of(one) for one in trials]
    yield _points(
        f"believed before, {LEVEL}",
        [one.number - ALONGSIDE for one in trials],
        believed,
        marker={"symbol": "circle-open", "size": 8, "color": "@grey"},
        text=_hovers(plan, trials),
    )
    measured = [one for one in trials if one.outcome.step_time_s]
    yield _points(
        "measured, lowest to highest step",
        [one.number for one in measured],
        [_measured_of(one) for one in measured],
        marker={"size": 9, "color": "@blue"},
        text=_hovers(plan, measured),
    )
    for ending in dict.fromkeys(one.outcome.ending for one in trials if one not in measured):
        some = [one for one in trials if one.outcome.ending == ending]
        symbol, colour = ("x", "@limit") if ending == "out_of_memory" else ("cross", "@orange")
        yield scatter(
            ENDINGS[ending],
            [one.number for one in some],
            [_believed_of(one)[0] for one in some],
            "%{text}<extra>%{fullData.name}</extra>",
            marker={"symbol": symbol, "size": 11, "color": colour},
            text=_hovers(plan, some),
        )
    yield _incumbent(trials)


def _measured_of(one: Tried) -> tuple[float, float, float]:
    out = one.outcome
    step = out.step_time_s or 0.0
    return step, out.lowest_s or step, out.highest_s or step


def _points(
    name: str, x: Sequence[float], values: Sequence[tuple[float, float, float]], **more: object
) -> dict[str, object]:
    """Points with their intervals."""
    error = {
        "type": "data",
        "symmetric": False,
        "array": [high - value for value, _, high in values],
        "arrayminus": [value - low for value, low, _ in values],
        **BAR,
    }
    hover = "%{y:.4g} s<br>%{text}<extra>%{fullData.name}</extra>"
    return scatter(name, x, (value for value, _, _ in values), hover, error_y=error, **more)


def _incumbent(trials: Sequence[Tried]) -> dict[str, object]:
    best = list(accumulate((one.outcome.step_time_s or inf for one in trials), min))
    some = [(one.number, step) for one, step in zip(trials, best, strict=True) if step < inf]
    line = {"color": "@green", "shape": "hv", "dash": "dot"}
    hover = "best so far: %{y:.4g} s<extra></extra>"
    x, y = zip(*some, strict=True) if some else ((), ())
    return scatter("best so far", x, y, hover, mode="lines", line=line)


def _hovers(plan: TunedPlan, trials: Sequence[Tried]) -> list[str]:
    return [
        label(layout_line(one.layout, plan.model))
        + (f"<br>{label(one.outcome.reason[:120])}" if one.outcome.reason else "")
        for one in trials
    ]


def _believed(trials: Sequence[Tried]) -> Table:
    heads = ("believed", "low", "high", "measured", "lowest", "highest")
    rows = (
        (one.number, *_believed_of(one), *(x or None for x in _measured_of(one))) for one in trials
    )
    columns = (number("trial"), *(number(head, seconds) for head in heads))
    return table("Seconds of a step by trial", columns, rows)


def ticks(trials: Sequence[Tried]) -> dict[str, object]:
    """Of an axis of trials."""
    return {"dtick": 1 if len(trials) <= FEW_TRIALS else 5}
