"""torchtitan: FSDP2 with fp32 reduction, DTensor tensor parallelism, compiled layers.

Source: pytorch/torchtitan `torchtitan/parallelisms/parallelize_llama.py` (reduce_dtype float32,
each layer a unit, resharded after forward unless pipelined) and `models/llama/model.py` (SDPA,
that is FlashAttention-2; logits in fp32).
"""

from __future__ import annotations

from costmodel.runtimes.base import EAGER_HEAD_BYTES, RuntimeTraits
from costmodel.runtimes.footprint import Footprint

TORCHTITAN = RuntimeTraits(
    name="torchtitan",
    version="2024-12",
    attention="flash2",
    dropout=False,
    kernels="fused",
    host="fsdp",
    cuda_graph="none",
    selects_operations=True,
    scatters_messages=False,
    overlaps_gradients=True,
    overlaps_parameters=True,
    overlaps_tensor_parallel=False,
    overlaps_experts=False,
    context_exchange="p2p",
    moe_dispatcher="alltoall",
    moe_dispatcher_across="alltoall",
    graphs_hybridep=False,
    whole_under_pipeline=True,
    gradient_bytes=4,
    gradient_message_bytes=4,
    head_bytes_per_logit=EAGER_HEAD_BYTES,
    caches_dummy_weight_gradients=False,
    footprint=Footprint(low_precision="cast", sharded_weights_are_master=True),
)
