"""The report of `plan sweep`: scaling curves with the best layout of each point."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TypeAlias

from trainplan.cli.blocks import (
    Block,
    Chart,
    Columns,
    Fact,
    Facts,
    Page,
    Paragraph,
    Section,
    Table,
    number,
    table,
)
from trainplan.cli.documents import Curve, SweepPoint
from trainplan.cli.pages.figures import chart, label, log_axis, scatter, series
from trainplan.cli.pages.report.read import ModelValue, Read
from trainplan.cli.pages.sweep import interval_lines, points_table
from trainplan.cli.words import layout_line, percent, seconds
from trainplan.costmodel.base import SECONDS_PER_HOUR
from trainplan.costmodel.hardware import ClusterSpec
from trainplan.planner.comparisons import Setting, Varied

GPUS = "gpus"
"""The knob along which efficiency means something."""
BILLION = 1e9
Value: TypeAlias = Callable[[SweepPoint], float | None]
"""What a chart draws of a point."""


class Swept(Read):
    """The document of `plan sweep --json`."""

    model: ModelValue
    cluster: ClusterSpec
    verdict: str
    weak: bool
    varied: tuple[Varied, ...]
    curves: tuple[Curve, ...]


def held_text(settings: Sequence[Setting]) -> str:
    """Knobs at their values in a few words."""
    return ", ".join(f"{one.knob} {one.value}" for one in settings)


def per_gpu(point: SweepPoint) -> float:
    """Tokens per second of a GPU; 0 without a plan."""
    return (point.tokens_per_s or 0.0) / point.num_gpus


def curve_charts(swept: Swept) -> Iterator[Block]:
    """Throughput, what a GPU gives, the step and money along the first knob."""
    grows = swept.varied[0].knob == GPUS
    speed: Value = lambda one: one.tokens_per_s  # noqa: E731
    yield _chart(swept, "throughput", "Tokens per second", speed, _of_ideal(swept), ideal=grows)
    if grows:
        yield _chart(swept, "per-gpu", "Tokens per second and GPU", per_gpu, _falls(swept))
    fastest = _least(
        swept, _step, lambda step, at: f"The shortest step takes {seconds(step)}, at {at}."
    )
    yield _chart(swept, "step", "Seconds of a step", _step, fastest)
    price = _price(swept)
    if price:
        caption = f"{swept.cluster.currency} for a billion tokens"
        money = partial(_money, price=price)
        unit = swept.cluster.currency
        says = _least(swept, money, lambda least, at: f"Cheapest at {at}: {least:,.2f} {unit}.")
        yield _chart(swept, "money", caption, money, says)


def _step(point: SweepPoint) -> float | None:
    return point.estimate.step_time_s if point.estimate else None


def _price(swept: Swept) -> float | None:
    """Of a GPU for an hour, where all cost the same."""
    prices = {group.price_per_gpu_hour for group in swept.cluster.groups}
    return prices.pop() if len(prices) == 1 else None


def _money(point: SweepPoint, price: float) -> float | None:
    """Of a billion tokens.

    Source: derived; the price of all GPUs for an hour over the tokens of an hour, times a billion.
    """
    speed = point.tokens_per_s
    return point.num_gpus * price / SECONDS_PER_HOUR * BILLION / speed if speed else None


def _planned(swept: Swept) -> list[SweepPoint]:
    return [one for curve in swept.curves for one in curve.points if one.tokens_per_s]


def _of_ideal(swept: Swept) -> str:
    planned = _planned(swept)
    if not planned or swept.varied[0].knob != GPUS:
        return swept.verdict
    last = max(planned, key=lambda one: one.num_gpus)
    share = percent(last.efficiency or 0.0, 0)
    return f"{last.num_gpus:,} GPUs reach {share} of what as many like the first would give."


def _falls(swept: Swept) -> str:
    shares = [one.efficiency for one in _planned(swept) if one.efficiency is not None]
    if not shares:
        return "No point has a plan."
    return f"From the first point a GPU's share falls to {percent(min(shares), 0)} at the lowest."


def _least(swept: Swept, value: Value, says: Callable[[float, str], str]) -> str:
    """What `says` of the least value and where it is."""
    found = [(value(one) or 0.0, one) for one in _planned(swept)]
    if not found:
        return "No point has a plan."
    least, point = min(found, key=lambda entry: entry[0])
    return says(least, held_text(point.settings))


def _chart(
    swept: Swept, name: str, caption: str, value: Value, says: str, *, ideal: bool = False
) -> Chart:
    traces = [
        trace for number, _ in enumerate(swept.curves) for trace in _traces(swept, number, value)
    ]
    if ideal:
        traces += [line for one in swept.curves[:1] if (line := _ideal(one)) is not None]
    numeric = is_numeric(swept)
    speeds = [found for c in swept.curves for one in c.points if (found := value(one))]
    axis: dict[str, object] = log_axis(speeds) if ideal else {"rangemode": "tozero"}
    knobs: dict[str, object] = {"type": "log" if numeric else "category"}
    if numeric:
        ticks = list(dict.fromkeys(_x(one, numeric=True) for c in swept.curves for one in c.points))
        knobs |= {"tickvals": ticks, "ticktext": [f"{tick:,g}" for tick in ticks]}
    knob = swept.varied[0].knob
    numbers = _numbers(swept, caption, value)
    title = f"{caption} by {knob}"
    return chart(
        name, title, says, traces, numbers, x=label(knob), y=caption, xaxis=knobs, yaxis=axis
    )


def is_numeric(swept: Swept) -> bool:
    """All values of the first knob are numbers above zero."""
    try:
        return all(float(value) > 0 for value in swept.varied[0].values)
    except ValueError:
        return False


def _x(point: SweepPoint, *, numeric: bool) -> str | float:
    value = point.settings[0].value
    return float(value) if numeric else label(value)


def _traces(swept: Swept, place: int, value: Value) -> Iterator[Mapping[str, object]]:
    curve, numeric = swept.curves[place], is_numeric(swept)
    shown = [
        (one, found) for one in curve.points if (found := value(one)) is not None and one.layout
    ]
    knees = [one.knee for one, _ in shown]
    yield scatter(
        label(held_text(curve.held) or "best layout"),
        [_x(one, numeric=numeric) for one, _ in shown],
        [found for _, found in shown],
        "%{x}: %{y:,.4g}<br>%{text}<extra></extra>",
        mode="lines+markers",
        text=[label(_hover(swept, one)) for one, _ in shown],
        line={"color": series(place)},
        marker={
            "size": [13 if knee else 8 for knee in knees],
            "symbol": ["diamond" if knee else "circle" for knee in knees],
        },
    )


def _hover(swept: Swept, point: SweepPoint) -> str:
    assert point.layout
    return layout_line(point.layout, swept.model) + (" (knee)" if point.knee else "")


def _ideal(curve: Curve) -> Mapping[str, object] | None:
    """The first point scaled by its GPUs."""
    planned = [one for one in curve.points if one.tokens_per_s]
    if not planned:
        return None
    first = planned[0]
    return scatter(
        "ideal: as the first for each GPU",
        [float(one.num_gpus) for one in curve.points],
        [per_gpu(first) * one.num_gpus for one in curve.points],
        "ideal: %{y:,.4g}<extra></extra>",
        mode="lines",
        line={"color": "@quiet", "dash": "dot"},
    )


def _numbers(swept: Swept, caption: str, value: Value) -> Table:
    columns: Columns = [*(one.knob for one in swept.varied), number(caption)]
    rows = (
        (*(one.value for one in point.settings), value(point))
        for curve in swept.curves
        for point in curve.points
    )
    return table(caption, columns, rows)


def sweep_page(swept: Swept) -> Page:
    """The report of a sweep."""
    return Page(
        title=f"{swept.model.name}, {' and '.join(one.knob for one in swept.varied)} varied",
        answer=swept.verdict,
        certainty=tuple(_certainty(swept)),
        facts=Facts(tuple(_facts(swept))),
        sections=(
            Section("curves", "Curves", tuple(curve_charts(swept))),
            Section("points", "Best layout of each point", tuple(_points(swept))),
        ),
    )


def _certainty(swept: Swept) -> Iterator[Paragraph]:
    statuses = [point.status for one in swept.curves for point in one.points]
    counts = {name: statuses.count(name) for name in dict.fromkeys(statuses)}
    written = {
        "proved": "proved fastest under the cost model",
        "even": "proved but for uneven stages: `plan search` proves more",
        "found": "found, not proved: there may be a faster one",
        "memory": "do not fit",
        "rules": "have no legal layout",
        "untried": "were not tried: the time limit struck",
        "impossible": "are no job",
    }
    for name, count in counts.items():
        good = name == "proved"
        text = f"{count} of {len(statuses)} points: {written.get(name, name)}."
        yield Paragraph(text, "good" if good else "doubtful")
    yield from map(Paragraph, interval_lines(one.estimate for one in _planned(swept)))
    if swept.weak:
        yield Paragraph("The batch grows with the GPUs: weak scaling.")


def _facts(swept: Swept) -> Iterator[Fact]:
    planned = [one for curve in swept.curves for one in curve.points if one.tokens_per_s]
    if not planned:
        return
    best = max(planned, key=lambda one: one.tokens_per_s or 0.0)
    yield Fact("most tokens/s", f"{best.tokens_per_s:,.0f}", held_text(best.settings))
    each = max(planned, key=per_gpu)
    yield Fact("most tokens/s/GPU", f"{per_gpu(each):,.0f}", held_text(each.settings))
    for knee in (one for one in planned if one.knee):
        yield Fact("knee", held_text(knee.settings), "GPUs beyond it give under 80 %")


def _points(swept: Swept) -> Iterator[Block]:
    for curve in swept.curves:
        held = held_text(curve.held)
        yield points_table(swept.varied[0].knob, curve.points, swept.model, held)
