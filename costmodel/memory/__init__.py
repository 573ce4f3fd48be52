"""Bytes of a rank at its fullest moment, by what needs them.

States (weights, gradients, optimizer), saved tensors in flight, transients, and overheads of
communicators, context and allocator. `rank` adds them up for every pipeline rank of every row.

block_params: parameters of every kind of block on one rank, no adapters.
block_state_bytes: state of each kind of block that depends on the shapes of its matrices, before
    sharding.
BlockParams: parameters of one block on one rank, before ZeRO sharding.
expert_shard_ranks: ranks that share one copy of the routed experts' states.
frozen_bytes: weights that are never updated.
gradient_bytes_per_param: bytes of accumulated gradients, never fewer than those of a weight
    unless stored in 8 bits.
head_bytes: logits, their fp32 copy and gradient while the loss runs, of all tokens or of one
    tile.
held_params: parameters of every kind of block on one rank, and those of them that are trained.
held_weight_bytes: bytes of all weights of each rank class.
layer_backward_bytes: largest gradient inside a layer, and the gathered layer input under sequence
    parallelism.
LAYERS_IN_TRANSIT: layers whose offloaded activations are on the device.
MemoryTable: bytes of each rank class.
moment_bytes: what lives while one layer of the tower runs backward.
of_blocks: sum over the tensors of a block, of every kind.
OffDevice: bytes of one node off its GPUs.
optimizer_bytes: bytes of optimizer state on the GPU, of parameters and of states by shape.
optimizer_bytes_per_param: bytes of optimizer state on the GPU: an fp32 master weight and moments,
    two of Adam.
rank_memory: peak memory of each rank class.
rank_optimizer_bytes: optimizer state on the device, of each rank class.
rank_params: parameters of each rank class.
RankParams: parameters of one rank class, dense and of experts, before ZeRO sharding.
RESERVE_FACTOR: reserved by the caching allocator over allocated at the peak.
shard_ranks: ranks that share one copy of the dense states.
STAGE_BY_STAGE: schedules by number.
sums_whole: are sharded gradients summed whole?.
tower_rank_params: the whole tower on one tensor rank.
TowerParams: those that are trained, and those that are frozen.
updated_params: parameters each rank updates after sharding.
weight_bytes_per_param: bytes of weights one rank keeps for a parameter of its part.
workspace_bytes: scratch memory of all libraries on the GPU that takes most of it.
"""

from trainplan.costmodel.memory.host import OffDevice
from trainplan.costmodel.memory.in_transit import LAYERS_IN_TRANSIT
from trainplan.costmodel.memory.matrices import of_blocks
from trainplan.costmodel.memory.optimizer_state import (
    block_state_bytes,
    optimizer_bytes,
    rank_optimizer_bytes,
)
from trainplan.costmodel.memory.rank import (
    RESERVE_FACTOR,
    MemoryTable,
    rank_memory,
    workspace_bytes,
)
from trainplan.costmodel.memory.states import (
    STAGE_BY_STAGE,
    BlockParams,
    RankParams,
    block_params,
    expert_shard_ranks,
    gradient_bytes_per_param,
    optimizer_bytes_per_param,
    rank_params,
    shard_ranks,
    sums_whole,
    updated_params,
    weight_bytes_per_param,
)
from trainplan.costmodel.memory.tower import frozen_bytes, moment_bytes
from trainplan.costmodel.memory.tower_params import TowerParams, tower_rank_params
from trainplan.costmodel.memory.trained import held_params, held_weight_bytes
from trainplan.costmodel.memory.transients import head_bytes, layer_backward_bytes
