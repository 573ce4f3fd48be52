"""Virtual stages one by one: their layers and, where a cluster has several, their node groups."""

from __future__ import annotations

import numpy as np

from trainplan.costmodel.axes.axis import Apart, Axis, Memory
from trainplan.costmodel.columns import BoolColumn
from trainplan.costmodel.job import Job
from trainplan.costmodel.layouts import LayoutTable, rule
from trainplan.costmodel.pipeline import in_groups, misplaced


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


STAGES = Axis(
    name="stages",
    off=None,
    search=Apart("uneven stages are searched for layouts that have all else"),
    memory=Memory("neither", (), "layers move from one rank to another"),
    rules=(stages_live_in_groups,),
)
