"""Islands that are left where nodes are lost: how many go on, and of what size."""

from dataclasses import replace

from trainplan.costmodel.base import SpecError
from trainplan.costmodel.hardware import ClusterSpec
from trainplan.costmodel.job import Job
from trainplan.planner.cases import Case, with_batch

Part = tuple[int, ClusterSpec]
"""A number of equal islands, and one of them; 1: without outer steps."""


def islands_of(job: Job, cluster: ClusterSpec) -> ClusterSpec:
    """A cluster of a job with islands, a group each; equal nodes of one group are shared out.

    Raises:
        SpecError: Its groups differ by more than their number of nodes.
    """
    if job.islands == 1:
        return cluster
    (group, *others), count = cluster.groups, job.islands
    if any(one.model_copy(update={"num_nodes": group.num_nodes}) != group for one in others):
        raise SpecError(
            f"the groups of cluster {cluster.name!r} differ: islands are equal but for nodes "
            "that are lost"
        )
    if others:
        return cluster
    nodes, more = divmod(group.num_nodes, count)
    sizes = [nodes + (place < more) for place in range(count)]
    return cluster.model_copy(update={"groups": (group,) * count}).with_nodes(sizes)


def parts_left(job: Job, left: ClusterSpec) -> tuple[Part, ...]:
    """Numbers of islands that what is left may train on, most islands first, and one alone.

    Islands of a part are as large as its smallest one. Of a job without islands all that is left.
    """
    if job.islands == 1:
        return ((1, left),)
    sizes = sorted({one.num_nodes for one in left.groups})
    counts = {sum(one.num_nodes >= size for one in left.groups): size for size in sizes}
    counts.setdefault(1, sizes[-1])
    return tuple((count, _island(left, size)) for count, size in counts.items())


def _island(left: ClusterSpec, nodes: int) -> ClusterSpec:
    group = left.groups[0].model_copy(update={"num_nodes": nodes})
    return left.model_copy(update={"groups": (group,), "between_groups": None})


def on_islands(case: Case, count: int, batch: int | None = None) -> Case | None:
    """The question on so many islands, each with its share of a batch; null: it does not divide.

    `batch` is of all islands, and the rounds are those of the plan; null: as it is.
    """
    job = case.job
    share, rest = divmod(batch or job.islands * job.training.global_batch_size, count)
    if rest:
        return None
    if count != job.islands:
        outer = job.outer.model_copy(update={"islands": count}) if job.outer else None
        outer = outer if count > 1 else None
        case = replace(case, job=job.model_copy(update={"outer": outer}))
    return case if share == job.training.global_batch_size else with_batch(case, share)
