"""The layouts of the table: what each is, how much slower, and what makes it so."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from trainplan.cli.blocks import Block, Chart, Paragraph, Section, number, table
from trainplan.cli.pages.figures import (
    DOWN,
    bars,
    chart,
    folded,
    label,
    label_sides,
    line_at,
    scatter,
)
from trainplan.cli.pages.parts.alternatives import alternatives_table, is_answer, legend, ties_lines
from trainplan.cli.pages.parts.differences import SAME, change_text
from trainplan.cli.pages.report.plan.step import COLOUR_OF
from trainplan.cli.words import gib, layout_line, like
from trainplan.costmodel.base import GIB
from trainplan.planner.comparisons import TermDifference, term_differences
from trainplan.planner.plan import Candidate, Plan

GROUPS: Mapping[str, tuple[str, ...]] = {
    "products and attention": ("gemm", "attention"),
    "elementwise and launches": ("elementwise", "host"),
    "recomputation and offload": ("recompute", "offload"),
    "tensor parallel": ("tp_comm",),
    "context parallel": ("cp_comm",),
    "expert all-to-all": ("ep_comm",),
    "sharding, replicas and islands": ("fsdp_comm", "dp_comm", "outer_comm"),
    "bubble and messages of stages": ("bubble", "p2p"),
    "update": ("optimizer",),
    "overhead": ("overhead",),
}
"""Terms that the chart of differences shows as one, with the colour of the first."""
SHORT = {
    "gemm": "products",
    "elementwise": "elementwise work",
    "host": "kernel launches",
    "tp_comm": "tp comm",
    "cp_comm": "cp comm",
    "ep_comm": "expert all-to-all",
    "fsdp_comm": "sharding comm",
    "bubble": "bubble",
    "p2p": "stage messages",
    "dp_comm": "dp comm",
    "outer_comm": "syncs of islands",
    "optimizer": "update",
    "offload": "offload",
    "overhead": "overhead",
}
"""Terms in the table; the others are called as they are."""
MOST_CAUSES = 3
"""Terms named of a layout; the chart has all."""
MOST_WORDS, LABEL_SIZE = 2, 11
"""Axes of a layout at its point, and pixels of their letters."""
ROUNDING = 1e-9
"""Of the answer's step: less is what sums of floats differ by."""
SEEN = 0.002
"""Of the answer's step: a smaller difference is not named."""


def alternatives_section(plan: Plan) -> Section:
    """Table, differences by term, and step against memory."""
    return Section("alternatives", "Alternatives", tuple(_blocks(plan)))


def _blocks(plan: Plan) -> Iterator[Block]:
    if not plan.certificate.alternatives_complete:
        yield Paragraph("The time limit struck: the table may miss alternatives.", "doubtful")
    yield from (Paragraph(line) for line in ties_lines(plan))
    yield alternatives_table(plan, partial(causes, plan))
    yield from (Paragraph(line) for line in legend(plan))
    others = [one for one in plan.candidates if one.layout != plan.best.layout]
    if others:
        yield _differences(plan, others)
        yield _scatter(plan)


def differences(plan: Plan, candidate: Candidate) -> tuple[TermDifference, ...]:
    """Seconds by which terms of a layout differ from the answer's; they sum to the difference."""
    return term_differences(plan.best.estimate, candidate.estimate)


def causes(plan: Plan, candidate: Candidate) -> str:
    """The terms that take most more than the answer's, and those that take most less."""
    step = plan.best.estimate.step_time_s
    if is_answer(plan, candidate):
        return "the answer"
    seen = [one for one in differences(plan, candidate) if abs(one.difference_s) >= SEEN * step]
    named = [
        f"{SHORT.get(one.term, one.term)} {one.difference_s / step * 100:+.1f}\u00a0%"
        for one in seen
    ]
    more = len(named) - MOST_CAUSES
    rest = f", {more} more" if more > 0 else ""
    return ", ".join(named[:MOST_CAUSES]) + rest if named else "no term differs by much"


def _differences(plan: Plan, others: Sequence[Candidate]) -> Chart:
    names = [f"{one.rank}" for one in others]
    every = {name: [_of_group(plan, one, name) for one in others] for name in GROUPS}
    hover = "layout %{y}: %{x:+.3g} s<extra>%{fullData.name}</extra>"
    drawn = [
        bars(name, names, values, COLOUR_OF[GROUPS[name][0]], hover)
        for name, values in every.items()
        if any(values)
    ]
    shown = {name: values for name, values in every.items() if any(values)}
    change = "{:+.3g} s".format
    step = plan.best.estimate.step_time_s
    rows = (
        (
            *(one.rank, *(values[place] for values in shown.values())),
            one.estimate.step_time_s - step,
        )
        for place, one in enumerate(others)
    )
    columns = (number("#"), *(number(name, change) for name in (*shown, "together")))
    return chart(
        "differences",
        "Seconds that each layout takes more (right) or less (left) than the answer, by cause; "
        "both sides together are its difference",
        _worst_cause(every),
        drawn,
        table("Seconds against the answer", columns, rows),
        x="seconds against the answer",
        y="layout",
        barmode="relative",
        yaxis={**DOWN, "type": "category"},
        xaxis={"zeroline": True, "zerolinecolor": "@text"},
        bargap=0.3,
        height=120 + 34 * len(others),
    )


def _of_group(plan: Plan, one: Candidate, group: str) -> float:
    terms = GROUPS[group]
    found = sum(row.difference_s for row in differences(plan, one) if row.term in terms)
    return found if abs(found) > ROUNDING * plan.best.estimate.step_time_s else 0.0


def _worst_cause(by_group: Mapping[str, Sequence[float]]) -> str:
    """What costs the alternatives most, in a sentence."""
    totals = {name: sum(max(0.0, value) for value in values) for name, values in by_group.items()}
    worst = max(totals, key=lambda name: totals[name])
    return f"What most sets the alternatives back is {worst}."


def _scatter(plan: Plan) -> Chart:
    best, shown = plan.best.estimate, list(plan.candidates)
    others = [one for one in shown if not is_answer(plan, one)]
    names = {one.rank: f"{one.rank} {_short(plan, one)}".strip() for one in shown}
    places = [(one.estimate.step_time_s, one.estimate.memory.peak_reserved_bytes) for one in shown]
    sides = dict(zip(names, label_sides(places, [*names.values()]), strict=True))
    points = [
        scatter(
            name,
            [one.estimate.step_time_s for one in some],
            [one.estimate.memory.peak_reserved_bytes / GIB for one in some],
            "%{customdata}<br>%{x:.4g} s, %{y:.1f} GiB<extra></extra>",
            mode="markers+text",
            text=[names[one.rank] for one in some],
            meta=[str(one.rank) for one in some],
            textposition=[sides[one.rank] for one in some],
            textfont={"size": LABEL_SIZE},
            cliponaxis=False,
            customdata=[_hover(plan, one) for one in some],
            marker={"color": colour, "size": 11, "symbol": symbol},
        )
        for name, colour, symbol, some in (
            ("the answer", "@green", "star", [o for o in shown if is_answer(plan, o)]),
            ("near tie", "@orange", "circle", [o for o in others if o.near_tie]),
            ("slower", "@blue", "circle", [o for o in others if not o.near_tie]),
        )
        if some
    ]
    rows = (
        (
            *(one.rank, one.estimate.step_time_s, one.estimate.memory.peak_reserved_bytes),
            change_text(one.layout, plan.best.layout, plan.job.model),
        )
        for one in shown
    )
    sizes = (number("#"), number("step", like(best.step_time_s)), number("GiB", gib))
    return chart(
        "speed-and-memory",
        "Step time and memory of the fullest GPU of each layout of the table",
        f"{_unbeaten(plan)} At each point are the first axes in which it differs from the answer; "
        "the dotted line is what a GPU has.",
        points,
        table("Step and memory", (*sizes, "against the answer"), rows),
        x="seconds a step",
        y="GiB",
        shapes=[line_at("y", best.memory.capacity_bytes / GIB)],
    )


def _short(plan: Plan, one: Candidate) -> str:
    """The first axes in which a layout differs from the answer."""
    change = change_text(one.layout, plan.best.layout, plan.job.model)
    return "" if change == SAME else label(", ".join(change.split(", ")[:MOST_WORDS]))


def _hover(plan: Plan, one: Candidate) -> str:
    change = change_text(one.layout, plan.best.layout, plan.job.model)
    words = layout_line(one.layout, plan.job.model) if change == SAME else change
    return f"{label(str(one.rank))}: {folded(words, 40)}"


def _unbeaten(plan: Plan) -> str:
    """Which layouts of the table are faster or need less memory than every other."""
    points = [
        (one.rank, one.estimate.step_time_s, one.estimate.memory.peak_reserved_bytes)
        for one in plan.candidates
    ]
    front = [
        str(rank)
        for rank, step, used in points
        if not any(s <= step and u <= used and (s, u) != (step, used) for _, s, u in points)
    ]
    return f"No layout of the table is both faster and smaller than {', '.join(front)}."
