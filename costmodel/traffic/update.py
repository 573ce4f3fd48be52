"""Seconds by which an update takes longer, or shorter, than AdamW's: bytes, products, exchanges.

Of each kind of block, so that a rank's are the sum over its blocks, and shared out over the
replicas as its states are.
"""

import numpy as np

from trainplan.costmodel.base import BYTES_BF16, BYTES_FP32
from trainplan.costmodel.candidates import Candidates
from trainplan.costmodel.columns import ClassRows, FloatColumn
from trainplan.costmodel.comm import collective_seconds, group
from trainplan.costmodel.job import OptimizerSpec
from trainplan.costmodel.kernels import (
    ADAM_SHARD_BYTES,
    Product,
    optimizer_bytes_per_second,
    product_seconds,
    sum_columns,
)
from trainplan.costmodel.layouts import LayoutTable
from trainplan.costmodel.machine import Machine
from trainplan.costmodel.memory import of_trained, rank_params
from trainplan.costmodel.optimizers import Matrix, Multiplied, optimizer_of
from trainplan.costmodel.pipeline import Ranks
from trainplan.costmodel.shard_groups import shard_groups
from trainplan.costmodel.traffic.casts import rank_cast_seconds

FACTOR_FLOP_PER_SECOND = 0.8e12
"""FLOPs a second of factorizations, which run mostly one after the other.

Source: assumed; about ten minutes for the singular vectors of all layers of LLaMA-7B, which Zhu et
al., APOLLO, arXiv:2412.05270, give of GaLore, and 4.9e14 FLOPs by `Galore.decomposition_flop`.
"""
WEIGHT_AND_GRADIENT_BYTES, WEIGHT_AND_GRADIENT_BYTES_BARE = 26, 12
"""Bytes moved per parameter more than the optimizer's own states: the fp32 gradient is read for its
norm, clipped and read again (16), the fp32 weight read and written, the 16-bit one written (10).
Without an fp32 copy the gradient takes half (8), and the one weight is read and written (4).

Source: ADAM_SHARD_BYTES, whose other 16 bytes are both moments, read and written.
"""

STEP_WEIGHT_AND_GRADIENT_BYTES = 12
"""Of these, what the step alone moves: the fp32 gradient read, the fp32 weight read and written.

Source: ADAM_STEP_BYTES, whose other 16 bytes are both moments, read and written.
"""


def rank_update_seconds(candidates: Candidates, machine: Machine, ranks: Ranks) -> ClassRows:
    """Seconds to add to those of AdamW, of each rank class; AdamW itself adds nothing but casts.

    Source: derived; a rank updates whole blocks, and of what is sharded one part of as many as
    there are ranks, whole matrices of it or pieces; `rank_cast_seconds`.
    """
    casts = rank_cast_seconds(candidates, machine, ranks)
    if optimizer_of(candidates.job.training.optimizer).on_host:
        return casts
    blocks = of_trained(
        candidates.job, candidates.table, lambda one: tensor_seconds(candidates, machine, one)
    )
    shares = (1 / groups.optimizer for groups in shard_groups(candidates))
    return np.asarray(casts + rank_params(ranks, blocks).weighted(*shares))


def tensor_seconds(candidates: Candidates, machine: Machine, one: Matrix) -> FloatColumn:
    """Seconds of the update of one tensor beyond those of AdamW.

    Source: derived; states are read and written once at the speed of AdamW's, what is multiplied,
    factorized and gathered is done one after the other.
    """
    request = candidates.job.training.optimizer
    found, width = optimizer_of(request), candidates.traits.footprint.moment_bytes
    usual = WEIGHT_AND_GRADIENT_BYTES_BARE if found.bare else WEIGHT_AND_GRADIENT_BYTES
    moved = (usual - STEP_WEIGHT_AND_GRADIENT_BYTES - ADAM_SHARD_BYTES) * one.elements
    seconds = moved / optimizer_bytes_per_second(machine)
    seconds = seconds + machine.optimizer_slowness * step_seconds(machine, one, request, width)
    seconds = seconds + found.decomposition_flop(one, request) / FACTOR_FLOP_PER_SECOND
    if found.gathers_tensor_ranks and one.role == "hidden":
        seconds = seconds + gather_seconds(machine, candidates.table, one)
    return np.asarray(seconds)


def step_seconds(
    machine: Machine, one: Matrix, request: OptimizerSpec, width: float
) -> FloatColumn:
    """Seconds of the step of one tensor alone, whose moments take `width` bytes each.

    Source: as `tensor_seconds`; STEP_WEIGHT_AND_GRADIENT_BYTES.
    """
    found = optimizer_of(request)
    moved = STEP_WEIGHT_AND_GRADIENT_BYTES * one.elements + 2 * found.state_bytes(
        one, request, width
    )
    products = (_product_seconds(machine, product) for product in found.products(one, request))
    return np.asarray(moved / optimizer_bytes_per_second(machine) + sum_columns(products))


def _product_seconds(machine: Machine, one: Multiplied) -> FloatColumn:
    """Of one product of an update, in 16 bits; 0 of an empty one. Source: `product_seconds`."""
    sizes = (np.asarray(side, dtype=np.float64) for side in (one.m, one.n, one.k))
    m, n, k = np.broadcast_arrays(*sizes)
    seconds = product_seconds(machine, machine.half, Product(m, n, k), BYTES_BF16)
    return np.asarray(one.times * seconds * (m * n * k > 0))


def gather_seconds(machine: Machine, table: LayoutTable, one: Matrix) -> FloatColumn:
    """All tensor ranks get the whole matrix that they hold parts of, in fp32.

    Source: Megatron-LM `training/arguments.py`, --muon-tp-mode duplicated, its default, and
    `core/optimizer/emerging_optimizers.py`, newton_schulz_tp.
    """
    parts = np.broadcast_to(one.gathered_from, (len(table),)).astype(np.int64)
    links = group(machine, parts, np.ones_like(parts))
    whole = BYTES_FP32 * one.elements * parts
    return np.where(parts > 1, collective_seconds(machine, "all_gather", whole, links), 0.0)
