"""Gradients that a step makes as its backward pass goes, so that not all exist at its peak."""

import numpy as np

from trainplan.costmodel.candidates import Candidates
from trainplan.costmodel.columns import BoolColumn, ClassRows
from trainplan.costmodel.layouts import num_microbatches
from trainplan.costmodel.memory.states import BlockParams, gradient_bytes_per_param
from trainplan.costmodel.pipeline import Ranks
from trainplan.costmodel.shard_groups import shard_groups


def made_anew(candidates: Candidates) -> BoolColumn:
    """Does a rank have no gradients when its loss runs?

    Source: PyTorch `torch/optim/optimizer.py`, zero_grad, which drops them (set_to_none is true);
    with a second micro batch, or under a pipeline, those of the first are there.
    """
    job, traits, table = candidates.job, candidates.traits, candidates.table
    alone = (num_microbatches(job, table) == 1) & (table.pp == 1)
    return np.asarray(alone & traits.on_torch)


def gradients_at_peak(
    candidates: Candidates,
    whole: ClassRows,
    *,
    ends: ClassRows,
    kept: ClassRows,
    loss: ClassRows,
    layer: ClassRows,
) -> ClassRows:
    """Bytes of gradients at the fullest moment of each rank class, of `whole` when all are there.

    Three moments bound the others, since layers are freed as evenly as gradients are made: the
    loss, with all that is `kept` and no gradient; the last layer, with those of the `ends`; the
    first layer, with all gradients and what one layer keeps.
    Where shards are reduced on another stream the allocator has memory of its own for them, which
    stays reserved (`MemoryTable.cached`).
    Source: derived; `made_anew`; PyTorch `_fsdp_collectives.py`, foreach_reduce.
    """
    one_layer = kept / candidates.job.model.num_hidden_layers
    moments = (loss, layer + ends, layer + whole + one_layer - kept)
    most = np.max(np.broadcast_arrays(*moments), axis=0) - np.maximum(loss, layer)
    return np.where(made_anew(candidates), np.clip(most, 0.0, whole), whole)


def end_gradients(candidates: Candidates, ranks: Ranks, params: BlockParams) -> ClassRows:
    """Gradients of the output projection and the last norm. Source: `gradient_bytes_per_param`."""
    each = gradient_bytes_per_param(candidates, shard_groups(candidates)[0])
    return np.asarray(ranks.head * params.with_gradients.head * each)
