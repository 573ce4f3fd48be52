"""On what a launch runs: as many nodes as it says, of GPUs that the user says or that we take."""

from dataclasses import dataclass

from trainplan.costmodel import catalog
from trainplan.costmodel.base import PlanError
from trainplan.costmodel.hardware import ClusterSpec, parse_cluster
from trainplan.costmodel.job import Precision
from trainplan.planner.runtimes.megatron_lm.read.arguments import shown
from trainplan.planner.runtimes.ranks import ASSUMED_GPU, counts_of, is_silent
from trainplan.planner.runtimes.reading import Field, Request
from trainplan.planner.shell import Launch, Problem, number

ASSUMED_GPUS = (ASSUMED_GPU, "b200")
"""The first that has the format, where no one says. Source: assumed."""


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


def place_of(launch: Launch, request: Request, precision: Precision) -> Place:
    """The cluster of a launch, or the user's where the launch leaves counts open."""
    counts = counts_of(launch)
    if request.cluster is not None:
        if is_silent(launch) or counts is None or counts[0] * counts[1] == request.cluster.num_gpus:
            return Place(request.cluster, _fields(request.cluster, launch, "stated"), ())
        return _resized(request.cluster, launch, *counts)
    if counts is None:
        words = (launch.ranks, launch.nodes, launch.gpus_per_node)
        unknown = next((word for word in words if word and number(word) is None), None)
        what = f" ({shown(unknown.text)})" if unknown else ""
        says = f"the number of ranks is known to a run alone{what}: say --cluster NODESxGPUS:GPU"
        problem = Problem("world_size", "unread", says, unknown.place if unknown else None)
        return Place(None, (), (problem,))
    try:
        gpu = next(name for name in ASSUMED_GPUS if precision in catalog.gpu(name).peak_tflops)
        cluster = parse_cluster(f"{counts[0]}x{counts[1]}:{gpu}")
    except PlanError as error:
        return Place(None, (), (Problem("world_size", "unread", str(error)),))
    return Place(cluster, _fields(cluster, launch, "assumed"), ())


def _resized(request: ClusterSpec, launch: Launch, nodes: int, gpus: int) -> Place:
    """The launch says how many ranks there are, the user what they run on."""
    try:
        cluster = parse_cluster(f"{nodes}x{gpus}:{request.groups[0].gpu}")
    except PlanError as error:
        return Place(None, (), (Problem("world_size", "unread", str(error)),))
    says = (
        f"the launch starts {nodes * gpus} ranks and the cluster has {request.num_gpus} GPUs: "
        f"priced on {cluster.name}, correct one of them"
    )
    problem = Problem("cluster_size", "ignored", says, launch.nodes.place if launch.nodes else None)
    return Place(cluster, _fields(cluster, launch, "stated"), (problem,))


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
