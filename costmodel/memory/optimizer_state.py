"""Bytes of optimizer state on each rank, whatever the optimizer keeps of a matrix.

Where a state is a number of values for every parameter, parameters are counted; where it depends on
the shape of a matrix, those of the blocks of a rank are added up.
"""

import numpy as np

from trainplan.costmodel.base import BYTES_BF16, BYTES_FP32
from trainplan.costmodel.candidates import Candidates
from trainplan.costmodel.columns import ClassRows, FloatColumn
from trainplan.costmodel.memory.matrices import largest_in_layers
from trainplan.costmodel.memory.states import (
    BlockParams,
    RankParams,
    optimizer_bytes_per_param,
    rank_params,
    updated_params,
)
from trainplan.costmodel.memory.trained import of_trained
from trainplan.costmodel.optimizers import FP8_LM, STORED, Matrix, optimizer_of, updates_by_layer
from trainplan.costmodel.outer import state_bytes_per_param
from trainplan.costmodel.pipeline import Ranks
from trainplan.costmodel.shard_groups import shard_groups


def block_state_bytes(candidates: Candidates) -> BlockParams | None:
    """State of each kind of block that depends on the shapes of its matrices, before sharding.

    None where it is so many numbers of every parameter: `optimizer_bytes_per_param` has those.
    """
    request = candidates.job.training.optimizer
    found, width = optimizer_of(request), candidates.traits.footprint.moment_bytes
    if found.moments is not None:
        return None
    return of_trained(
        candidates.job, candidates.table, lambda one: found.state_bytes(one, request, width)
    )


def rank_optimizer_bytes(candidates: Candidates, ranks: Ranks, held: RankParams) -> ClassRows:
    """Optimizer state on the device, of each rank class.

    Source: as `optimizer_bytes_per_param` and `block_state_bytes`; a rank holds whole blocks, and
    its state is the sum of theirs.
    """
    blocks = block_state_bytes(candidates)
    shaped = None if blocks is None else rank_params(ranks, blocks)
    return optimizer_bytes(candidates, held, shaped)


def optimizer_bytes(
    candidates: Candidates, held: RankParams, shaped: RankParams | None
) -> FloatColumn:
    """The same for parameters and states by shape that are given.

    States of an outer optimizer are wherever these are.
    Source: `optimizer_bytes_per_param`, whose share on the device and shards hold for all.
    """
    groups, kept = shard_groups(candidates), 1 - candidates.table.offload_optimizer
    total = held.weighted(*(optimizer_bytes_per_param(candidates, one) for one in groups))
    if candidates.job.outer:
        own, _ = state_bytes_per_param(candidates.job.outer)
        total = total + kept * own * updated_params(candidates.table, held)
    if shaped is None:
        return total
    return total + shaped.weighted(*(kept / one.optimizer for one in groups))


def uneven_share_bytes(candidates: Candidates) -> FloatColumn:
    """What the fullest replica owns at most beyond the mean, where replicas own whole matrices.

    Source: Graham, SIAM J. Appl. Math. 17, 1969, bound of list scheduling: where the next matrix
    goes to the replica with least, the fullest of D has no more than the mean and 1 - 1/D of the
    largest; Megatron-LM `core/optimizer/layer_wise_optimizer.py`, _compute_per_buffer_param_layout,
    which pads all replicas to the fullest.
    """
    job, table = candidates.job, candidates.table
    request, footprint = job.training.optimizer, candidates.traits.footprint
    found = optimizer_of(request)
    if not found.whole_matrices:
        return np.zeros(len(table))
    master = footprint.master_bytes if job.training.storage_bytes < BYTES_FP32 else 0

    def owned(one: Matrix) -> FloatColumn:
        return master * one.elements + found.state_bytes(one, request, footprint.moment_bytes)

    shared, expert = largest_in_layers(job, table, owned)
    dense, routed = shard_groups(candidates)
    return shared * (1 - 1 / dense.optimizer) + expert * (1 - 1 / routed.optimizer)


def largest_block_gradients(candidates: Candidates, params: BlockParams) -> FloatColumn:
    """Gradients that live at once where every layer is updated as soon as it has run backward.

    Source: Zhao et al., GaLore, arXiv:2403.03507, section 4.3: those of one layer, here the
    largest block.
    """
    if not updates_by_layer(candidates.job):
        return np.zeros(len(candidates.table))
    layers = np.max(
        [one + routed for one, routed in zip(params.layers, params.experts, strict=True)], axis=0
    )
    most = np.maximum(layers, np.maximum(params.embedding, params.head))
    return np.asarray(candidates.job.training.storage_bytes * most)


def wide_end_bytes(candidates: Candidates, ranks: Ranks, params: BlockParams) -> ClassRows:
    """What the tables at the ends take more than a level of FP8-LM stores, on each rank class.

    They are no linear layers, so weights stay in 16 bits, and gradients and masters in 32.
    Source: Azure/MS-AMP@9746ea8 `msamp/nn/linear.py`, LinearReplacer, `megatron/distributed.py`,
    FP8DistributedDataParallel (buffers of plain tensors), and `optimizer/distrib_optimizer.py`,
    shard_fp32_from_float16_groups.
    """
    level = candidates.job.training.state_precision
    if level not in FP8_LM:
        return np.zeros((1, 1))
    stored = STORED[level]
    groups = shard_groups(candidates)[0]
    weight = BYTES_BF16 - stored.weight_bytes
    gradient = (BYTES_FP32 - stored.gradient_bytes) / groups.gradients
    master = (BYTES_FP32 - stored.master_bytes) / groups.optimizer
    ends = ranks.embedding * params.embedding + ranks.head * params.head
    return np.asarray(ends * (weight + gradient + master))
