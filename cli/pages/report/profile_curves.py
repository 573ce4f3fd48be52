"""Collectives, kernels and copies of a profile by size, with the curves through them."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from trainplan.cli.blocks import Block, Chart, Table, number, table
from trainplan.cli.pages.figures import chart, label, log_axis, scatter, series, short
from trainplan.cli.pages.report.profile_links import (
    bytes_axis,
    fitted_line,
    is_odd,
    markers,
    spaced,
)
from trainplan.cli.words import percent, plural, seconds
from trainplan.costmodel.base import GB
from trainplan.costmodel.machine import curve_name
from trainplan.costmodel.measured import collective_seconds_on, inside_domain
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
    apart = "" if point.stride == 1 else f", stride {point.stride}"
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
    return chart(
        f"collective-{word}",
        f"{word}: seconds by bytes of the full tensor, both axes logarithmic; dashed is the curve, "
        "crossed points are to be doubted",
        f"{plural(len(points), 'timing')} of {plural(len(groups), 'kind')} of groups, "
        f"{odd} to be doubted.",
        traces,
        _collective_table(word, points),
        x="bytes",
        y="seconds",
        xaxis=bytes_axis(one.num_bytes for one in points),
        yaxis=log_axis((p.time.seconds for p in points), partial(short, unit="s")),
    )


def _collective_traces(
    profile: Profile, name: str, points: Sequence[CollectivePoint], place: int
) -> Iterator[Mapping[str, object]]:
    points = sorted(points, key=lambda one: one.num_bytes)
    colour = series(place)
    ends = [one.time.seconds * one.time.half_width_fraction for one in points]
    yield scatter(
        name,
        [one.num_bytes for one in points],
        [one.time.seconds for one in points],
        "%{x:.4s}B: %{y:.4s}s<extra>%{fullData.name}</extra>",
        error_y={"type": "data", "array": ends, "thickness": 1, "width": 2},
        marker=markers([one.time for one in points], colour),
    )
    first = points[0]
    curve = curve_name(first.operation, first.ranks, first.stride)
    domain = spec_of(profile).nvlink_domain if has_spec(profile) else first.ranks
    if curve in profile.fitted.collectives and inside_domain(points, curve, domain):
        sizes = [round(size) for size in spaced([one.num_bytes for one in points])]
        request = [first.model_copy(update={"num_bytes": size}) for size in sizes]
        took = collective_seconds_on(profile.fitted.collectives[curve], request)
        yield fitted_line(sizes, [float(t) for t in took], f"{name}, fitted", colour)


def _collective_table(word: str, points: Sequence[CollectivePoint]) -> Table:
    times = (number("seconds", seconds), number("spread", percent))
    rows = (
        (*(_group(p), p.num_bytes, p.time.seconds, p.time.spread_fraction), ", ".join(p.time.flags))
        for p in points
    )
    return table(word, ("group", number("bytes"), *times, "flags"), rows)


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
            scatter(
                label(kind),
                [size for _, size, _ in some],
                map(rate, some),
                "%{x:.4s}B: %{y:.4g} GB/s<extra>%{fullData.name}</extra>",
                mode="lines+markers",
                line={"color": series(place), "width": 1},
                marker=markers([time for _, _, time in some], series(place)),
            )
        )
    columns = ("what", number("bytes"), number("GB/s"), "flags")
    rows = ((one[0], one[1], rate(one), ", ".join(one[2].flags)) for one in points)
    return chart(
        name,
        f"{title}: GB/s by bytes; crossed points are to be doubted",
        f"The fastest is {best[0]} with {rate(best):.4g} GB/s.",
        traces,
        table(title, columns, rows),
        x="bytes",
        y="GB/s",
        xaxis=bytes_axis(size for _, size, _ in points),
        yaxis={"rangemode": "tozero"},
    )
