"""Node groups: where a cluster has several, a pipeline rank may be told to live in one."""

from __future__ import annotations

import numpy as np

from trainplan.costmodel.layouts.rules import Rule, rule
from trainplan.costmodel.layouts.table import BoolColumn, LayoutTable
from trainplan.costmodel.pipeline.node_groups import in_groups, misplaced
from trainplan.costmodel.spec.job import Job


@rule(
    "stages_live_in_groups",
    "tp cp dp pp vpp schedule stages",
    "every node group runs as many whole pipeline ranks in a row as its GPUs / (tp cp dp): "
    "correct the groups of the stages, or leave them out",
    "costmodel/pipeline/node_groups.py",
)
def stages_live_in_groups(job: Job, table: LayoutTable) -> BoolColumn:
    """Groups are given for the whole pipeline, and no rank straddles two."""
    result: BoolColumn = np.zeros(len(table), dtype=bool)
    for row in np.flatnonzero(in_groups(table)).tolist():
        result[row] = misplaced(job, table, row)
    return result


RULES: tuple[Rule, ...] = (stages_live_in_groups,)
