"""llm-foundry on Composer: torch FSDP1 with bf16 reduction, eager layers.

Source: mosaicml/llm-foundry `scripts/train/benchmarking` (FULL_SHARD, mixed_precision PURE:
parameters, reduction and buffers in bf16; limit_all_gathers) and `llmfoundry/models/layers`.
"""

from __future__ import annotations

import numpy as np

from trainplan.costmodel.layouts.rules import rule
from trainplan.costmodel.layouts.table import BoolColumn, LayoutTable
from trainplan.costmodel.runtimes.base import HEAD_BYTES, RuntimeTraits
from trainplan.costmodel.runtimes.footprint import Footprint
from trainplan.costmodel.spec.job import Job


@rule(
    "data_parallel_only",
    "tp pp cp",
    "the runtime shards data parallel ranks and nothing else: use tp=pp=cp=1",
    "mosaicml/llm-foundry and foundation-model-stack/fms-fsdp: torch FSDP over all ranks",
)
def data_parallel_only(job: Job, table: LayoutTable) -> BoolColumn:
    """Neither layers nor sequences are cut."""
    return np.asarray(table.tp * table.pp * table.cp > 1)


LLM_FOUNDRY_FSDP = RuntimeTraits(
    name="llm-foundry-fsdp",
    version="0.6",
    attention="flash2",
    dropout=False,
    kernels="eager",
    host="fsdp",
    # llmfoundry/models/utils/act_ckpt.py, first-n; fms_fsdp/policies/ac_handler.py, a share
    recomputes_layers="some",
    stops_recomputing_early=True,  # activation_checkpointing_reentrant: false
    overlaps_gradients=True,
    overlaps_parameters=True,
    # PyTorch `fsdp/_runtime_utils.py`, _should_free_in_backward: no_sync is not entered
    gathers_every_pass=True,
    gradient_bytes=4,
    gradient_message_bytes=2,
    head_bytes_per_logit=HEAD_BYTES["fused"],  # loss_fn: fused_crossentropy
    schedules=("1f1b",),
    pipelines=False,
    rules=(data_parallel_only,),
    footprint=Footprint(low_precision="cast", sharded_weights_are_master=True),
)
