"""Two plans: what is read of their comparison, and their memory."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator

from trainplan.cli.blocks.blocks import Cell, Chart
from trainplan.cli.blocks.figures import DOWN, bars, figure, layout
from trainplan.cli.blocks.tables import Columns, cell, gib_cell, number, series, table
from trainplan.cli.report.plan.memory import TERMS
from trainplan.cli.report.read import LayoutValue, ModelValue, Read
from trainplan.cli.words import gib
from trainplan.costmodel.base import GIB
from trainplan.costmodel.hardware import ClusterSpec
from trainplan.costmodel.step import Estimate
from trainplan.costmodel.step.results import RankMemory
from trainplan.planner.questions.compare import FieldDifference, TermDifference

HEADS = ("first", "second")


def _with_ranks(estimate: Estimate) -> Estimate:
    if not estimate.memory.pipeline_ranks:
        raise ValueError("memory.pipeline_ranks is empty")
    return estimate


class ComparedSide(Read):
    """One of the two plans."""

    model: ModelValue
    cluster: ClusterSpec
    runtime: str
    layout: LayoutValue
    estimate: Annotated[Estimate, AfterValidator(_with_ranks)]


class Compared(Read):
    """The document of `plan compare --json`."""

    verdict: str
    throughput_ratio: float
    probability_second_faster: float | None
    job: tuple[FieldDifference, ...]
    layout: tuple[FieldDifference, ...]
    terms: tuple[TermDifference, ...]
    first: ComparedSide
    second: ComparedSide

    @property
    def sides(self) -> tuple[ComparedSide, ComparedSide]:
        """Both, in their order."""
        return self.first, self.second


def _fullest(side: ComparedSide) -> RankMemory:
    ranks = side.estimate.memory.pipeline_ranks
    return max(ranks, key=lambda rank: rank.total_bytes)


def memory_chart(found: Compared) -> Chart:
    """The fullest pipeline rank of both, part by part, and the capacity."""
    ranks = [_fullest(side) for side in found.sides]
    capacities = [side.estimate.memory.capacity_bytes for side in found.sides]
    values = {name: [getattr(rank, field) for rank in ranks] for field, name in TERMS.items()}
    hover = "%{fullData.name}: %{x:.1f} GiB<extra>%{y}</extra>"
    parts = [
        bars(name, HEADS, [one / GIB for one in both], series(place), hover)
        for place, (name, both) in enumerate(values.items())
    ]
    limit = {
        "type": "scatter",
        "mode": "markers",
        "name": "capacity",
        "y": list(HEADS),
        "x": [one / GIB for one in capacities],
        "marker": {
            "symbol": "line-ns",
            "size": 28,
            "color": "@limit",
            "line": {"width": 3, "color": "@limit"},
        },
        "hovertemplate": "capacity: %{x:.1f} GiB<extra>%{y}</extra>",
    }
    totals = [rank.total_bytes for rank in ranks]
    rows = [(name, *both) for name, both in values.items()]
    rows += [("together", *totals), ("capacity", *capacities)]
    columns: Columns = ("part", *map(number, HEADS), number("difference"))
    used = [f"{gib(one)} of {gib(of)} GiB" for one, of in zip(totals, capacities, strict=True)]
    return Chart(
        name="memory-of-both",
        caption="GiB of the fullest pipeline rank by what they hold, and the GPU's capacity",
        says=f"The first takes {used[0]}, the second {used[1]}.",
        figure=figure(
            [*parts, limit],
            layout(
                x="GiB",
                barmode="stack",
                yaxis=DOWN,
                legend={"traceorder": "normal"},
            ),
        ),
        numbers=table(
            "GiB of the fullest pipeline rank",
            columns,
            ((name, *(gib_cell(x) for x in (a, b)), _gained(b - a)) for name, a, b in rows),
            len(TERMS),
        ),
        height=240,
    )


def _gained(value: float) -> Cell:
    return cell(value / GIB, f"{value / GIB:+.1f}")
