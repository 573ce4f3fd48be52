"""Expert parallelism: cuts the experts over ranks taken from dp, cp and tp.

Expert tensor parallelism cuts every expert like a dense MLP, on its own ranks.
"""

import numpy as np

from trainplan.costmodel.axes.axis import Axis, Memory, Tried
from trainplan.costmodel.axes.values import expert_degrees
from trainplan.costmodel.columns import BoolColumn
from trainplan.costmodel.job import Job
from trainplan.costmodel.layouts import LayoutTable, rule

FOLDING = "Liu et al., MoE Parallel Folding, arXiv:2504.14960, section 3"


@rule("ep", "ep > 1 needs a mixture-of-experts model", FOLDING)
def ep_needs_experts(job: Job, table: LayoutTable) -> BoolColumn:
    """A dense model has no experts to cut."""
    return np.asarray((table.ep > 1) & (job.model.moe is None))


@rule("ep", "num_experts must be a multiple of ep", FOLDING)
def ep_divides_experts(job: Job, table: LayoutTable) -> BoolColumn:
    """Equal experts on every rank."""
    experts = job.model.moe.num_experts if job.model.moe else 1
    return np.asarray((table.ep > 1) & (experts % table.ep != 0))


@rule(
    "tp cp dp ep etp", "etp * ep must divide tp * cp * dp, the ranks of one pipeline stage", FOLDING
)
def experts_fold_into_ranks(job: Job, table: LayoutTable) -> BoolColumn:
    """The expert mapping covers the ranks of a stage."""
    return np.asarray(table.tp * table.cp * table.dp % (table.etp * table.ep) != 0)


EP = Axis(
    name="ep",
    off=1,
    search=Tried(expert_degrees),
    memory=Memory("falls", ("weights", "gradients", "optimizer"), "fewer experts on a rank"),
    rules=(ep_needs_experts, ep_divides_experts, experts_fold_into_ranks),
)


@rule("etp", "etp > 1 needs a mixture-of-experts model", FOLDING)
def etp_needs_experts(job: Job, table: LayoutTable) -> BoolColumn:
    """A dense model has no experts to cut."""
    return np.asarray((table.etp > 1) & (job.model.moe is None))


@rule("etp", "moe_intermediate_size must be a multiple of etp", FOLDING)
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
