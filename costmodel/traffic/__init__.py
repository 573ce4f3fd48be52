"""Weights and gradients on the wire: data parallelism, sharding, and how much of it is overlapped.

`data_parallel` has what comes once a step and which passes it can overlap, `sharded` what ZeRO-2
and 3 do in every pass.

contention_of: seconds that a second of traffic adds to the compute it overlaps.
CPU_ADAM_PARAMS_PER_SECOND: parameters one node's CPUs update in a second.
engine_sent_bytes: as `sent_bytes`, of weights and gradients under DeepSpeed's ZeRO-3.
exposed_seconds: seconds by which the traffic of the ranks outlasts the pipeline.
matrix_traffic: gathers and scatters of generalised tensor parallelism.
free_window: half the time of a decoder layer that its own traffic does not use.
gather_overlap: what the gather of updated weights hides behind.
gradient_message_bytes: bytes of one gradient on the wire.
offload_seconds: seconds the offloaded share of the optimizer adds.
over_micro_batches: layers of a mean micro batch of a step.
overlapped_layer: a layer with what its traffic exposes while it overlaps the passes of
    `window`.
PassTraffic: seconds on the wire in each pass of one micro batch, hidden or not.
rank_offload_seconds: as `offload_seconds`, of each rank class.
rank_optimizer_seconds: seconds of zeroing, clipping and Adam on each rank class, all on the GPU.
    Source.
rank_update_seconds: seconds to add to those of AdamW, of each rank class.
reduction_overlap: what the reduction of gradients hides behind.
sent_bytes: bytes that one rank of a pipeline rank sends in a step of Megatron's own parallelism.
sharded_traffic: gathers and reductions of each unit's states under ZeRO-2 and ZeRO-3.
stages_of: virtual stages of a pipeline rank.
step_seconds: seconds of the step of one tensor alone, whose moments take `width` bytes each.
step_traffic: gradient reduction and parameter gather of each rank class.
step_traffic_seconds: seconds of gradient reduction and parameter gather that outlast each rank
    class's passes.
torch_sent_bytes: as `sent_bytes`, under FSDP2, DTensor and torch's pipelining.
whole_sum_seconds: seconds to sum the gradients of what generalised tensor parallelism leaves
    whole.
Unit: a block whose states are gathered and reduced together.
"""

from trainplan.costmodel.traffic.by_matrix import matrix_traffic, whole_sum_seconds
from trainplan.costmodel.traffic.data_parallel import (
    exposed_seconds,
    gather_overlap,
    gradient_message_bytes,
    rank_optimizer_seconds,
    reduction_overlap,
    step_traffic,
    step_traffic_seconds,
)
from trainplan.costmodel.traffic.offload import (
    CPU_ADAM_PARAMS_PER_SECOND,
    offload_seconds,
    rank_offload_seconds,
)
from trainplan.costmodel.traffic.sent import sent_bytes, stages_of
from trainplan.costmodel.traffic.sent_by_torch import torch_sent_bytes
from trainplan.costmodel.traffic.sharded import (
    PassTraffic,
    Unit,
    contention_of,
    free_window,
    over_micro_batches,
    overlapped_layer,
    sharded_traffic,
)
from trainplan.costmodel.traffic.update import rank_update_seconds, step_seconds
from trainplan.costmodel.traffic.zero_plus_plus import engine_sent_bytes
