"""Memory of every pipeline rank against what a GPU has; of the host and the drives of a node."""

from collections.abc import Iterator, Mapping, Sequence

from trainplan.cli.blocks import Block, Chart, Fact, Facts, Paragraph, Section
from trainplan.cli.pages.figures import SERIES, chart, scatter
from trainplan.cli.pages.parts.breakdown import MEMORY_TERMS, ranks_memory
from trainplan.cli.pages.parts.headline import fit_line
from trainplan.cli.pages.parts.lanes import drive_life_lines
from trainplan.cli.words import gib, percent, plural
from trainplan.costmodel.base import GIB
from trainplan.costmodel.calibration import machine_for
from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import SCHEDULE_NAMES, Layout
from trainplan.costmodel.pipeline import group_jobs, rank_groups
from trainplan.costmodel.step import Estimate, NodeMemory, RankMemory
from trainplan.planner.plan import Plan


def memory_section(plan: Plan, capacities: Sequence[float] = ()) -> Section:
    """Bytes of every rank by what takes them.

    `capacities` are bytes of a GPU of each pipeline rank, where ranks are on different GPUs.
    """
    return Section("memory", "Memory", tuple(_blocks(plan, capacities)))


def rank_capacities(job: Job, layout: Layout) -> tuple[float, ...]:
    """Bytes of a GPU of each pipeline rank, where stages name their node groups; else none.

    Source: as `Estimate.memory`, whose capacity is that of the rank with least to spare.
    """
    stages = layout.stages or ()
    if not any(stage.group for stage in stages):
        return ()
    groups = rank_groups(stages, SCHEDULE_NAMES.index(layout.schedule), layout.pp)
    own = [machine_for(one).memory_bytes for one in group_jobs(job)]
    return tuple(own[group] for group in groups.tolist())


def _blocks(plan: Plan, capacities: Sequence[float]) -> Iterator[Block]:
    best, margin = plan.best, plan.memory_margin
    says = fit_line(best.estimate.memory, plan.job.model)
    yield ranks_chart(
        "memory-by-rank", "", best.layout, best.estimate, says, capacities=capacities, margin=margin
    )
    yield from _node_blocks(best.estimate)
    if plan.job.reserve_bytes:
        reserved = gib(plan.job.reserve_bytes)
        yield Paragraph(f"{reserved} GiB of every GPU are left to another tenant: not counted.")


def ranks_chart(
    name: str,
    whose: str,
    layout: Layout,
    estimate: Estimate,
    says: str,
    *,
    capacities: Sequence[float] = (),
    margin: float = 0.0,
    highest: float | None = None,
    half: bool = False,
) -> Chart:
    """GiB of every rank of `whose` plan by what takes them, on an axis up to `highest` bytes."""
    memory = estimate.memory
    ranks = memory.pipeline_ranks
    of = tuple(capacities) or (memory.capacity_bytes,) * len(ranks)
    fullest = min(ranks, key=lambda rank: of[rank.rank] - rank.total_bytes)
    share = plural(layout.tp * layout.cp * layout.dp, "GPU")
    axis: dict[str, object] = {"range": [-0.5, len(ranks) - 0.5], "type": "linear"}
    if len(ranks) <= MOST_TICKS:
        axis["dtick"] = 1
    return chart(
        name,
        f"Peak GiB on a GPU of each pipeline rank{whose} ({share} a rank)",
        f"Pipeline rank {fullest.rank} has least to spare: {gib(fullest.total_bytes)} of "
        f"{gib(of[fullest.rank])} GiB. {says}",
        _traces(ranks, of, margin),
        ranks_memory(ranks, of),
        x="pipeline rank",
        y="GiB",
        barmode="stack",
        xaxis=axis,
        yaxis={"range": [0, highest / GIB]} if highest else {},
        bargap=GAPS.get(len(ranks), 0.3),
        legend={"traceorder": "normal"},
        half=half,
    )


def _traces(
    ranks: Sequence[RankMemory], capacities: Sequence[float], margin: float
) -> Iterator[Mapping[str, object]]:
    for (field, word), colour in zip(MEMORY_TERMS.items(), SERIES, strict=False):
        yield {
            "type": "bar",
            "name": word,
            "x": list(range(len(ranks))),
            "y": [getattr(rank, field) / GIB for rank in ranks],
            "marker": {"color": colour},
            "hovertemplate": "rank %{x}: %{y:.1f} GiB<extra>%{fullData.name}</extra>",
        }
    edges = [-0.5 + place for place in range(len(ranks) + 1)]
    margin_word = f"with a margin of {percent(margin, 0)}"
    lines = (("a GPU has", 1.0, "solid"), (margin_word, 1 - margin, "dash"))
    for word, part, dash in lines if margin else lines[:1]:
        yield scatter(
            word,
            edges,
            [part * one / GIB for one in (*capacities, capacities[-1])],
            "%{y:.1f} GiB<extra>%{fullData.name}</extra>",
            mode="lines",
            line={"color": "@limit", "dash": dash, "width": 2, "shape": "hv"},
        )


GAPS = {1: 0.75, 2: 0.6, 3: 0.45}
"""Share of the width that stays free between the bars of few ranks."""
MOST_TICKS = 24
"""More ranks than that have no number each."""


def _node_blocks(estimate: Estimate) -> Iterator[Block]:
    """Of a node; nothing where all is on the GPUs."""
    node = estimate.memory.host
    facts = tuple(_node_facts(node))
    if facts:
        yield Facts(facts)
    yield from (Paragraph(line) for line in drive_life_lines(estimate))


def _node_facts(node: NodeMemory) -> Iterator[Fact]:
    if node.host_bytes:
        known = node.host_capacity_bytes
        note = f"of {gib(known)} GiB" if known else "how much it has is not known, nor checked"
        yield Fact(
            "host memory of a node",
            f"{gib(node.host_bytes)} GiB",
            note,
            "plain" if node.host_fits else "bad",
        )
    if node.drive_bytes:
        note = f"of {gib(node.drive_capacity_bytes or 0.0)} GiB"
        yield Fact(
            "drives of a node",
            f"{gib(node.drive_bytes)} GiB",
            note,
            "plain" if node.drive_fits else "bad",
        )
