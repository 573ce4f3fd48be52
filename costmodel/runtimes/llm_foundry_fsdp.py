"""llm-foundry on Composer: torch FSDP1 with bf16 reduction, eager layers.

Source: mosaicml/llm-foundry `scripts/train/benchmarking` (FULL_SHARD, mixed_precision PURE:
parameters, reduction and buffers in bf16; limit_all_gathers) and `llmfoundry/models/layers`.
"""

from __future__ import annotations

from dataclasses import replace

from trainplan.costmodel.runtimes.fsdp import FSDP1
from trainplan.costmodel.runtimes.traits.kernels import HEAD_BYTES

LLM_FOUNDRY_FSDP = replace(
    FSDP1,
    name="llm-foundry-fsdp",
    version="0.6",
    kernels=replace(
        FSDP1.kernels,
        elementwise="eager",
        head_bytes_per_logit=HEAD_BYTES["fused"],  # loss_fn: fused_crossentropy
    ),
    # llmfoundry/models/utils/act_ckpt.py, first-n
    recompute=replace(FSDP1.recompute, layers="some"),
)
