"""What is left of a cluster that lost nodes."""

import re
from collections import Counter
from collections.abc import Iterable

from trainplan.costmodel.base import SpecError, shortened
from trainplan.costmodel.hardware import DIGITS, ClusterSpec, LinkSpec

OF_GROUP = re.compile(r"((?P<group>[A-Za-z0-9._-]+):)?(?P<nodes>\d{1,9})", re.ASCII)
"""`2`, `a100-sxm-80gb:2`, or `1:2` of the second group, counted from 0."""
FORMS = "a number of nodes, GROUP:N, or the name of a node of its links"


def left_of(cluster: ClusterSpec, lost: Iterable[str], *, islands: bool = False) -> ClusterSpec:
    """The cluster without the nodes that were lost.

    Each of `lost` is a number of nodes, of one group where it names it, or a node of the measured
    links by its name. What joins groups goes where one is left. Where groups are equal `islands`, a
    number is of the last one, and of those before where it has fewer.

    Raises:
        SpecError: A text is of no form, names no group or node or does not state which, or more
            nodes are lost than there are, or all.
    """
    texts, links = tuple(lost), cluster.links
    gone: Counter[int] = Counter()
    names, unnamed = set[str](), 0
    for text in texts:
        if links is not None and text in links.nodes:
            if text in names:
                raise SpecError(f"--lost {text}: the node is named twice: name it once")
            names.add(text)
            gone[_group_of(cluster, links.nodes.index(text))] += 1
        elif islands and text.isascii() and text.isdigit() and len(text) <= DIGITS and int(text):
            unnamed += int(text)
        else:
            group, nodes = _read(cluster, text)
            gone[group] += nodes
    if links is not None and len(names) != gone.total():
        raise SpecError(
            f"--lost {texts[0]}: the links of the cluster name its nodes: name those that are "
            f"lost, such as --lost {links.nodes[0]}"
        )
    for place in range(len(cluster.groups) - 1, -1, -1):
        there = max(0, cluster.groups[place].num_nodes - gone[place])
        taken = min(unnamed, there) if place else unnamed
        gone[place], unnamed = gone[place] + taken, unnamed - taken
    for place, one in enumerate(cluster.groups):
        if gone[place] > one.num_nodes:
            raise SpecError(
                f"--lost: {gone[place]} of {one.gpu} are lost, and the plan has {one.num_nodes} "
                "such nodes: give at most one less than there are"
            )
    counts = [one.num_nodes - gone[place] for place, one in enumerate(cluster.groups)]
    if not any(counts):
        raise SpecError("--lost: no node is left: nothing to plan on; give at most one less")
    kept = links and _without(links, names)
    return cluster.with_nodes(counts).model_copy(update={"links": kept})


def _read(cluster: ClusterSpec, text: str) -> tuple[int, int]:
    """The place of a group, and how many of its nodes are lost."""
    match = OF_GROUP.fullmatch(text)
    if match is None:
        raise SpecError(f"--lost {shortened(text)!r}: expected {FORMS}")
    nodes, named = int(match["nodes"]), match["group"]
    if nodes == 0:
        raise SpecError(f"--lost {text}: no node is lost: give 1 or more")
    if named is None:
        if len(cluster.groups) > 1:
            some = " or ".join(f"{place}:{text}" for place in range(len(cluster.groups)))
            raise SpecError(f"--lost {text}: the cluster has several groups: name which, {some}")
        return 0, nodes
    names = [one.gpu for one in cluster.groups]
    places = [place for place, name in enumerate(names) if named in (name, str(place))]
    if len(places) == 1:
        return places[0], nodes
    known = ", ".join(f"{place} ({name})" for place, name in enumerate(names))
    which = "is the name of several groups" if places else "is no group"
    raise SpecError(f"--lost {text}: {named} {which}: groups are {known}")


def _group_of(cluster: ClusterSpec, node: int) -> int:
    """The place of the group of a node, by its place among all."""
    for place, one in enumerate(cluster.groups):
        if node < one.num_nodes:
            return place
        node -= one.num_nodes
    raise AssertionError("links name every node once")


def _without(links: LinkSpec, names: set[str]) -> LinkSpec | None:
    """The links between the nodes that are left; null where one is."""
    kept = [place for place, name in enumerate(links.nodes) if name not in names]
    if len(kept) < 2:
        return None
    speed = links.node_speed
    return LinkSpec(
        nodes=tuple(links.nodes[i] for i in kept),
        gb_per_s=tuple(tuple(links.gb_per_s[i][j] for j in kept) for i in kept),
        node_speed=speed and tuple(speed[i] for i in kept),
    )
