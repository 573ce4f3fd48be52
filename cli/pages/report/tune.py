"""The report of `plan tune`: trials against what was believed of them, and what is still open."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from math import inf
from typing import Annotated

from pydantic import BeforeValidator

from trainplan.cli.blocks import Block, Fact, Facts, Page, Paragraph, Section, Table, number, table
from trainplan.cli.pages.figures import DOWN, chart, folded, label, line_at, log_axis, scatter
from trainplan.cli.pages.report.read import ModelValue, Read
from trainplan.cli.pages.tune import (
    ENDINGS,
    LEVEL,
    noise_lines,
    scalars_table,
    trials_table,
    untried_table,
)
from trainplan.cli.words import gib, layout_line, percent, plural, seconds
from trainplan.costmodel.hardware import ClusterSpec
from trainplan.planner.tuning import Finished, ScalarRange, Tried

ALONGSIDE = 0.12
"""Trials, what was believed left of what was measured."""
BAR = {"thickness": 1.5, "width": 5, "color": "@quiet"}
"""How an interval is drawn."""
FEW_TRIALS = 25
"""Each has a tick of its own."""


def _result(value: object) -> object:
    """What a plan states of its tuning, as the event it was."""
    return {**value, "calibration": None} if isinstance(value, Mapping) else value


class TunedPlan(Read):
    """The document of a tuned plan, in the folder of `plan tune`."""

    model: ModelValue
    cluster: ClusterSpec
    tuned: Annotated[Finished, BeforeValidator(_result)]


def trials_blocks(plan: TunedPlan) -> Iterator[Block]:
    """Trials in order, against what was believed of each before it."""
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
    hover = "%{y:.4g} s<br>%{text}<extra>%{fullData.name}</extra>"
    y = (value for value, _, _ in values)
    return scatter(name, x, y, hover, error_y=_intervals(values), **more)


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


ADDED = "fixed_seconds"
"""The scalar that is no factor."""
LONGEST_NAME = 22
"""Characters of a line of a name on an axis."""


def tuned_page(plan: TunedPlan) -> Page:
    """The report of a tuning run."""
    found = plan.tuned
    best = found.best
    if best is None:
        answer = f"No trial of {len(found.trials)} was measured."
    else:
        step = seconds(best.measured_step_time_s)
        answer = f"{layout_line(best.layout, plan.model)}: {step} a step measured"
    return Page(
        title=f"{plan.model.name} on {plan.cluster.name}, tuned",
        answer=answer,
        certainty=tuple(_certainty(found)),
        facts=Facts(tuple(_facts(found))),
        sections=tuned_sections(plan),
    )


def tuned_sections(plan: TunedPlan) -> tuple[Section, ...]:
    """Trials, what remains, the machine."""
    found = plan.tuned
    return (
        Section("trials", "Trials", tuple(trials_blocks(plan))),
        Section("remains", "What remains possible", tuple(_remains(plan))),
        Section("machine", "What was learnt of the machine", tuple(_machine(found.scalars))),
    )


def _certainty(found: Finished) -> Iterator[Paragraph]:
    settled = found.stop in ("settled", "all_tried")
    yield Paragraph(f"{found.says[:1].upper()}{found.says[1:]}.", "good" if settled else "doubtful")
    yield from (Paragraph(line, "doubtful") for line in noise_lines(found))
    bad = [one for one in found.trials if one.outcome.ending != "measured"]
    if bad:
        written = [ENDINGS[one.outcome.ending] for one in bad]
        each = ", ".join(f"{written.count(name)} {name}" for name in dict.fromkeys(written))
        yield Paragraph(f"Not measured: {each}, of {plural(len(found.trials), 'trial')}.")


def _facts(found: Finished) -> Iterator[Fact]:
    best = found.best
    if best:
        planned = f"{seconds(best.planned_step_time_s)} planned"
        yield Fact("step measured", seconds(best.measured_step_time_s), planned)
        yield Fact("found in trial", str(best.number), f"of {len(found.trials)}")
        if best.peak_reserved_bytes:
            yield Fact("GiB measured", gib(best.peak_reserved_bytes))
    remains = found.remains
    chance = percent(remains.probability_faster, 0)
    yield Fact(
        "something faster remains",
        chance,
        f"by more than {percent(remains.worth_fraction, 0)}, of {remains.untried:,} untried",
    )
    factor = found.memory_factor
    yield Fact(
        "measured over modelled memory",
        f"{factor.value:.2f}",
        f"{LEVEL}: {factor.low:.2f} to {factor.high:.2f}",
    )
    spent = sum(one.outcome.seconds for one in found.trials)
    yield Fact("spent in trials", seconds(spent))


def _remains(plan: TunedPlan) -> Iterator[Block]:
    found = plan.tuned
    worth = percent(found.remains.worth_fraction, 0)
    known = [one for one in found.trials if one.probability_faster_remains is not None]
    if known:
        chances = [one.probability_faster_remains or 0.0 for one in known]
        trials, last = [one.number for one in known], percent(chances[-1], 0)
        columns = (number("trial"), number("probability", percent))
        line = {"mode": "lines+markers", "line": {"color": "@violet"}}
        yield chart(
            "chance",
            f"Probability that an untried layout is faster by more than {worth}, by trial",
            f"It fell from {percent(chances[0], 0)} to {last}."
            if chances[-1] < chances[0]
            else f"It is {last} after the last trial.",
            [scatter("", trials, chances, "%{y:.1%}<extra></extra>", **line)],
            table("Probability after each trial", columns, zip(trials, chances, strict=True)),
            x="after trial",
            y="probability",
            yaxis={"range": [0, 1.02], "tickformat": ".0%"},
            xaxis=ticks(known),
            height=280,
        )
    if found.remains.likeliest:
        yield untried_table(plan.model, found.remains.likeliest)
    else:
        yield Paragraph("No untried layout is left.")


def _machine(scalars: Sequence[ScalarRange]) -> Iterator[Block]:
    factors = [one for one in scalars if one.name != ADDED]
    apart = [one.meaning for one in scalars if one.told_apart]
    says = f"Identified by the trials: {', '.join(apart)}." if apart else "None is identified yet."
    drawn = scatter(
        "",
        [one.value for one in factors],
        [folded(one.meaning, LONGEST_NAME) for one in factors],
        "%{x:.3g}<extra>%{y}</extra>",
        error_x=_intervals([(one.value, one.low, one.high) for one in factors]),
        marker={"size": 9, "color": ["@green" if one.told_apart else "@grey" for one in factors]},
    )
    ends = [end for one in factors for end in (one.low, one.high)]
    yield chart(
        "scalars",
        f"The machine over the one that was planned for, {LEVEL} intervals",
        says,
        [drawn],
        scalars_table(scalars),
        x="factor",
        xaxis=log_axis(ends, "{:g}".format),
        yaxis=DOWN,
        shapes=[line_at("x", 1.0, "@quiet")],
        height=110 + 40 * len(factors),
    )


def _intervals(values: Sequence[tuple[float, float, float]]) -> dict[str, object]:
    """Of numbers, each with its low and its high end."""
    return {
        "type": "data",
        "symmetric": False,
        "array": [high - value for value, _, high in values],
        "arrayminus": [value - low for value, low, _ in values],
        **BAR,
    }
