"""Pipeline ranks that live in node groups: which rank in which, and where that is wrong.

Degrees are equal on all stages, so a node group runs as many whole pipeline ranks as its GPUs make,
one after the other; tensor, context, data and expert groups then never leave it.
"""

import numpy as np

from trainplan.costmodel.columns import BoolColumn, IntColumn
from trainplan.costmodel.hardware import ClusterSpec
from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import SCHEDULE_NAMES, StageSpec
from trainplan.costmodel.layouts import LayoutTable, stage_codes
from trainplan.costmodel.program import placed
from trainplan.costmodel.schedules import SCHEDULES


def is_heterogeneous(cluster: ClusterSpec) -> bool:
    """Does it matter which group runs a stage?"""
    nodes = [group.model_copy(update={"num_nodes": 1}) for group in cluster.groups]
    differ = any(node != nodes[0] for node in nodes)
    return len(nodes) > 1 and (differ or cluster.between_groups is not None)


def group_jobs(job: Job) -> tuple[Job, ...]:
    """The job on each node group alone."""
    alone = {"links": None, "between_groups": None}
    clusters = (
        job.cluster.model_copy(update={**alone, "groups": (group,)}) for group in job.cluster.groups
    )
    return tuple(job.model_copy(update={"cluster": cluster}) for cluster in clusters)


def in_groups(table: LayoutTable) -> BoolColumn:
    """Which rows say in which group each stage lives? Stages of group 0 alone say nothing."""
    codes, splits = stage_codes(table)
    return np.array([any(stage.group for stage in stages or ()) for stages in splits])[codes]


def stage_groups(stages: tuple[StageSpec, ...]) -> IntColumn:
    """Node group of every virtual stage."""
    return np.array([stage.group for stage in stages], dtype=np.int64)


def rank_groups(stages: tuple[StageSpec, ...], schedule: int, pp: int) -> IntColumn:
    """Node group of every pipeline rank: that of its first virtual stage."""
    return stage_groups(stages)[_stages_of(schedule, pp, len(stages) // pp)[:, 0]]


def misplaced(job: Job, table: LayoutTable, row: int) -> bool:
    """Do the stages of a row not lie in the node groups of the cluster, as whole ranks in turn?"""
    stages, pp = table.stages[row], int(table.pp[row])
    if len(stages) % pp:
        return True
    chunks = stage_groups(stages)[_stages_of(int(table.schedule[row]), pp, len(stages) // pp)]
    groups = chunks[:, 0]
    if (chunks != groups[:, None]).any() or groups.max() >= len(job.cluster.groups):
        return True
    held = np.bincount(groups, minlength=len(job.cluster.groups))
    gpus = int(table.tp[row] * table.cp[row] * table.dp[row])
    runs = 1 + np.count_nonzero(np.diff(groups))
    whole = all(n * gpus == g.num_gpus for n, g in zip(held, job.cluster.groups, strict=True))
    return not whole or runs != len(held)


def _stages_of(schedule: int, pp: int, vpp: int) -> IntColumn:
    """Virtual stages of every rank, its first first; shape (rank, chunk). Source: `placed`."""
    return placed(SCHEDULES[SCHEDULE_NAMES[schedule]].placement, pp, vpp)
