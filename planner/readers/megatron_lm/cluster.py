"""On what a launch runs: as many nodes as it says, of GPUs that the user says or that we take."""

from __future__ import annotations

from dataclasses import dataclass

from trainplan.costmodel import catalog
from trainplan.costmodel.base import PlanError
from trainplan.costmodel.spec import ClusterSpec
from trainplan.costmodel.spec.cluster import parse_cluster
from trainplan.costmodel.spec.job import Precision
from trainplan.planner.readers.megatron_lm.arguments import shown
from trainplan.planner.readers.reading import Asked, Field, Launch, Problem, Word

ASSUMED_GPU = "h100-sxm"
"""Where no one says. Source: assumed."""
ONE_RANK = ("torchrun", "python")
"""Starters of one rank where nothing is said. Source: torchrun --help."""
USUAL_NODE = 8
"""GPUs of a node where nothing says any. Source: assumed, DGX and HGX nodes."""
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


def lacks_format(cluster: ClusterSpec, precision: Precision) -> str | None:
    """A GPU without matrix units of a format; null: all have some."""
    lacking = (g for g in cluster.groups if precision not in catalog.device(g).peak_tflops)
    return next((group.gpu for group in lacking), None)


def place_of(launch: Launch, asked: Asked) -> Place:
    """The cluster of a launch, or the user's where the launch leaves counts open."""
    counts = _counts(launch)
    if asked.cluster is not None:
        silent = not any((launch.nodes, launch.gpus_per_node, launch.ranks))
        if silent or counts is None or counts[0] * counts[1] == asked.cluster.num_gpus:
            return Place(asked.cluster, _fields(asked.cluster, launch, "stated"), ())
        return _resized(asked.cluster, launch, *counts)
    if counts is None:
        words = (launch.ranks, launch.nodes, launch.gpus_per_node)
        unknown = next((word for word in words if word and _count(word) is None), None)
        what = f" ({shown(unknown.text)})" if unknown else ""
        says = f"the number of ranks is known to a run alone{what}: say --cluster NODESxGPUS:GPU"
        problem = Problem("world_size", "unread", says, unknown.place if unknown else None)
        return Place(None, (), (problem,))
    try:
        cluster = parse_cluster(f"{counts[0]}x{counts[1]}:{ASSUMED_GPU}")
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


def _counts(launch: Launch) -> tuple[int, int] | None:
    """Nodes and ranks of each; null: a run alone tells. Ranks fill usual nodes by default."""
    one = 1 if launch.starter in ONE_RANK and launch.ranks is None else None
    nodes = one if launch.nodes is None else _count(launch.nodes)
    gpus = one if launch.gpus_per_node is None else _count(launch.gpus_per_node)
    ranks = None if launch.ranks is None else _count(launch.ranks)
    if ranks is not None:
        known = gpus or (ranks // nodes if nodes else None)
        each = known or (USUAL_NODE if ranks % USUAL_NODE == 0 else ranks)
        return (ranks // each, each) if ranks and ranks % each == 0 else None
    return None if nodes is None or gpus is None else (nodes, gpus)


def _count(word: Word) -> int | None:
    """A count; null: none, or one that only a run tells."""
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
