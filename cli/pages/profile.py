"""A profile as text: what was measured, what it shows, what is missing."""

import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean

from rich.console import RenderableType
from rich.text import Text

from trainplan.cli.blocks import Cell, Column, Part, Table, number, section, table
from trainplan.cli.pages.plan import notes_part
from trainplan.cli.words import DOT, percent, plural, seconds
from trainplan.costmodel.base import GB
from trainplan.costmodel.profiles import (
    Flag,
    LayerPoint,
    OffloadedStepPoint,
    Point,
    PowerPoint,
    Profile,
    Timing,
)
from trainplan.profiler.fit import KnownQuantity, has_spec, least_certain, next_measurement, spec_of

SHOWN_LAYERS = 5
Power = tuple[str, float, float | None, float | None, float | None]
"""State, watts, joules of a call, MHz of the multiprocessors, degrees Celsius."""


def powers(profile: Profile) -> Iterator[Power]:
    """Means over GPUs in the same state; of temperatures the highest."""
    groups: dict[tuple[str, int], list[PowerPoint]] = {}
    for point in profile.points:
        if isinstance(point, PowerPoint):
            groups.setdefault((point.state, point.gpus), []).append(point)
    for (state, gpus), mine in groups.items():
        written = f"{state}, all {gpus} GPUs at once" if gpus > 1 else state
        heat = max((p.celsius for p in mine if p.celsius is not None), default=None)
        energy, clock = (p.joules_per_call for p in mine), (p.sm_mhz for p in mine)
        yield written, fmean(p.watts for p in mine), _mean([*energy]), _mean([*clock]), heat


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def waiting(profile: Profile) -> Iterator[tuple[str, Timing]]:
    """Passes of layers that Python queues slower than the GPU runs them."""
    for point in profile.points:
        if not isinstance(point, LayerPoint):
            continue
        sort, tokens = "moe" if point.moe else "dense", point.micro_batch_size * point.seq_length
        written = f"{point.model.name} ({point.runtime}, {sort}, tp {point.tp}, {tokens} tokens)"
        for name, time in timings(point):
            if time.in_a_row > time.seconds:
                yield f"{name.replace('_', ' ')} of {written}", time


def power_table(profile: Profile) -> Table:
    """Power by state."""
    joules = "by the counter of energy where the GPU has one"
    few = "{:.4g}".format
    heads = (number("J a call", few, joules), number("SM MHz", few), number("C", few))
    columns = (Column("state", screen="Power of a GPU"), number("W", "{:.0f}".format), *heads)
    rows = (["" if one is None else one for one in row] for row in powers(profile))
    return table("Power of a GPU, mean of those in the same state", columns, rows)


def host_parts(profile: Profile) -> Iterator[Part]:
    """Power as a table and layers as a list, where there are any."""
    power = power_table(profile)
    if power.rows:
        yield power
    slow = [
        f"{what}: {seconds(time.in_a_row)} to queue, {seconds(time.seconds)} to run"
        for what, time in waiting(profile)
    ]
    if slow:
        more = len(slow) - SHOWN_LAYERS
        rest = [f"and {more} more, see `plan report`"] if more > 0 else []
        yield section("Layers that wait for Python", *slow[:SHOWN_LAYERS], *rest)


SHOWN_FAILURES = 5
NOT_ODD: tuple[Flag, ...] = ("stated",)


def profile_page(profile: Profile, path: Path) -> Iterator[Part]:
    """What was measured, the curves, what failed and what to do with it."""
    yield headline(profile)
    curves = curves_table(profile)
    yield curves if curves.rows else Text("No curve yet: see below.")
    yield from host_parts(profile)
    if steps := [p for p in profile.points if isinstance(p, OffloadedStepPoint)]:
        yield section("A step from the drive", *map(_offloaded, steps))
    if profile.failures:
        yield failures_part(profile)
    if profile.notes:
        yield notes_part(profile.notes)
    name = shlex.quote(str(path))
    if not has_spec(profile):
        yield section(
            "Next",
            "plan profile --only gemm --only stream --output device.json",
            f"plan doctor device.json {name}   (commands need these numbers of {profile.gpu})",
        )
        return
    yield section(
        "Next",
        f"plan doctor {name}   (what is measured, what is assumed)",
        f"plan search --cluster {name} ...   or add --profile {name}",
    )


def headline(profile: Profile) -> Text:
    """The machine, and how much of it was measured."""
    count = len(profile.points)
    text = Text(f"{plural(count, 'point')} of {profile.gpu}", style="bold green")
    machine = f"{profile.num_nodes} x {profile.gpus_per_node} {profile.gpu}"
    parts = [machine, *(f"torch {profile.software.torch}" for _ in [0] if profile.software)]
    wall = sum(origin.wall_seconds or 0 for origin in profile.origins)
    parts += [f"{wall:.0f} s"] if wall else []
    text.append("\n" + DOT.join(parts), style="not bold default")
    times = [time for point in profile.points for _, time in timings(point)]
    odd = Counter(flag for time in times for flag in time.flags if flag not in NOT_ODD)
    if odd:
        written = ", ".join(f"{number} {flag}" for flag, number in odd.most_common())
        text.append(f"\ntimings to doubt, of {len(times)}: {written}", style="not bold yellow")
    return text


def curves_table(profile: Profile) -> Table:
    """The fitted curves with what they leave of a point they have not seen."""
    off = "median error of a point that the curve was fitted without"
    columns = (Column("curve", screen="Curve"), "says", number("off by", percent, off))
    scatter = profile.scatter_fraction
    rows = ((name, says, scatter[key] if key else "") for name, says, key in curves_of(profile))
    return table("Curves that are fitted, and how well they predict a point", columns, rows)


def curves_of(profile: Profile) -> Iterator[tuple[str, str, str]]:
    """Every curve: its name, its text, and its key in `scatter_fraction` or nothing."""
    fitted, scatter = profile.fitted, profile.scatter_fraction
    peaks = spec_of(profile).peak_tflops if fitted.gemm else {}
    for name, gemm in fitted.gemm.items():
        if name not in peaks:
            continue
        reached = peaks[name].value / max(gemm.flop_factor, 1e-9)
        key = f"{name} products"
        says = f"{reached:.4g} TFLOP/s of large ones, {gemm.fixed_us:.3g} us to start"
        yield f"{name} products", says, key if key in scatter else ""
    if fitted.attention:
        best = fitted.attention.max_efficiency
        half = fitted.attention.half_length
        yield "attention", f"{percent(best)} of peak, half of it at {half:.0f} tokens", ""
    for name, one in fitted.collectives.items():
        says = f"{one.bus_gb_per_s:.4g} GB/s, {one.alpha_us:.3g} us to start"
        yield name, says, name if name in scatter else ""
    for name, constant in profile.constants.items():
        if name == "elementwise_efficiency":
            rate = constant.value * spec_of(profile).memory_gb_per_s.value
            yield "kernels without reuse", f"{rate:.4g} GB/s", ""


def _offloaded(point: OffloadedStepPoint) -> str:
    """Measured against estimated."""
    measured, off = point.time.seconds, point.path_seconds / point.time.seconds - 1
    lane = max(point.lane_seconds, key=lambda name: point.lane_seconds[name])
    return (
        f"{point.layers} layers of {point.width}, {point.tokens} tokens: {seconds(measured)} "
        f"measured, {seconds(point.path_seconds)} estimated ({off:+.0%}), of which "
        f"{seconds(point.floor_seconds)} are {lane}; {point.read_bytes / GB:.3g} GB read, "
        f"{point.written_bytes / GB:.3g} GB written{', in the cache alone' * point.cached}"
    )


def failures_part(profile: Profile) -> RenderableType:
    """What was requested and not measured."""
    lines = []
    for failure in profile.failures[:SHOWN_FAILURES]:
        who = f" (rank {failure.rank} on {failure.host})" if failure.host else ""
        lines.append(f"{failure.item}: {failure.detail}{who}")
    more = len(profile.failures) - SHOWN_FAILURES
    lines += [f"and {more} more, see the file"] if more > 0 else []
    return section("Not measured", *lines)


def coverage_page(profile: Profile, known: Sequence[KnownQuantity], job: str) -> Iterator[Part]:
    """Every quantity with where it comes from, and the most useful next measurement."""
    yield headline(profile)
    whole = partial(percent, digits=0)
    counts = (number("points", str), number("doubtful"))
    shares = (number("off by", whole), number("share of a step", whole))
    rows = (
        (
            one.quantity.name,
            Cell(one.kind, tone="good" if one.kind == "measured" else "doubtful"),
            one.points or "",
            f"{one.doubtful} of {one.timings}" if one.doubtful else "",
            one.scatter_fraction or "",
            one.share or "",
        )
        for one in known
    )
    yield table("", ("Quantity", "from", *counts, *shares), rows)
    yield from host_parts(profile)
    if profile.failures:
        yield failures_part(profile)
    if profile.notes:
        yield notes_part(profile.notes)
    yield section("Next", *_advice(known, job))


def _advice(known: Sequence[KnownQuantity], job: str) -> Iterator[str]:
    """The most useful measurement, first or again, and its command."""
    best = next_measurement(known) or least_certain(known)
    if best is None:
        yield "all that counts is measured; `plan calibrate` corrects by whole steps"
        return
    yield f"plan profile --only {best.quantity.item} --output more.json"
    says = f"{best.kind}, {percent(best.share, 0)} of a step of {job}"
    if best.kind == "measured" or not best.uncertainty:
        noise = percent(best.noise_fraction or 0.0, 0)
        says = f"{best.doubtful} of {best.timings} timings are doubtful, off by {noise}; {says}"
        yield f"repeat it while nothing else runs: {best.quantity.name}: {says}"
    else:
        yield f"would shrink the error most: {best.quantity.name}: {says}"
    yield (
        "add your --model, --precision and --nproc-per-node, and give both files with --profile; "
        "of a doubtful timing and a clean one the latter counts"
    )


def timings(point: Point) -> Iterator[tuple[str, Timing]]:
    """Timings of a point, with the names of their fields."""
    return ((name, value) for name, value in point if isinstance(value, Timing))
