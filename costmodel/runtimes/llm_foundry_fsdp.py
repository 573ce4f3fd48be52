"""llm-foundry on Composer: torch FSDP1 with bf16 reduction, eager layers.

Source: mosaicml/llm-foundry `scripts/train/benchmarking` (FULL_SHARD, mixed_precision PURE:
parameters, reduction and buffers in bf16; limit_all_gathers; --attn_impl triton by default at
b2a43a14 and 5e85bd62, which print the tables) and `llmfoundry/models/layers` of v0.6.0.
"""

from dataclasses import replace

from trainplan.costmodel.runtimes.fsdp import FSDP1
from trainplan.costmodel.runtimes.traits.kernels import HEAD_BYTES

LLM_FOUNDRY_FSDP = replace(
    FSDP1,
    name="llm-foundry-fsdp",
    version="0.6",
    kernels=replace(
        FSDP1.kernels,
        attention="triton",  # attn_impl by default, until 0.7
        elementwise="eager",
        head_bytes_per_logit=HEAD_BYTES["fused"],  # loss_fn: fused_crossentropy
    ),
    # llmfoundry/models/utils/act_ckpt.py, first-n
    recompute=replace(FSDP1.recompute, layers="some"),
)
