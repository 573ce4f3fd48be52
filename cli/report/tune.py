"""The report of `plan tune`: trials beside what was believed of them, and what remains possible."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trainplan.cli.blocks.blocks import (
    Block,
    Chart,
    Fact,
    Facts,
    Page,
    Paragraph,
    Section,
    Table,
)
from trainplan.cli.blocks.figures import DOWN, figure, folded, layout, line_at
from trainplan.cli.blocks.tables import (
    Columns,
    Row,
    Value,
    log_axis,
    number,
    seconds_cell,
    share_cell,
    table,
)
from trainplan.cli.render.tune import ENDINGS
from trainplan.cli.report.tune_trials import BAR, LEVEL, TunedPlan, ticks, trials_blocks
from trainplan.cli.words import gib, layout_line, percent, plural, seconds
from trainplan.planner.tuning.events import Finished, Forecast, ScalarRange, Tried

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
        Section("machine", "What was learnt of the machine", _machine(found.scalars)),
    )


def _certainty(found: Finished) -> Iterator[Paragraph]:
    settled = found.stop in ("settled", "all_tried")
    yield Paragraph(f"{found.says[:1].upper()}{found.says[1:]}.", "good" if settled else "doubtful")
    bad = [one for one in found.trials if one.outcome.ending != "measured"]
    if bad:
        said = [ENDINGS[one.outcome.ending] for one in bad]
        each = ", ".join(f"{said.count(name)} {name}" for name in dict.fromkeys(said))
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
        yield Chart(
            name="chance",
            caption=f"Probability that an untried layout is faster by more than {worth}, by trial",
            says=f"It fell from {percent(chances[0], 0)} to {percent(chances[-1], 0)}."
            if chances[-1] < chances[0]
            else f"It is {percent(chances[-1], 0)} after the last trial.",
            figure=figure(
                [_chances(known, chances)],
                layout(
                    x="after trial",
                    y="probability",
                    yaxis={"range": [0, 1.02], "tickformat": ".0%"},
                    xaxis=ticks(known),
                ),
            ),
            numbers=table(
                "Probability after each trial",
                (number("trial"), number("probability")),
                [[o.number, share_cell(c, 1)] for o, c in zip(known, chances, strict=True)],
            ),
            height=280,
        )
    if found.remains.likeliest:
        yield _untried(plan, found.remains.likeliest)
    else:
        yield Paragraph("No untried layout is left.")


def _chances(known: Sequence[Tried], chances: Sequence[float]) -> dict[str, object]:
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "x": [one.number for one in known],
        "y": list(chances),
        "line": {"color": "@violet"},
        "hovertemplate": "%{y:.1%}<extra></extra>",
    }


def _untried(plan: TunedPlan, likeliest: Sequence[Forecast]) -> Table:
    columns: Columns = (
        number("faster", "probability that it is faster by what is worth a trial"),
        number("expected"),
        number("low"),
        number("high"),
        number("fits", "probability that it runs and fits"),
        "layout",
    )
    rows: list[Row] = [
        [
            share_cell(one.probability_faster, 0),
            *(
                seconds_cell(x)
                for x in (one.step_time_s, one.step_time_low_s, one.step_time_high_s)
            ),
            share_cell(one.probability_fits, 0),
            layout_line(one.layout, plan.model),
        ]
        for one in likeliest
    ]
    return table(f"Untried layouts that are likeliest faster; {LEVEL} intervals", columns, rows)


def _machine(scalars: Sequence[ScalarRange]) -> Sequence[Block]:
    factors = [one for one in scalars if one.name != ADDED]
    apart = [one.meaning for one in scalars if one.told_apart]
    says = f"Told apart by the trials: {', '.join(apart)}." if apart else "None is told apart yet."
    trace = {
        "type": "scatter",
        "mode": "markers",
        "y": [folded(one.meaning, LONGEST_NAME) for one in factors],
        "x": [one.value for one in factors],
        "error_x": {
            "type": "data",
            "symmetric": False,
            "array": [one.high - one.value for one in factors],
            "arrayminus": [one.value - one.low for one in factors],
            **BAR,
        },
        "marker": {
            "size": 9,
            "color": ["@green" if one.told_apart else "@grey" for one in factors],
        },
        "hovertemplate": "%{x:.3g}<extra>%{y}</extra>",
    }
    return (
        Chart(
            name="scalars",
            caption=f"The machine over the one that was planned for, {LEVEL} intervals",
            says=says,
            figure=figure(
                [trace],
                layout(
                    x="factor",
                    xaxis=log_axis(
                        (x for one in factors for x in (one.low, one.high)), "{:g}".format
                    ),
                    yaxis=DOWN,
                    shapes=[line_at("x", 1.0, "@quiet")],
                ),
            ),
            numbers=_scalars_table(scalars),
            height=110 + 40 * len(factors),
        ),
    )


def _scalars_table(scalars: Sequence[ScalarRange]) -> Table:
    columns: Columns = (
        "scalar",
        number("value"),
        number("low"),
        number("high"),
        "told apart",
    )
    rows: list[Sequence[Value]] = [
        [one.meaning, one.value, one.low, one.high, "yes" if one.told_apart else "no"]
        for one in scalars
    ]
    return table(f"What is believed of the machine; {LEVEL} intervals", columns, rows)
