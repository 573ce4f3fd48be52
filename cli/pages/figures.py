"""How numbers are drawn: figures of plotly as plain JSON.

A figure names its colours (`"@compute"`); the page's script puts in those of the theme it shows.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from math import ceil, floor, log10
from textwrap import wrap
from typing import TypeAlias

from trainplan.cli.blocks import Chart, Table

SERIES: Sequence[str] = (
    "@blue", "@orange", "@green", "@violet", "@teal", "@pink", "@olive", "@brown", "@grey", "@text",
)  # fmt: skip
"""Colours of series without one of their own, in order."""

FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif'
"""As in the page's style."""


def layout(*, x: str = "", y: str = "", **more: object) -> dict[str, object]:
    """A plotly layout in the page's style; `x` and `y` are titles of axes with their units.

    `more` replaces or adds keys; `xaxis` and `yaxis` are merged.
    """
    axis = {"gridcolor": "@grid", "zerolinecolor": "@grid", "automargin": True}

    def title(text: str) -> dict[str, object]:
        return {"text": text, "font": {"size": 13, "color": "@quiet"}}

    merged: dict[str, object] = {
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"color": "@text", "size": 13, "family": FONT},
        "margin": {"l": 8, "r": 8, "t": 8, "b": 8},
        "dragmode": False,
        "hoverlabel": {"bgcolor": "@background", "font": {"color": "@text"}},
        "legend": {"orientation": "h", "yanchor": "bottom", "y": 1.02, "x": 0},
        "xaxis": {**axis, "title": title(x)},
        "yaxis": {**axis, "title": title(y)},
    }
    for name, value in more.items():
        known = merged.get(name)
        both = isinstance(known, dict) and isinstance(value, dict)
        merged[name] = {**known, **value} if both else value  # type: ignore[dict-item]
    return merged


def chart(
    name: str,
    caption: str,
    says: str,
    traces: Iterable[Mapping[str, object]],
    numbers: Table,
    *,
    height: int = 360,
    half: bool = False,
    zooms: bool = False,
    x: str = "",
    y: str = "",
    **more: object,
) -> Chart:
    """A chart of traces; `x`, `y` and `more` are those of `layout`."""
    drawn = {"data": [dict(trace) for trace in traces], "layout": layout(x=x, y=y, **more)}
    return Chart(name, caption, says, drawn, numbers, height, half, zooms)


def scatter(
    name: str, x: Iterable[object], y: Iterable[object], hover: str, **more: object
) -> dict[str, object]:
    """Points, or with `mode` another a line; `hover` is a template of plotly, empty: none."""
    return {
        "type": "scatter",
        "mode": "markers",
        **({"name": name} if name else {}),
        "x": list(x),
        "y": list(y),
        **({"hovertemplate": hover} if hover else {"hoverinfo": "skip"}),
        **more,
    }


DOWN: Mapping[str, object] = {"autorange": "reversed"}
"""An axis whose first entry is at the top."""


def bars(
    name: str,
    places: Sequence[object],
    values: Sequence[float],
    colour: str,
    hover: str,
    **more: object,
) -> dict[str, object]:
    """Bars from left to right; `hover` is a template of plotly."""
    return {
        "type": "bar",
        "orientation": "h",
        "name": name,
        "y": places,
        "x": values,
        "marker": {"color": colour},
        "hovertemplate": hover,
        **more,
    }


def line_at(axis: str, value: float, colour: str = "@limit") -> dict[str, object]:
    """A dotted line through a whole figure, where the axis `x` or `y` has a value."""
    other = {"x": "y", "y": "x"}[axis]
    return {
        "type": "line",
        f"{axis}0": value,
        f"{axis}1": value,
        f"{other}ref": "paper",
        f"{other}0": 0,
        f"{other}1": 1,
        "line": {"color": colour, "dash": "dot", "width": 2},
    }


SIDES: Sequence[tuple[str, float, float]] = (
    ("middle right", 0.0, -0.5), ("middle left", -1.0, -0.5), ("top center", -0.5, 0.3),
    ("bottom center", -0.5, -1.3), ("top right", 0.0, 0.3), ("bottom right", 0.0, -1.3),
    ("top left", -1.0, 0.3), ("bottom left", -1.0, -1.3),
)  # fmt: skip
"""Where a label is at its point: plotly's name, left and lower edge in widths and heights of it."""
PLOT, LETTER, LINE, MARK = (620.0, 240.0), 6.2, 16.0, 8.0
"""Pixels of a plot on a narrow page, of a letter, a line and half a point."""
Box: TypeAlias = tuple[float, float, float, float]
"""Left, lower, right and upper edge."""


def label_sides(points: Sequence[tuple[float, float]], texts: Sequence[str]) -> list[str]:
    """On which side of each point its text covers least, chosen one after the other."""
    axes = [_scaled(axis, size) for axis, size in zip(zip(*points, strict=True), PLOT, strict=True)]
    marks = [(x - MARK, y - MARK, x + MARK, y + MARK) for x, y in zip(*axes, strict=True)]
    labels: list[Box] = []
    chosen: list[str] = []
    for place, (text, x, y) in enumerate(zip(texts, *axes, strict=True)):
        width = LETTER * len(text) + MARK
        boxes = {
            name: (x + left * width, y + low * LINE, x + (left + 1) * width, y + (low + 1) * LINE)
            for name, left, low in SIDES
        }
        taken = [*marks[:place], *marks[place + 1 :], *labels]
        covered = {name: _covered(box, taken) for name, box in boxes.items()}
        side = min(covered, key=covered.__getitem__)
        labels.append(boxes[side])
        chosen.append(side)
    return chosen


def _scaled(values: Sequence[float], size: float) -> list[float]:
    """Of an axis, in pixels."""
    low, span = min(values), max(values) - min(values)
    return [size * (value - low) / span if span else 0.0 for value in values]


def _covered(box: Box, taken: Sequence[Box]) -> float:
    """Pixels of others that a box covers, and those of its own beyond the plot."""
    left, low, right, high = box
    beyond = max(0.0, -left) + max(0.0, right - PLOT[0])
    return (high - low) * beyond + sum(
        max(0.0, min(right, r) - max(left, x)) * max(0.0, min(high, h) - max(low, y))
        for x, y, r, h in taken
    )


def label(text: str) -> str:
    """Text that a figure shows as it is: plotly reads tags, entities and templates in it."""
    shown = escape(text, quote=False).replace("%{", "%&#123;")
    return f"&#64;{shown[1:]}" if shown.startswith("@") else shown


def folded(text: str, width: int) -> str:
    """`label` on lines of `width` characters."""
    return "<br>".join(map(label, wrap(text, width)))


PREFIXES = {-9: "n", -6: "µ", -3: "m", 0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P"}
FEW_DECADES = 3
"""With as many, an axis has ticks within them."""


def short(value: float, unit: str = "") -> str:
    """A number with a prefix of its unit: `200k`, `5 ms`, `16 MB`."""
    power = min(max(3 * floor(log10(value) / 3 + 1e-9), min(PREFIXES)), max(PREFIXES))
    return f"{value / 10**power:g}{' ' * bool(unit)}{PREFIXES[power]}{unit}"


def log_axis(values: Iterable[float], text: Callable[[float], str] = short) -> dict[str, object]:
    """A logarithmic axis with a written tick at 1, 2 and 5, or over many decades at 1 alone."""
    known = [value for value in values if value > 0]
    if not known:
        return {"type": "log"}
    low, high = floor(log10(min(known))), ceil(log10(max(known)))
    steps = (1, 2, 5) if high - low <= FEW_DECADES else (1,)
    ticks = [step * 10.0**power for power in range(low, high + 1) for step in steps]
    return {"type": "log", "tickvals": ticks, "ticktext": [text(tick) for tick in ticks]}


def series(place: int) -> str:
    """Colour of a series by its place."""
    return SERIES[place % len(SERIES)]
