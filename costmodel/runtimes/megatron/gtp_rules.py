"""What generalised tensor parallelism of Megatron Core asks for, and what is not priced with it."""

import numpy as np

from trainplan.costmodel.columns import BoolColumn
from trainplan.costmodel.job import Job
from trainplan.costmodel.layouts import LayoutTable, rule
from trainplan.costmodel.optimizers import optimizer_of

GATHERED_PRECISIONS = frozenset({"mxfp8", "nvfp4"})
"""Below 16 bits, of which native shards are gathered. Source: as `gtp_gathers_native_weights`."""


def _cuts(table: LayoutTable) -> BoolColumn:
    return np.asarray((table.gtp > 1) | (table.egtp > 1))


@rule(
    "gtp egtp",
    "gtp and egtp gather weights of 16 bits, of mxfp8 or nvfp4, those as the only copy: change the "
    "precision, or set fp8_param_gather=true",
    "Megatron-LM @d98e8a64 training/arguments.py:1516 and 1575; docs/api-guide/core/"
    "generalized_tensor_parallel.md, section 1.3 (no other low precision is named)",
)
def gtp_gathers_native_weights(job: Job, table: LayoutTable) -> BoolColumn:
    """The optimizer writes the shard that is gathered."""
    alone = job.options.fp8_param_gather is True
    native = alone and job.training.precision in GATHERED_PRECISIONS
    return np.asarray(_cuts(table) & (job.training.casts and not native))


@rule(
    "gtp egtp",
    "gtp and egtp are priced for models whose weights are all trained: leave both at 1 with a "
    "tower, adapters or frozen layers",
    "assumed: the guide of Megatron-LM @d98e8a64 names neither, and nothing of it was measured",
)
def gtp_trains_all_weights(job: Job, table: LayoutTable) -> BoolColumn:
    """Towers have groups of their own, and frozen weights no gradient."""
    partly = job.model.tower is not None or job.model.trained is not None
    return np.asarray(_cuts(table) & partly)


@rule(
    "gtp egtp",
    "gtp and egtp are priced for optimizers that update each weight by itself: use adamw, sgd or "
    "lion, or leave both at 1",
    "Megatron-LM @d98e8a64 docs/api-guide/core/generalized_tensor_parallel.md, section 1.6: Muon "
    "gathers whole matrices for its step, whose seconds are not known here",
)
def gtp_updates_each_weight(job: Job, table: LayoutTable) -> BoolColumn:
    """What reads a matrix needs its other parts."""
    found = optimizer_of(job.training.optimizer)
    whole = found.moments is None or found.whole_matrices or found.gathers_tensor_ranks
    return np.asarray(_cuts(table) & whole)


GTP_RULES = (gtp_gathers_native_weights, gtp_trains_all_weights, gtp_updates_each_weight)
