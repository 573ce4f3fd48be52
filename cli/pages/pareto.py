"""The choices between two objectives as the page `plan search --pareto` prints."""

from collections.abc import Iterator, Sequence
from typing import TypeVar

from rich.text import Text

from trainplan.cli.blocks import Part, number, stacked, table
from trainplan.cli.pages.parts.headline import job_line
from trainplan.cli.pages.parts.objective import amount
from trainplan.cli.words import layout_line, plural
from trainplan.costmodel.runtimes import RUNTIMES
from trainplan.planner.goals import Pareto, Point

PointT = TypeVar("PointT")
SHOWN_POINTS = 20
"""Evenly spread over all, the first and the last among them; `--json` has all."""


def pareto_page(pareto: Pareto) -> Iterator[Part]:
    """What was compared, then a row for every point shown."""
    first, second = pareto.objectives
    shown = spread(pareto.points)
    head = (
        f"{plural(len(pareto.points), 'layout')} that no other beats in both {first} and {second}"
    )
    if len(shown) < len(pareto.points):
        head += f", {len(shown)} of them here (`--json` lists all)"
    yield Text(head + ties_text(pareto.ties), style="bold green")
    proof = "The time limit struck: points may be missing, `--time-limit none` finds them."
    if pareto.complete:
        proof = proved(pareto.job.runtime, pareto.sizes)
    yield stacked(job_line(pareto.job), proof)
    heads = (
        *(() if "gpus" in pareto.objectives else ("GPUs",)),
        *(_head(name, pareto) for name in pareto.objectives),
    )
    rows = (_row(pareto, point) for point in shown)
    yield table("", (*map(number, heads), "layout"), rows)


def ties_text(count: int) -> str:
    """That points were left out as good as others; empty: none."""
    return f"; {count:,} within 0.01 % of another in both left out" if count else ""


def spread(points: Sequence[PointT]) -> Sequence[PointT]:
    """At most `SHOWN_POINTS` of them, evenly."""
    if len(points) <= SHOWN_POINTS:
        return points
    last = SHOWN_POINTS - 1
    return [points[i * (len(points) - 1) // last] for i in range(SHOWN_POINTS)]


def proved(name: str, sizes: Sequence[int]) -> str:
    """What is proved for a runtime, over these sizes of the cluster."""
    known = RUNTIMES.get(name)
    kind = " with even stages" if known and known.pipeline.splits_freely else ""
    over = plural(len(sizes), "size")
    return f"Proved under the cost model: no point{kind} is missing, over {over} of the cluster."


def _head(name: str, pareto: Pareto) -> str:
    step = "step with failures" if pareto.job.cluster.failures else "step"
    heads = {"time": step, "memory": "used", "gpus": "size"}
    return heads.get(name, f"{name} of a {pareto.per}")


def _row(pareto: Pareto, point: Point) -> tuple[str, ...]:
    values = zip(point.values, pareto.units, strict=True)
    layout = layout_line(point.layout, pareto.job.model)
    size = () if "gpus" in pareto.objectives else (f"{point.num_gpus:,}",)
    return *size, *(amount(value, unit) for value, unit in values), layout
