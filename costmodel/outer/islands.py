"""A job on a cluster of islands as each of them runs it: its own nodes and its share of a batch."""

from trainplan.costmodel import catalog
from trainplan.costmodel.base import SpecError
from trainplan.costmodel.hardware import ClusterSpec, NodeGroup
from trainplan.costmodel.job import Job


def island_count(cluster: ClusterSpec) -> int:
    """Its groups, where these are alike; else 1, since nothing says where it may be parted."""
    return len(cluster.groups) if _alike(cluster) else 1


def island_job(job: Job) -> Job:
    """The job of one of the islands of its cluster; of what is parted, or has none, the job itself.

    Raises:
        SpecError: The cluster, the batch or the model do not make equal islands.
    """
    outer, cluster, training = job.outer, job.cluster, job.training
    if outer is None or outer.is_parted:
        return job
    count = outer.islands or island_count(cluster)
    if count < 2:
        reason = "its groups differ" if len(cluster.groups) > 1 else "it is one group"
        raise SpecError(
            f"cluster {cluster.name!r} has no islands by itself, {reason}: state how many with "
            "--islands N, or give a cluster file with several equal groups and between_groups"
        )
    if training.global_batch_size % count:
        raise SpecError(
            f"a global batch of {training.global_batch_size} does not divide among {count} "
            f"islands: give a multiple of {count}"
        )
    if job.model.trained is not None:
        raise SpecError(
            "outer steps are priced where every weight is trained: leave --train out, or islands"
        )
    alone = {"groups": (_island(cluster, count),), "between_groups": None}
    size = training.global_batch_size // count
    return job.model_copy(
        update={
            "cluster": cluster.model_copy(update=alone),
            "training": training.model_copy(update={"global_batch_size": size}),
            "outer": outer.model_copy(update={"islands": count, **_link(cluster)}),
        }
    )


def whole_cluster(job: Job, island: ClusterSpec, idle_islands: int = 0) -> ClusterSpec:
    """All islands of a job, and those that are left idle, each as large: a group of its own."""
    outer = job.outer
    if outer is None or outer.gb_per_s is None:
        return island
    return island.repeated(job.islands + idle_islands, outer.gb_per_s, outer.latency_us)


def _alike(cluster: ClusterSpec) -> bool:
    return all(group == cluster.groups[0] for group in cluster.groups)


def _island(cluster: ClusterSpec, count: int) -> NodeGroup:
    """Nodes of an island: a group, of which some may be left idle, or part of one."""
    group, groups = cluster.groups[0], len(cluster.groups)
    if cluster.links is not None:
        raise SpecError(
            "islands of a cluster with measured links are not priced: leave `links` out, and give "
            "equal groups and `between_groups` with the slowest rate between them"
        )
    if not _alike(cluster):
        raise SpecError(f"the groups of cluster {cluster.name!r} differ: islands are equal")
    if count <= groups:
        return group
    nodes, rest = divmod(group.num_nodes * groups, count)
    if rest or count % groups:
        raise SpecError(
            f"{groups} x {group.num_nodes} nodes do not make {count} equal islands of whole nodes "
            "of one group: give another --islands"
        )
    return group.model_copy(update={"num_nodes": nodes})


def _link(cluster: ClusterSpec) -> dict[str, float]:
    """How a node reaches other islands: as groups are joined, else by all its adapters."""
    between, group = cluster.between_groups, cluster.groups[0]
    if between and len(cluster.groups) > 1:
        return {"gb_per_s": between.gb_per_s, "latency_us": between.latency_us}
    if group.nic:
        return {"gb_per_s": group.nic.per_node * group.nic.gb_per_s}
    known = catalog.device(group).nic_gb_per_s
    if known is None:
        raise SpecError(
            f"the network of {group.gpu} nodes is unknown: give --nic 400Gb/s, or a cluster file "
            "with between_groups"
        )
    return {"gb_per_s": known.value * group.gpus_per_node}
