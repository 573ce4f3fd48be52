"""Expert tensor parallelism: cuts every expert like a dense MLP, on its own ranks."""

from __future__ import annotations

import numpy as np

from trainplan.costmodel.axes.axis import Axis, Memory, Tried
from trainplan.costmodel.axes.ep import FOLDING
from trainplan.costmodel.axes.values import expert_degrees
from trainplan.costmodel.columns import BoolColumn
from trainplan.costmodel.job import Job
from trainplan.costmodel.layouts import LayoutTable, rule


@rule("etp_needs_experts", "etp", "etp > 1 needs a mixture-of-experts model", FOLDING)
def etp_needs_experts(job: Job, table: LayoutTable) -> BoolColumn:
    """A dense model has no experts to cut."""
    return np.asarray((table.etp > 1) & (job.model.moe is None))


@rule("etp_divides_expert", "etp", "moe_intermediate_size must be a multiple of etp", FOLDING)
def etp_divides_expert(job: Job, table: LayoutTable) -> BoolColumn:
    """Equal columns of every expert."""
    width = job.model.moe.moe_intermediate_size if job.model.moe else 1
    return np.asarray((table.etp > 1) & (width % table.etp != 0))


ETP = Axis(
    name="etp",
    off=1,
    search=Tried(expert_degrees),
    memory=Memory("falls", ("weights", "gradients", "optimizer"), "a slice of every expert"),
    rules=(etp_needs_experts, etp_divides_expert),
)
