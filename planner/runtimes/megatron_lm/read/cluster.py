"""On what a launch runs: as many nodes as it says, of GPUs that the user says or that we take."""

from dataclasses import dataclass

from trainplan.costmodel import catalog
from trainplan.costmodel.hardware import ClusterSpec
from trainplan.costmodel.job import Precision
from trainplan.planner.runtimes.megatron_lm.read.arguments import shown
from trainplan.planner.runtimes.ranks import (
    agrees,
    counts_of,
    is_silent,
    launched_on,
    resized,
    stated_machines,
)
from trainplan.planner.runtimes.reading import Field, Request
from trainplan.planner.shell import Launch, Problem, number


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
        if counts is None or agrees(launch, request.cluster, *counts):
            return Place(request.cluster, stated_machines(launch, request.cluster), ())
        return Place(*resized(request.cluster, launch, *counts))
    if counts is None:
        words = (launch.ranks, launch.nodes, launch.gpus_per_node)
        unknown = next((word for word in words if word and number(word) is None), None)
        what = f" ({shown(unknown.text)})" if unknown else ""
        what = " (mpirun and srun start python on each)" if is_silent(launch) else what
        says = f"the number of ranks is known to a run alone{what}: give --cluster NODESxGPUS:GPU"
        problem = Problem("world_size", "unread", says, unknown.place if unknown else None)
        return Place(None, (), (problem,))
    return Place(*launched_on(launch, *counts, precision))
