"""Bytes of a rank at its fullest moment, by what needs them.

States (weights, gradients, optimizer), saved tensors in flight, transients, and overheads of
communicators, context and allocator. `rank` adds them up for every pipeline rank of every row.

block_params: parameters of every kind of block on one rank, no adapters.
BlockParams: parameters of one block on one rank, before ZeRO sharding.
held_params: parameters of every kind of block on one rank, and those of them that are trained.
layer_backward_bytes: largest gradient inside a layer, and the gathered layer input under sequence
    parallelism.
LAYERS_IN_TRANSIT: layers whose offloaded activations are on the device.
least_memory_stages: columns of the virtual stages whose gradients are fewest at once, by name.
mean_rank_params: parameters of the mean pipeline rank.
mean_state_bytes: weights, gradients and optimizer on the GPU of a rank that holds so much, as it
    is executed.
MemoryTable: bytes of each rank class.
of_blocks: sum over the tensors of a block, of every kind.
of_trained: the same, the share of it that trained parameters are.
rank_memory: peak memory of each rank class.
rank_optimizer_bytes: optimizer state on the device, of each rank class.
rank_params: parameters of each rank class.
RankParams: parameters of one rank class, dense and of experts, before ZeRO sharding.
RESERVE_FACTOR: reserved by the caching allocator over allocated at the peak.
sums_whole: are sharded gradients summed whole?
tower_bytes: all that a rank with the tower alone holds but activations between passes.
tower_rank_params: the whole tower on one tensor rank.
TowerParams: those that are trained, and those that are frozen.
updated_params: parameters each rank updates after sharding.
workspace_bytes: scratch memory of all libraries on the GPU that takes most of it.
"""

from trainplan.costmodel.memory.in_transit import LAYERS_IN_TRANSIT
from trainplan.costmodel.memory.matrices import of_blocks
from trainplan.costmodel.memory.mean_rank import (
    least_memory_stages,
    mean_rank_params,
    mean_state_bytes,
)
from trainplan.costmodel.memory.optimizer_state import rank_optimizer_bytes
from trainplan.costmodel.memory.rank import (
    RESERVE_FACTOR,
    MemoryTable,
    rank_memory,
    workspace_bytes,
)
from trainplan.costmodel.memory.states import (
    BlockParams,
    RankParams,
    block_params,
    rank_params,
    sums_whole,
    updated_params,
)
from trainplan.costmodel.memory.tower import tower_bytes
from trainplan.costmodel.memory.tower_params import TowerParams, tower_rank_params
from trainplan.costmodel.memory.trained import held_params, of_trained
from trainplan.costmodel.memory.transients import layer_backward_bytes
