"""llm-foundry on Composer: torch FSDP1 with bf16 reduction, eager layers.

Source: mosaicml/llm-foundry `scripts/train/benchmarking` (FULL_SHARD, mixed_precision PURE:
parameters, reduction and buffers in bf16; limit_all_gathers) and `llmfoundry/models/layers`.
"""

from __future__ import annotations

from costmodel.runtimes.base import HEAD_BYTES, RuntimeTraits
from costmodel.runtimes.footprint import Footprint

LLM_FOUNDRY_FSDP = RuntimeTraits(
    name="llm-foundry-fsdp",
    version="0.6",
    attention="flash2",
    dropout=False,
    kernels="eager",
    host="fsdp",
    cuda_graph="none",
    selects_operations=False,
    scatters_messages=False,
    overlaps_gradients=True,
    overlaps_parameters=True,
    overlaps_tensor_parallel=False,
    overlaps_experts=False,
    context_exchange="p2p",
    moe_dispatcher="alltoall",
    moe_dispatcher_across="alltoall",
    graphs_hybridep=False,
    whole_under_pipeline=False,
    gradient_bytes=4,
    gradient_message_bytes=2,
    head_bytes_per_logit=HEAD_BYTES["fused"],  # loss_fn: fused_crossentropy
    caches_dummy_weight_gradients=False,
    footprint=Footprint(low_precision="cast", sharded_weights_are_master=True),
)
