"""Bandwidth between the nodes of a profile."""

import re
from statistics import median

from trainplan.costmodel.base import GB
from trainplan.costmodel.hardware import MOST_LINKED_NODES, NODE_NAME, LinkSpec
from trainplan.costmodel.profiles import LinkPoint, Profile


def measured_links(profile: Profile) -> LinkSpec | None:
    """Bandwidth between all nodes; null where some pair was not measured, or a name is none.

    Source: of a message of the largest size the start is the smallest part, so its bytes over its
    seconds are nearest to the bandwidth; of both ways and all repeats the median counts.
    """
    names = [host.name for host in profile.hosts]
    named = len(set(names)) == len(names) == profile.num_nodes <= MOST_LINKED_NODES
    if not named or len(names) < 2 or not all(re.fullmatch(NODE_NAME, name) for name in names):
        return None
    points = [p for p in profile.points if isinstance(p, LinkPoint) and p.source in names]
    largest = max((p.num_bytes for p in points), default=0)
    rates: dict[frozenset[str], list[float]] = {}
    for point in points:
        if point.num_bytes == largest:
            ends = frozenset((point.source, point.target))
            rates.setdefault(ends, []).append(largest / point.time.seconds / GB)
    pairs = {frozenset((one, other)) for one in names for other in names if one != other}
    if not pairs <= rates.keys():
        return None
    return LinkSpec(
        nodes=tuple(names),
        gb_per_s=tuple(
            tuple(median(rates.get(frozenset((a, b)), [0.0])) for b in names) for a in names
        ),
    )
