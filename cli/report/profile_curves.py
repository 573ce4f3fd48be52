"""Collectives, kernels and copies of a profile by size, with the curves through them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from trainplan.cli.blocks.blocks import Block, Chart, Table
from trainplan.cli.blocks.figures import figure, label, layout
from trainplan.cli.blocks.tables import (
    Columns,
    cell,
    log_axis,
    number,
    seconds_cell,
    series,
    share_cell,
    short,
    table,
)
from trainplan.cli.report.profile_points import bytes_axis, fitted_line, is_odd, markers, spaced
from trainplan.cli.words import plural
from trainplan.costmodel.base import GB
from trainplan.costmodel.machine import curve_name
from trainplan.costmodel.measured.curve_residuals import collective_seconds_on, inside_domain
from trainplan.costmodel.profiles import CollectivePoint, CopyPoint, Profile, StreamPoint, Timing
from trainplan.profiler.fit import has_spec, spec_of


def collective_charts(profile: Profile) -> Iterator[Block]:
    """Seconds of each collective by bytes, with the curve of each size of group."""
    points = [one for one in profile.points if isinstance(one, CollectivePoint)]
    for operation in dict.fromkeys(one.operation for one in points):
        yield _collective(profile, operation, [p for p in points if p.operation == operation])


def _group(point: CollectivePoint) -> str:
    """The groups of a point in a few words."""
    inside = point.per_node == point.ranks
    where = "" if inside else f", {point.per_node} in a node"
    apart = "" if point.stride == 1 else f", {point.stride} apart"
    return f"{point.ranks} GPUs{where}{apart}"


def _collective(profile: Profile, operation: str, points: Sequence[CollectivePoint]) -> Chart:
    groups = list(dict.fromkeys(_group(one) for one in points))
    traces = [
        trace
        for place, name in enumerate(groups)
        for trace in _collective_traces(
            profile, name, [p for p in points if _group(p) == name], place
        )
    ]
    odd = sum(is_odd(one.time) for one in points)
    word = operation.replace("_", "-")
    return Chart(
        name=f"collective-{word}",
        caption=f"{word}: seconds by bytes of the full tensor, both axes logarithmic; dashed is "
        "the curve, crossed points are to be doubted",
        says=f"{plural(len(points), 'timing')} of {plural(len(groups), 'kind')} of groups, "
        f"{odd} to be doubted.",
        figure=figure(
            traces,
            layout(
                x="bytes",
                y="seconds",
                xaxis=bytes_axis(one.num_bytes for one in points),
                yaxis=log_axis((p.time.seconds for p in points), partial(short, unit="s")),
            ),
        ),
        numbers=_collective_table(word, points),
    )


def _collective_traces(
    profile: Profile, name: str, points: Sequence[CollectivePoint], place: int
) -> Iterator[Mapping[str, object]]:
    points = sorted(points, key=lambda one: one.num_bytes)
    colour = series(place)
    yield {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "x": [one.num_bytes for one in points],
        "y": [one.time.seconds for one in points],
        "error_y": {
            "type": "data",
            "array": [one.time.seconds * one.time.half_width_fraction for one in points],
            "thickness": 1,
            "width": 2,
        },
        "hovertemplate": "%{x:.4s}B: %{y:.4s}s<extra>%{fullData.name}</extra>",
        "marker": markers([one.time for one in points], colour),
    }
    first = points[0]
    curve = curve_name(first.operation, first.ranks, first.stride)
    domain = spec_of(profile).nvlink_domain if has_spec(profile) else first.ranks
    if curve in profile.fitted.collectives and inside_domain(points, curve, domain):
        sizes = [round(size) for size in spaced([one.num_bytes for one in points])]
        asked = [first.model_copy(update={"num_bytes": size}) for size in sizes]
        took = collective_seconds_on(profile.fitted.collectives[curve], asked)
        yield fitted_line(sizes, [float(t) for t in took], f"{name}, fitted", colour)


def _collective_table(word: str, points: Sequence[CollectivePoint]) -> Table:
    columns: Columns = (
        "group",
        number("bytes"),
        number("seconds"),
        number("spread"),
        "flags",
    )
    rows = [
        (
            _group(p),
            p.num_bytes,
            seconds_cell(p.time.seconds),
            share_cell(p.time.spread_fraction),
            ", ".join(p.time.flags),
        )
        for p in points
    ]
    return table(word, columns, rows)


def bandwidth_charts(profile: Profile) -> Iterator[Block]:
    """GB/s of kernels bound by memory, and of copies, by bytes."""
    kernels = [
        (one.name, one.moved_bytes, one.time)
        for one in profile.points
        if isinstance(one, StreamPoint)
    ]
    copies = [
        (_copy(one), one.num_bytes, one.time)
        for one in profile.points
        if isinstance(one, CopyPoint)
    ]
    if kernels:
        yield _bandwidth("kernels", "Kernels bound by memory", kernels)
    if copies:
        yield _bandwidth("copies", "Copies", copies)


def _copy(point: CopyPoint) -> str:
    words = [point.direction.replace("_", " ")]
    words += [f"{point.concurrent} at once"] * (point.concurrent > 1)
    words += ["pageable"] * point.pageable
    words += ["both ways"] * point.both_ways + ["cached"] * point.cached
    return ", ".join(words)


def _bandwidth(name: str, title: str, points: Sequence[tuple[str, int, Timing]]) -> Chart:
    def rate(entry: tuple[str, int, Timing]) -> float:
        return entry[1] / entry[2].seconds / GB

    kinds = list(dict.fromkeys(one for one, _, _ in points))
    best = max(points, key=rate)
    traces = []
    for place, kind in enumerate(kinds):
        some = sorted((p for p in points if p[0] == kind), key=lambda p: p[1])
        traces.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": label(kind),
                "x": [size for _, size, _ in some],
                "y": [rate(one) for one in some],
                "line": {"color": series(place), "width": 1},
                "hovertemplate": "%{x:.4s}B: %{y:.4g} GB/s<extra>%{fullData.name}</extra>",
                "marker": markers([time for _, _, time in some], series(place)),
            }
        )
    return Chart(
        name=name,
        caption=f"{title}: GB/s by bytes; crossed points are to be doubted",
        says=f"The fastest is {best[0]} with {rate(best):.4g} GB/s.",
        figure=figure(
            traces,
            layout(
                x="bytes",
                y="GB/s",
                xaxis=bytes_axis(size for _, size, _ in points),
                yaxis={"rangemode": "tozero"},
            ),
        ),
        numbers=table(
            title,
            ("what", number("bytes"), number("GB/s"), "flags"),
            [(one[0], one[1], cell(rate(one)), ", ".join(one[2].flags)) for one in points],
        ),
    )
