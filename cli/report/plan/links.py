"""Ranks on nodes, and the traffic that each axis puts on the links of a node and on the network."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trainplan.cli.render.parts.breakdown import LABELS
from trainplan.cli.render.parts.text import gib, percent, seconds_like
from trainplan.cli.report.blocks import Block, Cell, Chart, Column, Paragraph, Section, Table
from trainplan.cli.report.charts import figure, folded, layout
from trainplan.cli.report.plan.ranks import ranks_chart
from trainplan.costmodel.base import GIB, PlanError
from trainplan.costmodel.measured import Measured
from trainplan.planner.plan import Plan
from trainplan.planner.questions.links import AxisLinks, axis_links

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
    return Section("links", "Ranks on nodes and their traffic", tuple(_blocks(plan, measured)))


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
    bars = [
        {
            "type": "bar",
            "orientation": "h",
            "name": name,
            "y": [folded(WORDS[one.axis], 16) for one in shown],
            "x": [value / GIB for value in values],
            "marker": {"color": colour},
            "text": [f"{gib(value)} GiB" if value else "" for value in values],
            "textposition": "auto",
            "hovertemplate": "%{y}: %{x:.4g} GiB<extra>%{fullData.name}</extra>",
        }
        for name, (colour, values) in tiers.items()
    ]
    return Chart(
        name="traffic",
        caption="GiB that one GPU of the busiest pipeline rank sends in a step, by axis and link",
        says=_says(shown),
        figure=figure(
            bars,
            layout(x="GiB a step and GPU", yaxis={"autorange": "reversed"}, barmode="group"),
        ),
        numbers=_table(plan, found),
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
    step, terms = plan.best.estimate.step_time_s, plan.best.estimate.terms
    rows = []
    for one in found:
        names = TERMS.get(one.axis, ())
        exposed = sum(getattr(terms, name) for name in names)
        told = ", ".join(LABELS[name] for name in names)
        rows.append(
            (
                Cell(WORDS[one.axis]),
                Cell(f"{one.size:,}", one.size),
                Cell(f"{one.stride:,}", one.stride),
                Cell(f"{one.inside:,}", one.inside),
                Cell(f"{one.domains:,.4g}", one.domains),
                *(
                    Cell("not counted") if value is None else Cell(gib(value), value)
                    for value in (one.inside_bytes, one.outside_bytes)
                ),
                Cell(seconds_like(exposed, step), exposed) if names else Cell("in another row"),
                Cell(percent(exposed / step), exposed / step) if names else Cell(""),
                Cell(told),
            )
        )
    columns = (
        Column("axis"),
        Column("ranks", numeric=True, hint="of a group"),
        Column("distance", numeric=True, hint="of neighbours, in ranks"),
        Column("in a domain", numeric=True, hint="members of a group on one node or NVLink domain"),
        Column("domains", numeric=True, hint="that a group spans"),
        Column("GiB inside", numeric=True),
        Column("GiB network", numeric=True),
        Column("exposed", numeric=True, hint="seconds of the step that nothing hides"),
        Column("of the step", numeric=True),
        Column("terms"),
    )
    return Table("Groups of ranks and what they send in a step", columns, tuple(rows))
