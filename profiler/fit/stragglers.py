"""Slow nodes and links among measured pairs, and what GPUs lose when all of a node are loaded."""

from collections.abc import Iterator, Mapping, Sequence
from statistics import median

from trainplan.costmodel.profiles import LinkPoint, PowerPoint

SLOW_FRACTION = 0.88
"""A node, or a link, with less than that of the usual bandwidth is named.

Source: `measured` by simulation: of up to 1,024 nodes, 2 % of them at 0.75 of the bandwidth, with
4 % noise and 3 % spikes, five random rounds find all and accuse less than 0.1 % of the others.
"""
LEAST_PAIRS = 3
"""Fewer pairs of a node say nothing of it."""


def slow_notes(points: Sequence[LinkPoint]) -> Iterator[str]:
    """One sentence for every slow node, and for every slow link between good nodes.

    A node is judged by the median of its pairs, so one slow partner does not make it suspect.
    """
    shares = _shares(points)
    ends = sorted({end for pair in shares for end in pair})
    by_end = {end: [share for pair, share in shares.items() if end in pair] for end in ends}
    slow = {
        end: median(found)
        for end, found in by_end.items()
        if len(found) >= LEAST_PAIRS and median(found) < SLOW_FRACTION
    }
    for end, share in slow.items():
        yield f"slow node or GPU: {end} reaches {share:.0%} of the usual bandwidth of a pair"
    for (one, other), share in shares.items():
        if share < SLOW_FRACTION and not {one, other} & slow.keys():
            yield f"slow link: {one} to {other} reaches {share:.0%} of the usual bandwidth"


def _shares(points: Sequence[LinkPoint]) -> Mapping[tuple[str, str], float]:
    """Bandwidth of each pair over that of the median pair, at the largest message of each sort.

    Pairs inside a node and pairs of nodes are told apart by how their ends are called.
    """
    found: dict[tuple[str, str], float] = {}
    for sort in (True, False):
        mine = [point for point in points if _inside(point) == sort]
        largest = max((point.num_bytes for point in mine), default=0)
        rates: dict[tuple[str, str], list[float]] = {}
        for point in mine:
            if point.num_bytes == largest:
                pair = (point.source, point.target)
                rates.setdefault(pair, []).append(largest / point.time.seconds)
        usual = median([median(rate) for rate in rates.values()]) if rates else 1.0
        found |= {pair: median(rate) / usual for pair, rate in rates.items()}
    return found


def _inside(point: LinkPoint) -> bool:
    """A pair of GPUs of one node: its ends share the host before the last colon."""
    one, other = (end.rpartition(":")[0] for end in (point.source, point.target))
    return bool(one) and one == other


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
