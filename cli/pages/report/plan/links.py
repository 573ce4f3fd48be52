"""Ranks on nodes, and the traffic that each axis puts on the links of a node and on the network."""

from collections.abc import Iterator, Sequence

from trainplan.cli.blocks import Block, Chart, Paragraph, Row, Section, Table, number, table
from trainplan.cli.pages.figures import DOWN, bars, chart, folded
from trainplan.cli.pages.parts.breakdown import LABELS
from trainplan.cli.pages.report.plan.ranks import ranks_chart
from trainplan.cli.words import gib, like, percent
from trainplan.costmodel.base import GIB, PlanError
from trainplan.costmodel.calibration import Measured
from trainplan.costmodel.step import Estimate
from trainplan.planner.explanations import AxisLinks, axis_links
from trainplan.planner.plan import Plan

TERMS = {
    "tp": ("tp_comm",),
    "cp": ("cp_comm",),
    "ep": ("ep_comm",),
    "pp": ("p2p",),
    "dp": ("fsdp_comm", "dp_comm"),
}
"""Terms of the step that an axis adds to."""
WORDS = {
    "tp": "tensor parallel",
    "cp": "context parallel",
    "ep": "experts",
    "etp": "tensor parallel of experts",
    "pp": "pipeline",
    "dp": "replicas and their shards",
    "expert dp": "replicas of experts",
}


def links_section(plan: Plan, measured: Measured) -> Section:
    """The map, then who sends how much over what."""
    return Section("links", "Ranks and traffic", tuple(_blocks(plan, measured)))


def _blocks(plan: Plan, measured: Measured) -> Iterator[Block]:
    job, best = plan.job, plan.best.layout
    yield ranks_chart(job.cluster, best, plan.placement.nodes if plan.placement else ())
    try:
        found = axis_links(job, best, measured)
    except PlanError as error:
        yield Paragraph(f"Traffic is not counted: {error}.", "doubtful")
        return
    if not found:
        yield Paragraph("One GPU sends nothing to another.")
        return
    if any(one.inside_bytes for one in found) or any(one.outside_bytes for one in found):
        yield _chart(plan, found)
    else:
        yield _table(plan, found)
    missing = [WORDS[one.axis] for one in found if one.inside_bytes is None]
    if missing:
        yield Paragraph(f"Bytes are not counted here of: {', '.join(missing)}. Seconds are whole.")


def _chart(plan: Plan, found: Sequence[AxisLinks]) -> Chart:
    shown = [one for one in found if one.inside_bytes is not None]
    tiers = {
        "links within its domain": ("@green", [one.inside_bytes or 0.0 for one in shown]),
        "network adapter": ("@orange", [one.outside_bytes or 0.0 for one in shown]),
    }
    drawn = [
        bars(
            name,
            [folded(WORDS[one.axis], 16) for one in shown],
            [value / GIB for value in values],
            colour,
            "%{y}: %{x:.4g} GiB<extra>%{fullData.name}</extra>",
            text=[f"{gib(value)} GiB" if value else "" for value in values],
            textposition="auto",
        )
        for name, (colour, values) in tiers.items()
    ]
    return chart(
        "traffic",
        "GiB that one GPU of the busiest pipeline rank sends in a step, by axis and link",
        _says(shown),
        drawn,
        _table(plan, found),
        x="GiB a step and GPU",
        yaxis=DOWN,
        barmode="group",
        height=110 + 56 * len(shown),
    )


def _says(shown: Sequence[AxisLinks]) -> str:
    inside = [WORDS[one.axis] for one in shown if one.domains == 1]
    across = [WORDS[one.axis] for one in shown if one.domains > 1]
    parts = []
    if inside:
        parts.append(f"Within one scale-up domain: {', '.join(inside)}.")
    if across:
        parts.append(f"Across domains: {', '.join(across)}.")
    return " ".join(parts)


def _table(plan: Plan, found: Sequence[AxisLinks]) -> Table:
    step = plan.best.estimate.step_time_s
    columns = (
        "axis",
        number("ranks", hint="of a group"),
        number("distance", hint="of neighbours, in ranks"),
        number("in a domain", hint="members of a group on one node or NVLink domain"),
        number("domains", hint="that a group spans"),
        number("GiB inside", gib),
        number("GiB network", gib),
        number("exposed", like(step), "seconds of the step that nothing hides"),
        number("of the step", percent),
        "terms",
    )
    rows = [_row(plan.best.estimate, one) for one in found]
    return table("Groups of ranks and what they send in a step", columns, rows)


def _row(estimate: Estimate, one: AxisLinks) -> Row:
    step, names = estimate.step_time_s, TERMS.get(one.axis, ())
    exposed = sum(getattr(estimate.terms, name) for name in names)
    sent = (
        "not counted" if value is None else value for value in (one.inside_bytes, one.outside_bytes)
    )
    stated: Row = (exposed, exposed / step) if names else ("in another row", "")
    words = ", ".join(LABELS[name] for name in names)
    return WORDS[one.axis], one.size, one.stride, one.inside, one.domains, *sent, *stated, words
