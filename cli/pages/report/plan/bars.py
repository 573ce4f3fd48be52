"""Bars on a clock: rows of lanes, time from left to right."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from trainplan.cli.blocks import Chart, Table, number, table
from trainplan.cli.pages.figures import SERIES, chart, label
from trainplan.cli.words import like, percent, seconds
from trainplan.costmodel.copy_streams import Lane, Span

MOST_SPANS = 4_000
"""Bars of all lanes. Source: as MOST_BARS of `timeline`."""


@dataclass(slots=True)
class Bars:
    """Bars of one kind."""

    name: str
    colour: str
    height: float
    """In rows."""
    rows: list[float] = field(default_factory=list)
    starts: list[float] = field(default_factory=list)
    length: list[float] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)

    def add(self, row: float, start: float, length: float, text: str) -> None:
        """Add a bar; seconds."""
        self.rows.append(round(row, 3))
        self.starts.append(rounded(start))
        self.length.append(rounded(length))
        self.texts.append(text)

    def seconds_on(self, row: int) -> float:
        """Seconds of all bars of a row."""
        here = zip(self.rows, self.length, strict=True)
        return sum(length for place, length in here if round(place) == row)


def rounded(value: float) -> float:
    """Six digits: a bar is as wide as it is to the eye, and the page stays small."""
    return float(f"{value:.6g}")


def bars_chart(
    name: str,
    caption: str,
    says: str,
    bars: Sequence[Bars],
    numbers: Table,
    *,
    rows: Mapping[float, str],
    whole: tuple[float, float],
    first_seen: tuple[float, float],
    height: int,
) -> Chart:
    """The chart of `whole` seconds, of which `first_seen` are shown at first.

    `rows` are names by the height in rows where they are, one for each row.
    """
    low, high = whole
    hover = "%{customdata}: from %{base:.5g} s, %{x:.4g} s<extra>%{fullData.name}</extra>"
    traces = [
        {
            "type": "bar",
            "orientation": "h",
            "name": one.name,
            "y": one.rows,
            "base": one.starts,
            "x": one.length,
            "width": one.height,
            "offset": -one.height / 2,
            "customdata": [label(text) for text in one.texts],
            "marker": {"color": one.colour, "line": {"width": 0}},
            "hovertemplate": hover,
        }
        for one in bars
        if one.length
    ]
    return chart(
        name,
        caption,
        says,
        traces,
        numbers,
        x="seconds",
        barmode="overlay",
        dragmode="zoom",
        xaxis={"range": list(first_seen), "minallowed": low, "maxallowed": high},
        yaxis={
            "tickvals": list(rows),
            "ticktext": [label(row) for row in rows.values()],
            "range": [len(rows) - 0.4, -0.6],
            "fixedrange": True,
            "showgrid": False,
            "zeroline": False,
        },
        height=height,
        zooms=True,
    )


def joined(spans: Sequence[Span], near: float) -> tuple[Span, ...]:
    """Spans of a lane that begin less than `near` seconds after one before ends, as one.

    At most one bar a lane is left for every `near` seconds, so that the whole step is drawn.
    """
    open_spans: dict[Lane, Span] = {}
    found: list[Span] = []
    for span in sorted(spans, key=lambda one: one.start):
        before = open_spans.get(span.lane)
        if before is None or span.start - before.end >= near:
            found += [before] if before else []
            open_spans[span.lane] = span
            continue
        name = before.name if before.name == span.name else "several"
        open_spans[span.lane] = replace(before, end=max(before.end, span.end), name=name)
    return (*found, *open_spans.values())


def lanes_chart(spans: Sequence[Span]) -> Chart:
    """What every lane of the slowest rank does, where something is off the GPU."""
    whole = max(span.end for span in spans)
    used = [lane for lane in Lane if any(s.lane is lane and s.end > s.start for s in spans)]
    colours = dict(zip(used, SERIES, strict=False))
    drawn, near = tuple(span for span in spans if span.end > span.start), 0.0
    if len(drawn) > MOST_SPANS:
        near = whole * len(used) / MOST_SPANS
        drawn = joined(drawn, near)
    kinds = {lane: Bars(lane.plain, colours[lane], 0.7) for lane in used}
    for span in drawn:
        kinds[span.lane].add(used.index(span.lane), span.start, span.end - span.start, span.name)
    stated = f" Work less than {seconds(near)} separate is drawn as one bar." if near else ""
    busy = {lane: sum(s.end - s.start for s in spans if s.lane is lane) for lane in used}
    most = max(used, key=lambda lane: busy[lane])
    work = ((lane.plain, busy[lane], busy[lane] / whole) for lane in used)
    columns = ("lane", number("work", like(whole)), number("of the time", percent))
    return bars_chart(
        "lanes",
        "What each lane of the slowest rank does, in seconds from the start of the step, before "
        "overhead",
        f"{most.plain} works {percent(busy[most] / whole)} of the {seconds(whole)}.{stated}",
        list(kinds.values()),
        table("Seconds of work", columns, work),
        rows={place: lane.plain for place, lane in enumerate(used)},
        whole=(0.0, whole),
        first_seen=(0.0, whole),
        height=130 + 40 * len(used),
    )
