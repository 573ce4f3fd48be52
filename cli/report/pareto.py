"""The report of `plan search --pareto`: layouts that no other beats in both objectives."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from trainplan.cli.blocks.blocks import (
    Block,
    Cell,
    Chart,
    Fact,
    Facts,
    Folded,
    Page,
    Paragraph,
    Section,
    Table,
)
from trainplan.cli.blocks.figures import figure, label, layout
from trainplan.cli.blocks.tables import (
    Columns,
    Row,
    cell,
    gib_cell,
    number,
    seconds_cell,
    series,
    share_cell,
    table,
)
from trainplan.cli.render.pareto import spread
from trainplan.cli.render.parts.objective import amount
from trainplan.cli.report.read import LayoutValue, ModelValue, Read
from trainplan.cli.words import layout_line, plural
from trainplan.costmodel.base import GIB
from trainplan.costmodel.hardware import ClusterSpec
from trainplan.costmodel.runtimes import RUNTIMES
from trainplan.costmodel.step import Estimate
from trainplan.planner.goals.pareto import Objective


class ParetoPoint(Read):
    """A layout that no other beats."""

    num_gpus: int
    values: tuple[float, float]
    layout: LayoutValue
    estimate: Estimate


class Front(Read):
    """The document of `plan search --pareto --json`."""

    model: ModelValue
    cluster: ClusterSpec
    runtime: str
    objectives: tuple[Objective, Objective]
    points: tuple[ParetoPoint, ...]
    sizes: tuple[int, ...]
    complete: bool


def pareto_page(front: Front) -> Page:
    """The report of the choices between two objectives."""
    first, second = front.objectives
    count = plural(len(front.points), "layout")
    return Page(
        title=f"{front.model.name} on {front.cluster.name}: {first.name} against {second.name}",
        answer=f"{count} that no other beats in both {first.name} and {second.name}.",
        certainty=(_certainty(front),),
        facts=Facts(tuple(_facts(front))),
        sections=tuple(_sections(front)),
    )


def _sections(front: Front) -> Iterator[Section]:
    charts = (_chart(front),) if len(front.points) > 1 else ()
    if front.points:
        yield Section("front", "The choices", (*charts, *_tables(front)))


def _certainty(front: Front) -> Paragraph:
    sizes = plural(len(front.sizes), "size") + " of the cluster"
    known = RUNTIMES.get(front.runtime)
    kind = " with even stages" if known and known.pipeline.splits_freely else ""
    if front.complete:
        proved = f"Proved under the cost model: no point{kind} is missing, over {sizes}."
        return Paragraph(proved, "good")
    return Paragraph(f"The time limit struck: points may be missing, over {sizes}.", "doubtful")


def _facts(front: Front) -> Iterator[Fact]:
    for place, one in enumerate(front.objectives):
        if front.points:
            best = min(front.points, key=lambda point: point.values[place])
            note = plural(best.num_gpus, "GPU")
            yield Fact(f"least {one.name}", amount(best.values[place], one.unit), note)


def _shown(value: float, one: Objective) -> float:
    """A value in the unit of its axis."""
    return value / GIB if one.unit == "bytes" else value


def _axis(one: Objective) -> str:
    unit = {"bytes": "GiB", "s": "seconds"}.get(one.unit, one.unit)
    return f"{one.name}, {unit}" + (
        f" of a {one.per}" if one.name not in ("memory", "gpus") else ""
    )


def _chart(front: Front) -> Chart:
    first, second = front.objectives
    best, other = front.points[0], front.points[-1]
    return Chart(
        name="front-of-choices",
        caption=f"{_axis(first)} against {_axis(second)}",
        says=(
            f"From {_both(front, best)} to {_both(front, other)}: less {second.name} takes more "
            f"{first.name}."
        ),
        figure=figure(list(_traces(front)), layout(x=label(_axis(first)), y=label(_axis(second)))),
        numbers=table(
            "Points of the chart",
            (number(_axis(first)), number(_axis(second))),
            [
                [cell(_shown(v, one)) for v, one in zip(p.values, front.objectives, strict=True)]
                for p in front.points
            ],
        ),
        height=420,
    )


def _traces(front: Front) -> Iterator[dict[str, object]]:
    """The line of all points, and the points by size of the cluster."""
    first, second = front.objectives
    ends = [
        [_shown(p.values[at], one) for p in front.points] for at, one in enumerate((first, second))
    ]
    yield {
        "type": "scatter",
        "mode": "lines",
        "x": ends[0],
        "y": ends[1],
        "line": {"color": "@grid", "shape": "hv"},
        "hoverinfo": "skip",
        "showlegend": False,
    }
    for place, gpus in enumerate(sorted({point.num_gpus for point in front.points})):
        some = [point for point in front.points if point.num_gpus == gpus]
        yield {
            "type": "scatter",
            "mode": "markers",
            "name": plural(gpus, "GPU"),
            "x": [_shown(point.values[0], first) for point in some],
            "y": [_shown(point.values[1], second) for point in some],
            "text": [label(_hover(front, point)) for point in some],
            "hovertemplate": "%{text}<extra></extra>",
            "marker": {"size": 9, "color": series(place)},
        }


def _both(front: Front, point: ParetoPoint) -> str:
    values = zip(point.values, front.objectives, strict=True)
    return " and ".join(amount(value, one.unit) for value, one in values)


def _hover(front: Front, point: ParetoPoint) -> str:
    return f"{_both(front, point)}: {layout_line(point.layout, front.model)}"


def _tables(front: Front) -> Iterator[Block]:
    """Some points, spread evenly; all behind a line where they are many."""
    some = spread(front.points)
    if len(some) < len(front.points):
        yield _table(front, f"{len(some)} of the choices, evenly spread", some)
        every = _table(front, "All choices", front.points)
        yield Folded(f"All {len(front.points)} choices", (every,))
    else:
        yield _table(front, "All choices", some)


def _table(front: Front, caption: str, points: Sequence[ParetoPoint]) -> Table:
    named = {one.name for one in front.objectives}
    others = {head: value for head, (name, value) in OTHERS.items() if name not in named}
    heads = [*(number(one.name) for one in front.objectives), *map(number, others)]
    columns: Columns = (*heads, "layout")
    return table(caption, columns, [_row(front, point, others.values()) for point in points])


def _row(front: Front, point: ParetoPoint, others: Iterable[Callable[[ParetoPoint], Cell]]) -> Row:
    values = zip(point.values, front.objectives, strict=True)
    return (
        *(cell(value, amount(value, objective.unit)) for value, objective in values),
        *(other(point) for other in others),
        layout_line(point.layout, front.model),
    )


OTHERS: Mapping[str, tuple[str, Callable[[ParetoPoint], Cell]]] = {
    "GPUs": ("gpus", lambda point: cell(point.num_gpus)),
    "step": ("time", lambda point: seconds_cell(point.estimate.step_time_s)),
    "GiB": ("memory", lambda point: gib_cell(point.estimate.memory.peak_reserved_bytes)),
    "MFU": ("", lambda point: share_cell(point.estimate.mfu)),
}
"""Columns of the table beside the objectives, and which objective makes each needless."""
