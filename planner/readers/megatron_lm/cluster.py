"""On what a launch runs: as many nodes as it says, of GPUs that the user says or that we take."""

from __future__ import annotations

from dataclasses import dataclass

from trainplan.costmodel import catalog
from trainplan.costmodel.base import PlanError
from trainplan.costmodel.spec import ClusterSpec
from trainplan.costmodel.spec.cluster import parse_cluster
from trainplan.planner.readers.reading import Asked, Field, Launch, Problem, Word

ASSUMED_GPU = "h100-sxm"
"""Where no one says. Source: assumed."""
ONE_RANK = ("torchrun", "python")
"""Starters of one rank where nothing is said. Source: torchrun --help."""
LONGEST = 9
"""Digits of a count that are read."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where the ranks run."""

    cluster: ClusterSpec | None
    """Null: nothing says how many."""
    fields: tuple[Field, ...]
    problems: tuple[Problem, ...]

    @property
    def old_gpu(self) -> bool:
        """Is some GPU older than Blackwell?"""
        groups = self.cluster.groups if self.cluster else ()
        return not groups or any(catalog.device(g).architecture != "blackwell" for g in groups)


def place_of(launch: Launch, asked: Asked) -> Place:
    """The cluster of a launch, or the user's where the launch leaves counts open."""
    nodes, gpus = _count(launch, launch.nodes), _count(launch, launch.gpus_per_node)
    if asked.cluster is not None:
        silent = launch.nodes is None and launch.gpus_per_node is None
        if silent or nodes is None or gpus is None or nodes * gpus == asked.cluster.num_gpus:
            return Place(asked.cluster, _fields(asked.cluster, launch, "stated"), ())
        return _resized(asked.cluster, launch, nodes, gpus)
    if nodes is None or gpus is None:
        words = (launch.nodes, launch.gpus_per_node)
        open_words = [word for word in words if word and _count(launch, word) is None]
        what = f" ({open_words[0].text[:40]})" if open_words else ""
        says = f"the number of ranks is known to a run alone{what}: say --cluster NODESxGPUS:GPU"
        problem = Problem("world_size", "unread", says, open_words[0].place if open_words else None)
        return Place(None, (), (problem,))
    try:
        cluster = parse_cluster(f"{nodes}x{gpus}:{ASSUMED_GPU}")
    except PlanError as error:
        return Place(None, (), (Problem("world_size", "unread", str(error)),))
    return Place(cluster, _fields(cluster, launch, "assumed"), ())


def _resized(asked: ClusterSpec, launch: Launch, nodes: int, gpus: int) -> Place:
    """The launch says how many ranks there are, the user what they run on."""
    try:
        cluster = parse_cluster(f"{nodes}x{gpus}:{asked.groups[0].gpu}")
    except PlanError as error:
        return Place(None, (), (Problem("world_size", "unread", str(error)),))
    says = (
        f"the launch starts {nodes * gpus} ranks and the cluster has {asked.num_gpus} GPUs: "
        f"priced on {cluster.name}, correct one of them"
    )
    problem = Problem("cluster_size", "ignored", says, launch.nodes.place if launch.nodes else None)
    return Place(cluster, _fields(cluster, launch, "stated"), (problem,))


def _count(launch: Launch, word: Word | None) -> int | None:
    """A count; where nothing is said, one of starters that take one, and unknown of others."""
    if word is None:
        return 1 if launch.starter in ONE_RANK else None
    known = not word.unresolved and word.text.isascii() and word.text.isdigit()
    return int(word.text[:LONGEST]) if known else None


def _fields(cluster: ClusterSpec, launch: Launch, gpu: str) -> tuple[Field, ...]:
    group = cluster.groups[0]
    counts = (
        ("num_nodes", group.num_nodes, launch.nodes),
        ("gpus_per_node", group.gpus_per_node, launch.gpus_per_node),
    )
    return (
        *(
            Field(
                f"cluster.{name}",
                value,
                "default" if word is None else "stated",
                word.text if word else "",
                word.place if word else None,
            )
            for name, value, word in counts
        ),
        Field("cluster.gpu", group.gpu, "stated" if gpu == "stated" else "assumed"),
    )
