"""What GPUs lose when all of a node are loaded at once: power and heat they share."""

from collections.abc import Iterator, Sequence

from trainplan.costmodel.profiles import PowerPoint

SLOWER_FRACTION = 0.03
"""Less is not remarked upon. Source: as the fixed product of `profiler.host.probe`."""


def throttling_notes(points: Sequence[PowerPoint]) -> Iterator[str]:
    """A sentence for each load in which the slowest GPU of a full node is slower than one alone."""
    for state in dict.fromkeys(point.state for point in points):
        alone = [_seconds(p) for p in points if p.state == state and p.gpus == 1 and _seconds(p)]
        full = [p for p in points if p.state == state and p.gpus > 1 and _seconds(p)]
        if not alone or not full:
            continue
        slowest = max(full, key=_seconds)
        ratio = _seconds(slowest) / min(alone)
        if ratio > 1 + SLOWER_FRACTION:
            single = next(p for p in points if p.state == state and _seconds(p) == min(alone))
            yield (
                f"with all {slowest.gpus} GPUs of a node loaded at once a {state} takes "
                f"{ratio:.2f} times as long on the slowest, {slowest.gpu}, as on one alone: "
                + ", ".join(_conditions(slowest, single))
            )


def _seconds(point: PowerPoint) -> float:
    return point.seconds_per_call or 0.0


def _conditions(point: PowerPoint, alone: PowerPoint) -> Iterator[str]:
    """What the driver says of it."""
    if point.sm_mhz and alone.sm_mhz:
        yield f"SM clock {point.sm_mhz:.0f} MHz, alone {alone.sm_mhz:.0f}"
    yield f"{point.watts:.0f} W"
    if point.celsius:
        yield f"{point.celsius:.0f} C"
    yield from (f"slowed down by {reason}" for reason in point.slowed_by)
