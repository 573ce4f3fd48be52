"""Two plans: what is read of their comparison, and their memory."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator

from trainplan.cli.blocks import Chart
from trainplan.cli.pages.compare import HEADS
from trainplan.cli.pages.figures import DOWN, bars, chart, scatter, series
from trainplan.cli.pages.parts.breakdown import MEMORY_TERMS
from trainplan.cli.pages.parts.differences import fullest, memories_table
from trainplan.cli.pages.report.read import LayoutValue, ModelValue, Read
from trainplan.cli.words import gib
from trainplan.costmodel.base import GIB
from trainplan.costmodel.hardware import ClusterSpec
from trainplan.costmodel.step import Estimate
from trainplan.planner.questions.compare import FieldDifference, TermDifference


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


def memory_chart(found: Compared) -> Chart:
    """The fullest pipeline rank of both, part by part, and the capacity."""
    one, other = (side.estimate.memory for side in found.sides)
    ranks = [fullest(one), fullest(other)]
    hover = "%{fullData.name}: %{x:.1f} GiB<extra>%{y}</extra>"
    parts = [
        bars(name, HEADS, [getattr(rank, field) / GIB for rank in ranks], series(place), hover)
        for place, (field, name) in enumerate(MEMORY_TERMS.items())
    ]
    capacities = [memory.capacity_bytes for memory in (one, other)]
    line = {"width": 3, "color": "@limit"}
    limit = scatter(
        "capacity",
        [size / GIB for size in capacities],
        HEADS,
        "capacity: %{x:.1f} GiB<extra>%{y}</extra>",
        marker={"symbol": "line-ns", "size": 28, "color": "@limit", "line": line},
    )
    used = [
        f"{gib(rank.total_bytes)} of {gib(size)} GiB"
        for rank, size in zip(ranks, capacities, strict=True)
    ]
    return chart(
        "memory-of-both",
        "GiB of the fullest pipeline rank by what they hold, and the GPU's capacity",
        f"The first takes {used[0]}, the second {used[1]}.",
        [*parts, limit],
        memories_table(one, other, HEADS),
        x="GiB",
        barmode="stack",
        yaxis=DOWN,
        legend={"traceorder": "normal"},
        height=240,
    )
