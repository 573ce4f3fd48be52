"""Best plans along a knob, as tables with a curve and as JSON."""

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from rich.text import Text

from trainplan.cli.blocks import (
    Cell,
    Column,
    Drawn,
    Part,
    Row,
    Table,
    headed,
    number,
    stacked,
    table,
)
from trainplan.cli.documents import SweepDocument, SweepPoint
from trainplan.cli.pages.parts.headline import job_line
from trainplan.cli.words import DOT, layout_line, no_plan_text, percent, seconds
from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.job import Job
from trainplan.costmodel.step import Estimate
from trainplan.planner.comparisons import Curve, Sweep

FEWEST_DRAWN = 3
"""Two points are no curve."""
HEIGHT, WIDTH = 10, 72
"""Of a curve, in characters."""
POINT, IDEAL, KNEE = "o", ".", "K"


def sweep_page(swept: Sweep, job: Job) -> Iterator[Part]:
    """One table and one curve for each combination of the other knobs."""
    yield Text(SweepDocument.sentence(swept), style="bold green")
    entries = [tuple(map(SweepPoint.of, one.points)) for one in swept.curves]
    priced = (point.estimate for every in entries for point in every)
    yield stacked(job_line(job), *interval_lines(priced))
    for one, every in zip(swept.curves, entries, strict=True):
        points = points_table(swept.varied[0].knob, every, job.model, SweepDocument.held(one.held))
        yield headed(SweepDocument.held(one.held), points) if one.held else points
        if alone := [f"{p.settings[0].value}: {p.alone}" for p in one.points if p.alone]:
            yield stacked(*alone)
        yield from _drawn(swept, one)
    yield legend(swept)
    if job.islands > 1:
        yield (
            f"gpus, global_batch_size and fields of a layout are of each of {job.islands} islands; "
            "step, tokens/s, eff. and added are of all of them together."
        )


def interval_lines(estimates: Iterable[Estimate | None]) -> Iterator[str]:
    """How far steps may be off: once for all points, the widest of them."""
    ranges = [(one.step_time_s, one.uncertainty) for one in estimates if one]
    if ranges:
        low = min(range_.step_time_low_s / step for step, range_ in ranges) - 1
        high = max(range_.step_time_high_s / step for step, range_ in ranges) - 1
        widest = "" if len(ranges) == 1 else ", at the widest of these points"
        level = percent(ranges[0][1].level, 0)
        yield f"Step times, {level}: {100 * low:+.0f} % to {100 * high:+.0f} %{widest}."


def points_table(knob: str, points: Sequence[SweepPoint], model: ModelSpec, held: str) -> Table:
    """The best layout of each value of a knob."""
    whole = partial(percent, digits=0)
    stated = any(point.goodput_fraction is not None for point in points)
    first = "tokens/s per GPU over those of the first point"
    columns = (
        number(knob),
        number("step", seconds),
        number("tokens/s", "{:,.0f}".format),
        *([number("goodput", percent)] if stated else []),
        number("MFU", percent),
        number("efficiency", whole, first, screen="eff."),
        number("added", whole, "what an added GPU gives over a GPU of the best point before"),
        Column("best layout", only="screen"),
        Column("best layout", only="page"),
    )
    rows = (_row(point, model, stated=stated) for point in points)
    knees = [place for place, point in enumerate(points) if point.knee]
    caption = f"Points at {held}" if held else "Points"
    spare = ("added", "eff.", "MFU")
    return table(caption, columns, rows, knees[0] if knees else None, spare)


def _row(point: SweepPoint, model: ModelSpec, *, stated: bool) -> Row:
    value, best = point.settings[0].value, point.estimate
    head = Cell(value, float(value) if value.replace(".", "", 1).isdecimal() else None)
    if best is None or point.layout is None:
        why = f"{point.status}: {no_plan_text(point.status, point.reason)}"
        return (head, None, None, *[None] * stated, None, None, None, why, why)
    mark = (" <- knee" if point.knee else "") + (" *" if point.status == "found" else "")
    line = layout_line(point.layout, model)
    return (
        *(head, best.step_time_s, point.tokens_per_s or 0),
        *[point.goodput_fraction] * stated,
        best.mfu,
        *(point.efficiency, point.marginal_efficiency, line.replace(DOT, " ") + mark, line),
    )


def _drawn(swept: Sweep, one: Curve) -> Iterator[Part]:
    """Throughput along the knob; where GPUs are added, also the first point's scaled by them."""
    planned = [point for point in one.points if point.tokens_per_s]
    if len(planned) < FEWEST_DRAWN:
        return
    grows = len({point.num_gpus for point in planned}) > 1
    share = (planned[0].tokens_per_s or 0.0) / planned[0].num_gpus
    ideal = [
        share * point.num_gpus if grows and point.tokens_per_s else None for point in one.points
    ]
    knees = [place for place, point in enumerate(one.points) if point.knee]

    def draw(width: int) -> Text:
        lines = curve(
            [point.tokens_per_s for point in one.points],
            ideal,
            [point.settings[0].value for point in one.points],
            knee=knees[0] if knees else None,
            width=min(WIDTH, width),
        )
        return Text("\n".join(lines))

    marks = f"o, K at the knee; . {share:,.0f} per GPU" if grows else "o"
    yield stacked(f"tokens/s ({marks}) by {_axis(swept)}", Drawn(draw))


def _axis(swept: Sweep) -> str:
    return swept.varied[0].knob + (", batch growing with it" if swept.weak else "")


def legend(swept: Sweep) -> str:
    """What the columns mean."""
    text = (
        "eff.: tokens/s per GPU over those of the first point. added: what an added GPU gives over "
        "a GPU of the best point before; the knee is the last point before that falls under "
        f"{percent(swept.KNEE_EFFICIENCY, 0)}."
    )
    statuses = {point.outcome.status for one in swept.curves for point in one.points}
    if "even" in statuses:
        text += " Not every point was tried with all uneven stages: `plan search` proves more."
    if "found" in statuses:
        text += " *: not proved, there may be a faster one."
    return text


def curve(
    values: Sequence[float | None],
    ideal: Sequence[float | None],
    labels: Sequence[str],
    *,
    knee: int | None = None,
    width: int = WIDTH,
) -> list[str]:
    """Lines of a picture: a point for each value, a dot where the ideal would be.

    Points are at equal distances; the height is logarithmic. None leaves a gap. Where labels
    have no room, only every second, third, ... is there.
    """
    known = [value for value in (*values, *ideal) if value]
    if not known:
        return []
    low, high = math.log(min(known)), math.log(max(known))
    span = (high - low) or 1.0
    step = max(1, min(width // max(1, len(labels)), 12))
    rows = [[" "] * (step * len(labels)) for _ in range(HEIGHT)]

    def mark(place: int, value: float | None, sign: str) -> None:
        if value:
            row = HEIGHT - 1 - round((math.log(value) - low) / span * (HEIGHT - 1))
            rows[row][place * step + step // 2] = sign

    for place, (value, best) in enumerate(zip(values, ideal, strict=True)):
        mark(place, best, IDEAL)
        mark(place, value, KNEE if place == knee else POINT)
    every = math.ceil((max(map(len, labels)) + 1) / step)
    names = "".join(label.center(step * every) for label in labels[::every])[:width]
    return ["".join(row).rstrip() for row in rows] + [names.rstrip()]
