"""How many ranks a launch starts, and on what."""

from typing import NamedTuple

from trainplan.costmodel.hardware import ClusterSpec, parse_cluster
from trainplan.planner.runtimes.reading import Field, Request
from trainplan.planner.shell import Launch, Problem, number

ASSUMED_GPU = "h100-sxm"
"""Where no one says. Source: assumed."""
ONE_RANK = ("torchrun", "python")
"""Starters of one rank where nothing is said. Source: torchrun --help."""
ALL_NODES = "deepspeed"
"""Starter that takes all nodes of a file, or this one. Source: DeepSpeed `launcher/runner.py`."""
USUAL_NODE = 8
"""GPUs of a node where nothing says any. Source: assumed, DGX and HGX nodes."""
LARGEST_WORLD = 1 << 20


def counts_of(launch: Launch) -> tuple[int, int] | None:
    """Nodes and ranks of each; null: a run alone tells. Ranks fill usual nodes by default."""
    one = 1 if launch.starter in ONE_RANK and launch.ranks is None else None
    alone = 1 if launch.starter == ALL_NODES else one
    nodes = alone if launch.nodes is None else number(launch.nodes)
    gpus = one if launch.gpus_per_node is None else number(launch.gpus_per_node)
    if launch.ranks is None:
        return None if nodes is None or gpus is None else (nodes, gpus)
    ranks = number(launch.ranks)
    return _dealt(ranks, gpus or (ranks // nodes if nodes else None)) if ranks else None


def _dealt(ranks: int, each: int | None = None) -> tuple[int, int] | None:
    """Ranks on nodes of so many each, or on usual ones; null: some would be left."""
    each = each or (USUAL_NODE if ranks % USUAL_NODE == 0 else ranks)
    return None if ranks % each else (ranks // each, each)


def is_silent(launch: Launch) -> bool:
    """Does it say nothing of its ranks?"""
    return not any((launch.nodes, launch.gpus_per_node, launch.ranks))


def ranks_of(launch: Launch, request: Request) -> int | None:
    """Ranks the launch starts, where it says so, or those of the cluster asked about."""
    counts = None if is_silent(launch) else counts_of(launch)
    open_nodes = launch.starter == ALL_NODES and launch.nodes is None
    if request.cluster is not None and (counts is None or open_nodes):
        return request.cluster.num_gpus
    return None if counts is None else counts[0] * counts[1]


class Machines(NamedTuple):
    """What the ranks of a launch run on."""

    cluster: ClusterSpec | None
    """Null: it cannot be."""
    fields: tuple[Field, ...] = ()
    problems: tuple[Problem, ...] = ()


def machines_of(launch: Launch, request: Request, ranks: int) -> Machines:
    """The cluster asked about, or so many GPUs of a common kind."""
    if request.cluster is not None and request.cluster.num_gpus == ranks:
        return Machines(request.cluster)
    if request.cluster is not None:
        says = f"the launch runs {ranks} ranks and the cluster has {request.cluster.num_gpus} GPUs"
        return _refused(f"{says}: make them equal")
    if ranks > LARGEST_WORLD:
        return _refused(f"{ranks} ranks are more than any cluster has")
    counts = counts_of(launch)
    if counts is None or counts[0] * counts[1] != ranks:
        counts = _dealt(ranks)
    assert counts is not None
    gpu = Field("cluster.gpu", ASSUMED_GPU, "assumed")
    cluster = parse_cluster(f"{counts[0]}x{counts[1]}:{ASSUMED_GPU}")
    return Machines(cluster, (*_stated(launch), gpu))


def _refused(says: str) -> Machines:
    return Machines(None, problems=(Problem("world_size", "illegal", says),))


def _stated(launch: Launch) -> tuple[Field, ...]:
    stated = {"num_nodes": launch.nodes, "gpus_per_node": launch.gpus_per_node}
    return tuple(
        Field(f"cluster.{name}", number(word), "stated", word.text, word.place)
        for name, word in stated.items()
        if word is not None and number(word) is not None
    )
