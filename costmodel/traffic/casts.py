"""Low-precision copies of the updated weights, which every rank makes once a step."""

from dataclasses import replace

import numpy as np

from trainplan.costmodel.base import BYTES_BF16
from trainplan.costmodel.candidates import Candidates
from trainplan.costmodel.columns import ClassRows
from trainplan.costmodel.kernels import streaming_bytes_per_second
from trainplan.costmodel.machine import Machine
from trainplan.costmodel.memory import TowerParams, of_blocks, rank_params
from trainplan.costmodel.pipeline import Ranks
from trainplan.costmodel.shards import CAST_BYTES, needs_second_cast


def copied_bytes(candidates: Candidates, machine: Machine) -> float:
    """Bytes moved for each weight of a product before its first pass of a step.

    Weights in 16 bits are read once and written in low precision; the copy for the backward pass is
    written too where it is another. Weights that exist in low precision are transposed, read and
    written. mxfp8 has blocks along either dimension, so both copies come from 16 bits.
    Source: `CAST_BYTES`; NVIDIA/TransformerEngine @d0067d0d `pytorch/module/base.py`,
    quantize_weight (cached over micro batches, renewed in the first),
    `pytorch/tensor/storage/float8_tensor_storage.py`, update_usage, and
    `docs/examples/fp8_primer.ipynb`, handling transposes; `PRIMARY_MESSAGE_BYTES`.
    """
    kept, precision = candidates.traits.footprint.low_precision, candidates.job.training.precision
    if kept == "cast" or precision not in CAST_BYTES:
        return 0.0
    one, again = CAST_BYTES[precision], needs_second_cast(candidates.job, machine.architecture)
    if kept == "primary" and precision != "mxfp8":
        return 2 * one * again
    return BYTES_BF16 + one + one * again


def rank_cast_seconds(candidates: Candidates, machine: Machine, ranks: Ranks) -> ClassRows:
    """Seconds by which the casts of new weights delay the step, of each rank class.

    A rank casts a layer when the first micro batch reaches it, so that one waits on each of `pp`
    ranks in turn, and all others behind it.
    Source: derived; with casts of c seconds a rank the first micro batch reaches the last rank
    (pp - 1) c later and has passed it pp c later; a full pipeline has no gap to make it up in.
    """
    moved = copied_bytes(candidates, machine)
    if not moved or candidates.job.model.trained is not None:
        return np.zeros((1, 1))
    job, table = candidates.job, candidates.table
    made = of_blocks(job, table, lambda one: one.elements * (one.role == "hidden"))
    narrow = [not kind.wide_products for kind in job.model.kinds]
    cast = replace(
        made,
        layers=tuple(one * own for one, own in zip(made.layers, narrow, strict=True)),
        experts=tuple(one * own for one, own in zip(made.experts, narrow, strict=True)),
        tower=TowerParams(*np.zeros((2, len(table)))),
    )
    every = np.full(len(table), moved)
    seconds = rank_params(ranks, cast).weighted(every, every)
    return np.asarray(table.pp * seconds / streaming_bytes_per_second(machine))
