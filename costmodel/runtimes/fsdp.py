"""FSDP of PyTorch, the bases of runtimes that shard with it.

Source: Zhao et al., PyTorch FSDP, arXiv:2304.11277, section 4 (fp32 shards are the master weights,
gathers and reductions run beside the passes); PyTorch `fsdp/_runtime_utils.py`,
_should_free_in_backward, and `fsdp/_fully_shard/_fsdp_param_group.py`, reshard_after_backward.
"""

from dataclasses import replace

import numpy as np

from trainplan.costmodel.columns import BoolColumn
from trainplan.costmodel.job import Job
from trainplan.costmodel.layouts import LayoutTable, rule
from trainplan.costmodel.runtimes.base import FSDP, RuntimeTraits
from trainplan.costmodel.runtimes.traits import (
    Gradients,
    Host,
    Kernels,
    Pipeline,
    Recompute,
    Sharding,
)
from trainplan.costmodel.runtimes.traits.footprint import Footprint
from trainplan.costmodel.runtimes.traits.kernels import HEAD_BYTES


@rule(
    "tp pp cp",
    "the runtime shards data parallel ranks and nothing else: use tp=pp=cp=1",
    "mosaicml/llm-foundry and foundation-model-stack/fms-fsdp: torch FSDP over all ranks",
)
def data_parallel_only(job: Job, table: LayoutTable) -> BoolColumn:
    """Neither layers nor sequences are cut."""
    return np.asarray(table.tp * table.pp * table.cp > 1)


ALONE = Pipeline(schedules=("1f1b",), cuts_layers=False)
"""Of a runtime without pipeline parallelism."""

FSDP2 = RuntimeTraits(
    name="FSDP2",
    family=FSDP,
    version="PyTorch 2.6",
    kernels=Kernels(
        attention="flash2", elementwise="fused", head_bytes_per_logit=HEAD_BYTES["eager"]
    ),
    host=Host(layer="fsdp"),
    gradients=Gradients(accumulated_bytes=4, message_bytes=4),
    sharding=Sharding(
        in_groups=True,  # a mesh of two dimensions; FSDP1: HYBRID_SHARD
        overlaps_gradients=True,
        overlaps_parameters=True,
        gathers_every_pass=True,
        whole_under_pipeline=True,
        overlaps_on_streams=True,
    ),
    recompute=Recompute(stops_early=True),  # checkpoints are not reentrant
    footprint=Footprint(low_precision="cast", sharded_weights_are_master=True),
)
"""fully_shard with an fp32 reduction, of layers that are compiled."""

FSDP1 = replace(
    FSDP2,
    name="FSDP1",
    gradients=replace(FSDP2.gradients, message_bytes=2),
    # no_sync is not entered; without a pipeline there is nothing to keep whole
    sharding=replace(FSDP2.sharding, whole_under_pipeline=False),
    pipeline=ALONE,
    rules=(data_parallel_only,),
)
"""FullyShardedDataParallel over all ranks with a reduction in 16 bits."""
