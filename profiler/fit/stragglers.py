"""Slow nodes and slow links among measured pairs."""

from collections.abc import Iterator, Mapping, Sequence
from statistics import median

from trainplan.costmodel.profiles import LinkPoint

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
