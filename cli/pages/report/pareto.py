"""The report of `plan search --pareto`: layouts that no other beats in both objectives."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from trainplan.cli.blocks import (
    Block,
    Chart,
    Columns,
    Fact,
    Facts,
    Folded,
    Page,
    Paragraph,
    Section,
    Table,
    number,
    table,
)
from trainplan.cli.pages.figures import chart, label, scatter, series
from trainplan.cli.pages.pareto import proved, spread, ties_text
from trainplan.cli.pages.parts.objective import amount
from trainplan.cli.pages.report.read import LayoutValue, ModelValue, Read
from trainplan.cli.words import gib, layout_line, percent, plural, seconds
from trainplan.costmodel.base import GIB
from trainplan.costmodel.hardware import ClusterSpec
from trainplan.costmodel.step import Estimate
from trainplan.planner.goals import Objective


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
    ties: int = 0


def pareto_page(front: Front) -> Page:
    """The report of the choices between two objectives."""
    first, second = front.objectives
    count = plural(len(front.points), "layout")
    return Page(
        title=f"{front.model.name} on {front.cluster.name}: {first.name} against {second.name}",
        answer=f"{count} that no other beats in both {first.name} and {second.name}"
        f"{ties_text(front.ties)}.",
        certainty=(_certainty(front),),
        facts=Facts(tuple(_facts(front))),
        sections=tuple(_sections(front)),
    )


def _sections(front: Front) -> Iterator[Section]:
    charts = (_chart(front),) if len(front.points) > 1 else ()
    if front.points:
        yield Section("front", "The choices", (*charts, *_tables(front)))


def _certainty(front: Front) -> Paragraph:
    if front.complete:
        return Paragraph(proved(front.runtime, front.sizes), "good")
    sizes = plural(len(front.sizes), "size") + " of the cluster"
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
    heads = [_axis(one) for one in (first, second)]
    shown = [
        [_shown(v, one) for v, one in zip(point.values, front.objectives, strict=True)]
        for point in front.points
    ]
    return chart(
        "front-of-choices",
        f"{heads[0]} against {heads[1]}",
        f"From {_both(front, front.points[0])} to {_both(front, front.points[-1])}: less "
        f"{second.name} takes more {first.name}.",
        _traces(front, shown),
        table("Points of the chart", tuple(map(number, heads)), shown),
        x=label(heads[0]),
        y=label(heads[1]),
        height=420,
    )


def _traces(front: Front, shown: Sequence[Sequence[float]]) -> Iterator[dict[str, object]]:
    """The line of all points, and the points by size of the cluster."""
    x, y = zip(*shown, strict=True)
    line = {"color": "@grid", "shape": "hv"}
    yield scatter("", x, y, "", mode="lines", line=line, showlegend=False)
    for place, gpus in enumerate(sorted({point.num_gpus for point in front.points})):
        some = [at for at, point in enumerate(front.points) if point.num_gpus == gpus]
        yield scatter(
            plural(gpus, "GPU"),
            [shown[at][0] for at in some],
            [shown[at][1] for at in some],
            "%{text}<extra></extra>",
            text=[label(_hover(front, front.points[at])) for at in some],
            marker={"size": 9, "color": series(place)},
        )


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
    others = [one for one in OTHERS if one[1] not in named]
    columns: Columns = (
        *(number(one.name, partial(amount, unit=one.unit)) for one in front.objectives),
        *(number(head, text) for head, _, text, _ in others),
        "layout",
    )
    rows = (
        (
            *point.values,
            *(value(point) for *_, value in others),
            layout_line(point.layout, front.model),
        )
        for point in points
    )
    return table(caption, columns, rows)


OTHERS: Sequence[tuple[str, str, Callable[[float], str], Callable[[ParetoPoint], float | None]]] = (
    ("GPUs", "gpus", "{:,}".format, lambda point: point.num_gpus),
    ("step", "time", seconds, lambda point: point.estimate.step_time_s),
    ("GiB", "memory", gib, lambda point: point.estimate.memory.peak_reserved_bytes),
    ("MFU", "", percent, lambda point: point.estimate.mfu),
)
"""Columns of the table after the objectives: the objective that makes each needless, how it is
written, and its value."""
