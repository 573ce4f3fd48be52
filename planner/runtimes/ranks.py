"""How many ranks a launch starts, and on what."""

import re
from typing import NamedTuple

from trainplan.costmodel import catalog
from trainplan.costmodel.base import PlanError
from trainplan.costmodel.hardware import ClusterSpec, parse_cluster
from trainplan.costmodel.job import Precision
from trainplan.costmodel.presets import gpus_called, machine_named, machines, read_cluster
from trainplan.planner.runtimes.reading import Field, Origin, Request
from trainplan.planner.shell import Launch, Problem, Word, number

ASSUMED_GPU = "h100-sxm"
"""Where no one says and it has the format. Source: assumed."""
ONE_RANK = "torchrun"
"""Starter of one rank where nothing is said. Source: torchrun --help."""
ALL_NODES = "deepspeed"
"""Starter that takes all nodes of a file, or this one. Source: DeepSpeed `launcher/runner.py`."""
USUAL_NODE = 8
"""GPUs of a node where nothing says any. Source: assumed, DGX and HGX nodes."""
LARGEST_WORLD = 1 << 20


def counts_of(launch: Launch) -> tuple[int, int] | None:
    """Nodes and ranks of each; null: a run alone tells. Ranks fill usual nodes by default."""
    one = 1 if launch.starter == ONE_RANK and launch.ranks is None else None
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


def is_counted(launch: Launch) -> bool:
    """Are all of its ranks stated? Where they are not, a line that was not read may say more."""
    stated = (launch.ranks,) if launch.ranks else (launch.nodes, launch.gpus_per_node)
    return all(word is not None and not word.fallback for word in stated)


def agrees(launch: Launch, cluster: ClusterSpec, nodes: int, gpus: int) -> bool:
    """Is what the launch states of its ranks so on the cluster?"""
    if is_counted(launch):
        return nodes * gpus == cluster.num_gpus
    group = cluster.groups[0]
    stated = (
        (launch.nodes, nodes, group.num_nodes),
        (launch.gpus_per_node, gpus, group.gpus_per_node),
    )
    return all(w is None or w.fallback or count == own for w, count, own in stated)


def ranks_of(launch: Launch, request: Request) -> int | None:
    """Ranks the launch starts, where it says so, or those of the cluster asked about."""
    counts = None if is_silent(launch) else counts_of(launch)
    cluster = request.cluster
    open_nodes = launch.starter == ALL_NODES and launch.nodes is None
    if cluster and (counts is None or open_nodes or agrees(launch, cluster, *counts)):
        return cluster.num_gpus
    return None if counts is None else counts[0] * counts[1]


class Machines(NamedTuple):
    """What the ranks of a launch run on."""

    cluster: ClusterSpec | None
    """Null: it cannot be, or nothing says how many."""
    fields: tuple[Field, ...] = ()
    problems: tuple[Problem, ...] = ()


def machines_of(launch: Launch, request: Request, ranks: int) -> Machines:
    """The cluster asked about, or so many of the GPUs that the launch names."""
    if request.cluster is not None and request.cluster.num_gpus == ranks:
        return Machines(request.cluster)
    if ranks > LARGEST_WORLD:
        return _refused(f"{ranks} ranks are more than any cluster has")
    counts = counts_of(launch)
    if counts is None or counts[0] * counts[1] != ranks:
        counts = _dealt(ranks)
    assert counts is not None
    if request.cluster is not None:
        return resized(request.cluster, launch, *counts)
    return launched_on(launch, *counts)


def resized(request: ClusterSpec, launch: Launch, nodes: int, gpus: int) -> Machines:
    """The launch says how many ranks there are, the user what they run on."""
    try:
        cluster = parse_cluster(f"{nodes}x{gpus}:{request.groups[0].gpu}")
    except PlanError as error:
        return Machines(None, problems=(Problem("world_size", "unread", str(error)),))
    says = (
        f"the launch starts {nodes * gpus} ranks and the cluster has {request.num_gpus} GPUs: "
        f"priced on {cluster.name}, correct one of them"
    )
    problem = Problem("cluster_size", "ignored", says, launch.nodes.place if launch.nodes else None)
    return Machines(cluster, stated_machines(launch, cluster), (problem,))


def stated_machines(launch: Launch, cluster: ClusterSpec) -> tuple[Field, ...]:
    """Of the cluster that the user states: its counts, and its GPU."""
    gpu = Field("cluster.gpu", cluster.groups[0].gpu, "stated")
    return (*counts_stated(launch, cluster), gpu)


def launched_on(launch: Launch, nodes: int, gpus: int, precision: Precision = "bf16") -> Machines:
    """So many nodes of the GPU that the launch names, else of one that is assumed."""
    named = _gpu_of(launch, precision)
    if named.gpu is None:
        return Machines(None, problems=named.problems)
    try:
        cluster = parse_cluster(f"{nodes}x{gpus}:{named.gpu}")
        if named.machine and machines()[named.machine].gpus_per_node == gpus:
            cluster = read_cluster(f"{nodes}x{named.machine}").cluster
    except PlanError as error:
        return Machines(None, problems=(Problem("world_size", "unread", str(error)),))
    written, place = (named.word.text, named.word.place) if named.word else ("", None)
    gpu = Field("cluster.gpu", named.gpu, named.origin, written, place)
    return Machines(cluster, (*counts_stated(launch, cluster), gpu), named.problems)


def counts_stated(launch: Launch, cluster: ClusterSpec) -> tuple[Field, ...]:
    """Nodes and GPUs of each, and where they stand."""
    group = cluster.groups[0]
    counts = (
        ("num_nodes", group.num_nodes, launch.nodes),
        ("gpus_per_node", group.gpus_per_node, launch.gpus_per_node),
    )
    return tuple(
        Field(f"cluster.{name}", value, "stated", word.text, word.place)
        if word is not None and number(word) == value
        else Field(f"cluster.{name}", value, "default")
        for name, value, word in counts
    )


class _Named(NamedTuple):
    gpu: str | None
    """Null: the launch names one that the catalog does not have."""
    word: Word | None = None
    """What names it; null: nothing does."""
    machine: str | None = None
    origin: Origin = "stated"
    problems: tuple[Problem, ...] = ()


def _gpu_of(launch: Launch, precision: Precision) -> _Named:
    """The GPU that a launch names, as its scheduler or its machine does."""
    word = launch.gpu
    found: tuple[str, ...] = ()
    if word is not None:
        if machine := machine_named(word.text.removeprefix(HYPERPOD)):
            return _Named(machines()[machine].gpu, word, machine)
        found = gpus_called(word.text)
    if launch.features is not None:
        for text in re.split(r"[^\w.:-]+", launch.features.text):
            own = gpus_called(text.rpartition(":")[2], memory_alone=bool(found))
            both = tuple(one for one in found if one in own)
            if own and (both or word is None):
                found, word = both or found or own, word or launch.features
    if word is None:
        if precision in catalog.gpu(ASSUMED_GPU).peak_tflops:
            return _Named(ASSUMED_GPU, origin="assumed")
        says = (
            f"the launch names no GPU, and {ASSUMED_GPU}, which is assumed then, has no "
            f"{precision}: give --cluster NODESxGPUS:GPU"
        )
        return _Named(None, problems=(Problem("unknown_gpu", "unread", says),))
    if not found:
        says = (
            f"the launch names the GPU {word.text[:60]}, which the catalog does not have: give "
            "--cluster NODESxGPUS:GPU"
        )
        return _Named(None, word, problems=(Problem("unknown_gpu", "unread", says, word.place),))
    gpu, *others = found
    if not others:
        return _Named(gpu, word)
    says = (
        f"the launch names {word.text[:60]}, taken as {gpu}; it may be {' or '.join(others)}: "
        "--cluster names them"
    )
    problem = Problem("assumed_gpu", "unread", says, word.place)
    return _Named(gpu, word, origin="assumed", problems=(problem,))


HYPERPOD = "ml."
"""Before the types of machines of SageMaker."""


def _refused(says: str) -> Machines:
    return Machines(None, problems=(Problem("world_size", "illegal", says),))
