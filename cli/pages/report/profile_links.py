"""Links of a profile as heat maps: GPUs of a node, and nodes."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from statistics import median

import numpy as np

from trainplan.cli.blocks import Block, Chart, Table, number, table
from trainplan.cli.pages.figures import DOWN, chart, label, log_axis, scatter, short
from trainplan.cli.pages.profile import NOT_ODD
from trainplan.costmodel.base import GB
from trainplan.costmodel.profiles import LinkPoint, Profile, Timing

LINE_POINTS = 40
"""Of a drawn curve."""


def is_odd(timing: Timing) -> bool:
    """Something is wrong with it, beyond that it is another tool's."""
    return any(flag not in NOT_ODD for flag in timing.flags)


def markers(times: Sequence[Timing], colour: str) -> Mapping[str, object]:
    """Filled points; those to doubt are open and crossed."""
    return {
        "size": [9 if is_odd(one) else 6 for one in times],
        "symbol": ["circle-x-open" if is_odd(one) else "circle" for one in times],
        "color": colour,
    }


def fitted_line(
    x: Sequence[float], y: Sequence[float], name: str, colour: str
) -> dict[str, object]:
    """A curve through points."""
    line = {"color": colour, "width": 1.5, "dash": "dash"}
    return scatter(name, x, y, "%{y:.4g}<extra>%{fullData.name}</extra>", mode="lines", line=line)


def spaced(values: Sequence[float]) -> list[float]:
    """From the least to the largest, evenly on a logarithmic axis."""
    return [float(x) for x in np.geomspace(min(values), max(values), LINE_POINTS)]


def bytes_axis(sizes: Iterable[float]) -> dict[str, object]:
    """Of sizes."""
    return log_axis(sizes, partial(short, unit="B"))


MOST_ENDS = 128
"""Rows of a heat map; of more ends the slowest are shown."""
Rates = Mapping[frozenset[str], float]
"""GB/s of each pair."""


def link_charts(profile: Profile) -> Iterator[Block]:
    """A heat map of pairs of GPUs of a node, and one of pairs of nodes."""
    points = [one for one in profile.points if isinstance(one, LinkPoint)]
    for name, title, inside in (
        ("links-of-gpus", "between GPUs of a node", True),
        ("links-of-nodes", "between nodes", False),
    ):
        some = [one for one in points if is_inside(one) == inside]
        if some:
            yield _heat_map(name, title, rates_of(some), some)


def is_inside(point: LinkPoint) -> bool:
    """Both ends are GPUs of one node: their names share the host before the last colon."""
    one, other = (end.rpartition(":")[0] for end in (point.source, point.target))
    return bool(one) and one == other


def rates_of(points: Sequence[LinkPoint]) -> Rates:
    """Of the largest message the median of both ways and all repeats.

    Source: as `costmodel.measured.links.measured_links`.
    """
    largest = max(point.num_bytes for point in points)
    found: dict[frozenset[str], list[float]] = {}
    for point in points:
        if point.num_bytes == largest:
            ends = frozenset((point.source, point.target))
            found.setdefault(ends, []).append(largest / point.time.seconds / GB)
    return {ends: median(rates) for ends, rates in found.items()}


def _heat_map(name: str, title: str, rates: Rates, points: Sequence[LinkPoint]) -> Chart:
    ends = _ends(rates)
    doubted = {frozenset((one.source, one.target)) for one in points if is_odd(one.time)}
    usual, (slow, rate) = median(rates.values()), min(rates.items(), key=lambda item: item[1])
    names = [label(end) for end in ends]
    z = [[rates.get(frozenset((a, b))) if a != b else None for b in ends] for a in ends]
    marks = [["?" if frozenset((a, b)) in doubted else "" for b in ends] for a in ends]
    trace = {
        "type": "heatmap",
        "x": names,
        "y": names,
        "z": z,
        "text": marks,
        "texttemplate": "%{text}",
        "hovertemplate": "%{y} to %{x}: %{z:.4g} GB/s %{text}<extra></extra>",
        "hoverongaps": False,
        "colorscale": [[0, "@orange"], [0.5, "@grid"], [1, "@blue"]],
        "zmin": 0,
        "zmax": max(rates.values()),
        "colorbar": {"title": {"text": "GB/s"}, "thickness": 12},
        "xgap": 1,
        "ygap": 1,
    }
    axis = {"type": "category", "showgrid": False}
    return chart(
        name,
        f"GB/s {title}, largest message; ? is a timing to doubt",
        f"A pair usually reaches {usual:.4g} GB/s; slowest is {' to '.join(sorted(slow))} with "
        f"{rate:.4g}.",
        [trace],
        _pairs(title, rates, doubted),
        xaxis=axis,
        yaxis={**axis, **DOWN},
        height=min(760, 180 + 24 * len(ends)),
    )


def _ends(rates: Rates) -> list[str]:
    """All ends; of very many the slowest."""
    names = sorted({end for pair in rates for end in pair}, key=_natural)
    if len(names) <= MOST_ENDS:
        return names
    speed = {end: median(v for pair, v in rates.items() if end in pair) for end in names}
    slowest = set(sorted(names, key=lambda end: speed[end])[:MOST_ENDS])
    return [end for end in names if end in slowest]


def _natural(name: str) -> tuple[str, int, str]:
    """`node-10` after `node-9`."""
    stem = name.rstrip("0123456789")
    return stem, int(name[len(stem) :] or 0), name


def _pairs(title: str, rates: Rates, doubted: set[frozenset[str]]) -> Table:
    rows = [
        (*sorted(pair), rate, "to doubt" if pair in doubted else "")
        for pair, rate in sorted(rates.items(), key=lambda item: item[1])
    ]
    columns = ("end", "end", number("GB/s", "{:.4g}".format), "timing")
    return table(f"Pairs {title}, slowest first", columns, rows)
