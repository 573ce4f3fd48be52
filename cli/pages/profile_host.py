"""What a profile says of power, and of layers that wait for Python."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean

from trainplan.cli.blocks import Column, Part, Table, number, section, table
from trainplan.cli.words import seconds
from trainplan.costmodel.profiles import LayerPoint, PowerPoint, Profile, Timing

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
        said = f"{state}, all {gpus} GPUs at once" if gpus > 1 else state
        heat = max((p.celsius for p in mine if p.celsius is not None), default=None)
        energy, clock = (p.joules_per_call for p in mine), (p.sm_mhz for p in mine)
        yield said, fmean(p.watts for p in mine), _mean([*energy]), _mean([*clock]), heat


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def waiting(profile: Profile) -> Iterator[tuple[str, Timing]]:
    """Passes of layers that Python queues slower than the GPU runs them."""
    for point in profile.points:
        if not isinstance(point, LayerPoint):
            continue
        sort, tokens = "moe" if point.moe else "dense", point.micro_batch_size * point.seq_length
        said = f"{point.model.name} ({point.runtime}, {sort}, tp {point.tp}, {tokens} tokens)"
        for name, time in point:
            if isinstance(time, Timing) and time.in_a_row > time.seconds:
                yield f"{name.replace('_', ' ')} of {said}", time


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
