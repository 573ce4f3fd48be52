"""The report of `plan tune`: trials beside what was believed of them, and what remains possible."""

from collections.abc import Iterator, Sequence

from trainplan.cli.blocks import Block, Fact, Facts, Page, Paragraph, Section, number, table
from trainplan.cli.pages.figures import DOWN, chart, folded, line_at, log_axis, scatter
from trainplan.cli.pages.report.tune_trials import BAR, TunedPlan, ticks, trials_blocks
from trainplan.cli.pages.tune import ENDINGS, LEVEL, scalars_table, untried_table
from trainplan.cli.words import gib, layout_line, percent, plural, seconds
from trainplan.planner.tuning import Finished, ScalarRange

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
    says = f"Told apart by the trials: {', '.join(apart)}." if apart else "None is told apart yet."
    error = {
        "type": "data",
        "symmetric": False,
        "array": [one.high - one.value for one in factors],
        "arrayminus": [one.value - one.low for one in factors],
        **BAR,
    }
    drawn = scatter(
        "",
        [one.value for one in factors],
        [folded(one.meaning, LONGEST_NAME) for one in factors],
        "%{x:.3g}<extra>%{y}</extra>",
        error_x=error,
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
