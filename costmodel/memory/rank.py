"""Memory of each pipeline rank class, by term, and bytes outside the tensors of the model."""

from dataclasses import dataclass, replace

import numpy as np

from trainplan.costmodel import catalog
from trainplan.costmodel.base import GIB
from trainplan.costmodel.blocks import RowBlocks, embedding_kept_bytes
from trainplan.costmodel.candidates import Candidates, remembered
from trainplan.costmodel.columns import BoolColumn, ClassRows, FloatColumn, Rows
from trainplan.costmodel.job import Job
from trainplan.costmodel.layouts import NONE, num_microbatches
from trainplan.costmodel.memory.dispatch import dispatch_buffer_bytes
from trainplan.costmodel.memory.gathered import gathered_bytes
from trainplan.costmodel.memory.host import OffDevice, off_device
from trainplan.costmodel.memory.in_transit import device_share, in_transit_bytes, kept_in_transit
from trainplan.costmodel.memory.made_anew import end_gradients, gradients_at_peak, made_anew
from trainplan.costmodel.memory.optimizer_state import rank_optimizer_bytes, wide_end_bytes
from trainplan.costmodel.memory.received import received_bytes
from trainplan.costmodel.memory.states import (
    BlockParams,
    RankParams,
    gradient_bytes_per_param,
    gradients_follow,
    low_precision_weight_bytes,
)
from trainplan.costmodel.memory.step_copies import step_copy_bytes, update_copy_bytes
from trainplan.costmodel.memory.tower import frozen_bytes, held_bytes, moment_bytes
from trainplan.costmodel.memory.trained import held_weight_bytes, made_weight_bytes
from trainplan.costmodel.memory.transients import (
    graph_pool_bytes,
    head_bytes,
    layer_backward_bytes,
    waiting_loss_bytes,
)
from trainplan.costmodel.memory.weight_buffers import weight_buffer_bytes
from trainplan.costmodel.pipeline import Ranks
from trainplan.costmodel.runtimes import RuntimeTraits
from trainplan.costmodel.shard_groups import shard_groups
from trainplan.costmodel.shards import remade_bytes

RESERVE_FACTOR = 1.05
"""Reserved by the caching allocator over allocated at the peak.

Source: 24 measured B200 runs: 1.028 to 1.065.
"""
SCATTERED = 0.065
"""Share of the peak that is reserved beyond RESERVE_FACTOR where scores of unfused attention run
again: the largest tensors come and go between those that stay.

Source: 21 plans of Dazz993/Mist @d69e530a that state both (examples/accuracy/runs.jsonl): 1.03 to
1.18, median 1.115; the same layers of 2021 without recomputation, and fused ones, are as above.
"""
WORKSPACE_BYTES, OLD_WORKSPACE_BYTES = GIB / 32, GIB / 128
"""Scratch memory of cuBLAS for one library from Hopper on (32 MiB), and before (8 MiB).

Source: PyTorch notes on CUDA semantics, default of `CUBLAS_WORKSPACE_CONFIG`; Transformer Engine
`get_cublas_workspace_size_bytes`.
"""
OLD_ARCHITECTURES = frozenset({"volta", "turing", "ampere", "ada"})
"""NVIDIA's before Hopper, as the catalog names them."""


def workspace_bytes(job: Job, traits: RuntimeTraits) -> float:
    """Scratch memory of all libraries on the GPU that takes most of it."""
    names = {catalog.device(group).architecture for group in job.cluster.groups}
    each = OLD_WORKSPACE_BYTES if names <= OLD_ARCHITECTURES else WORKSPACE_BYTES
    return traits.footprint.workspaces * each


@dataclass(frozen=True, slots=True)
class MemoryTable:
    """Bytes of each rank class."""

    weights: ClassRows
    gradients: ClassRows
    optimizer: ClassRows
    activations: ClassRows
    transients: ClassRows
    in_transit: ClassRows
    """Offloaded activations that are on the device for a moment."""
    outside_bytes: FloatColumn
    """Device memory of one process that the allocator does not manage."""
    off_device: OffDevice
    follows: Rows
    """1 where gradients are offloaded with the optimizer."""
    cached: ClassRows
    """What the allocator keeps more than its peak and would give back before a run fails."""
    in_loss: ClassRows
    """1 where a rank is fullest in the loss, not in the backward pass of a layer."""
    logits: FloatColumn
    """`head_bytes` of a rank that has the head."""

    @property
    def offloadable(self) -> ClassRows:
        """What leaves the device with the whole optimizer, if all of it is on the GPU here.

        Source: `Offloading.gradients`; its states, and gradients that follow them.
        """
        return self.optimizer + self.follows * self.gradients

    @property
    def allocated(self) -> ClassRows:
        """Peak the allocator hands out.

        Source: the terms are different tensors that live at the same moment, so the allocator has
        handed out the bytes of all of them.
        """
        kept = self.weights + self.gradients + self.optimizer + self.activations
        return kept + self.transients + self.in_transit

    @property
    def reserved(self) -> ClassRows:
        """Peak the allocator takes from the device.

        Source: RESERVE_FACTOR.
        """
        return self.allocated * RESERVE_FACTOR

    def offload_needed(self, memory_bytes: float | ClassRows) -> FloatColumn:
        """Share of the optimizer, on the GPU here, that has to leave for ranks to use no more.

        0 where nothing has to, above 1 or infinite where that is not enough.
        Source: as `used_with_offload`, solved for the fraction; the rank that needs most decides.
        """
        free = (memory_bytes - self.outside_bytes) / RESERVE_FACTOR
        over = np.maximum(0.0, self.allocated - free)
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.where(over > 0, over / self.offloadable, 0.0)
        return np.asarray(share.max(axis=0))

    def used_with_offload(self, fraction: float | FloatColumn) -> ClassRows:
        """Device memory when that share of the optimizer, on the GPU here, is offloaded.

        Source: as `used`; the offloaded share leaves the device.
        """
        kept = self.allocated - fraction * self.offloadable
        return np.asarray(kept * RESERVE_FACTOR + self.outside_bytes)

    def least_used(self, most_offload: FloatColumn) -> FloatColumn:
        """Device memory no recomputation or offload can go below.

        Without activations, and with the largest share of the optimizer offloaded.
        Source: activations are no fewer than none, and the largest offloaded share leaves least of
        the optimizer; the other terms depend on neither, or grow with recomputation.
        """
        states = self.weights + self.gradients + self.optimizer - most_offload * self.offloadable
        kept = (states + self.transients).max(axis=0)
        return np.asarray(kept * RESERVE_FACTOR + self.outside_bytes)

    @property
    def used(self) -> FloatColumn:
        """Device memory of the fullest rank: reserved, context and communicators.

        Source: a job fails on the rank that needs most; its device holds what the allocator
        reserved, and context and communicators next to it.
        """
        return np.asarray(self.reserved.max(axis=0) + self.outside_bytes)

    def fits(self, memory_bytes: float) -> BoolColumn:
        """Do the GPUs, of which ranks may use so much, and their node hold it? Source: `used`."""
        return np.asarray((self.used <= memory_bytes) & self.off_device.fits())


@remembered
def _tokens(candidates: Candidates) -> FloatColumn:
    """Tokens of one micro batch on one context-parallel rank."""
    table = candidates.table
    return table.micro_batch_size * candidates.job.training.seq_length / table.cp


def rank_memory(
    candidates: Candidates,
    blocks: RowBlocks,
    *,
    ranks: Ranks,
    params: BlockParams,
    held: RankParams,
) -> MemoryTable:
    """Peak memory of each rank class."""
    job, traits, table = candidates.job, candidates.traits, candidates.table
    tokens = _tokens(candidates)
    own = held.with_gradients
    logits = head_bytes(candidates, tokens)
    loss = ranks.head * logits
    layer = backward_bytes(candidates, blocks, ranks=ranks, tokens=tokens)
    moment = np.maximum(loss, layer) + ranks.head * waiting_loss_bytes(candidates, tokens)
    first_kept = embedding_kept_bytes(job, traits, table)
    if job.model.tower:
        moment = np.maximum(moment, ranks.embedding * moment_bytes(candidates, blocks))
        first_kept = first_kept + held_bytes(candidates, blocks)
    weights = (
        held_weight_bytes(candidates, held)
        - uncached_bytes(candidates, ranks=ranks, params=params)
        + wide_end_bytes(candidates, ranks, params)
        + ranks.embedding * frozen_bytes(candidates, params.tower)
    )
    kept = activation_bytes(blocks, ranks)
    if traits.offloading.by_layer:
        kept = kept * num_microbatches(job, table)
    away = table.offload_checkpoints * kept
    found = MemoryTable(
        weights=np.where(table.offload_parameters > 0, 0.0, weights),
        gradients=own.weighted(
            *(gradient_bytes_per_param(candidates, one) for one in shard_groups(candidates))
        ),
        optimizer=rank_optimizer_bytes(candidates, ranks, own),
        activations=kept * device_share(ranks, traits.footprint.offloaded_layers)
        - away
        + ranks.embedding_held * first_kept,
        transients=moment
        + graph_pool_bytes(candidates, tokens)
        + workspace_bytes(job, traits)
        + received_bytes(candidates, blocks, ranks)
        + weight_buffer_bytes(candidates, ranks=ranks, params=params, held=held)
        + gathered_bytes(candidates, ranks),
        in_transit=in_transit_bytes(blocks, ranks, table)
        + kept_in_transit(candidates, blocks, away),
        outside_bytes=traits.footprint.outside(candidates.machine.outside_bytes)
        + dispatch_buffer_bytes(candidates, tokens),
        off_device=off_device(
            candidates, blocks, ranks=ranks, held=held, weights=weights, checkpoints=away
        ),
        follows=gradients_follow(traits, table),
        cached=step_copy_bytes(candidates, ranks, params.with_gradients, held),
        in_loss=np.where(loss > layer, 1.0, 0.0),
        logits=logits,
    )
    copies = update_copy_bytes(candidates, held)
    if copies.any() or made_anew(candidates).any():
        ends = end_gradients(candidates, ranks, params)
        found = _as_it_goes(candidates, found, copies=copies, ends=ends, loss=loss, layer=layer)
    again = (table.recompute != NONE) & (traits.kernels.attention == "unfused")
    return replace(found, cached=found.cached + SCATTERED * again * found.allocated)


def _as_it_goes(
    candidates: Candidates,
    found: MemoryTable,
    *,
    copies: ClassRows,
    ends: ClassRows,
    loss: ClassRows,
    layer: ClassRows,
) -> MemoryTable:
    """With the gradients that are there at the peak, and the copies of an update behind it.

    Shards of gradients are made on another stream, whose memory the loss does not use.
    """
    kept = found.activations + found.in_transit
    gradients = gradients_at_peak(
        candidates, found.gradients, ends=ends, kept=kept, loss=loss, layer=layer
    )
    beyond = copies - kept
    whole = replace(found, transients=np.maximum(found.transients, beyond))
    transients = np.maximum(found.transients, beyond + found.gradients - gradients)
    made = replace(found, gradients=gradients, transients=transients)
    elsewhere = (whole.reserved - made.reserved) * (shard_groups(candidates)[0].ranks > 1)
    return replace(made, cached=found.cached + elsewhere)


def uncached_bytes(candidates: Candidates, *, ranks: Ranks, params: BlockParams) -> FloatColumn:
    """Bytes that `weight_bytes_per_param` counts of the ends beyond those they have.

    Embedding and output projection multiply in 16 bits, so nothing is cast; where all else has no
    weights in 16 bits they have more than it counts.
    Source: Megatron-LM @d98e8a64 `models/gpt/gpt_model.py`: tensor_parallel.ColumnParallelLinear
    and VocabParallelEmbedding, no modules of Transformer Engine, which alone keep copies.
    """
    job, traits = candidates.job, candidates.traits
    casts = job.training.casts and traits.footprint.low_precision != "cast"
    casts = casts and traits.footprint.weight_bytes is None
    ends = ranks.embedding * params.embedding + ranks.head * params.head
    if not casts:
        return np.zeros(ends.shape)
    shards = shard_groups(candidates)[0].weights
    counted = low_precision_weight_bytes(job, traits) - remade_bytes(job, traits)
    return np.asarray((counted - job.training.storage_bytes) * ends / shards)


def activation_bytes(blocks: RowBlocks, ranks: Ranks) -> ClassRows:
    """Activations of all micro batches in flight on each rank class.

    Layers kept whole hold what selective recomputation leaves; layers recomputed in full hold
    their input (block), or one input for a group of layers (uniform).
    Source: Korthikanti et al., arXiv:2205.05198, sections 4 and 5.
    """
    total = ranks.inputs_held * blocks.kinds.layer_input_bytes[blocks.key]
    for held, layer in zip(ranks.whole_held, blocks.layers, strict=True):
        if held.any():
            total += held * layer.saved_bytes
    if ranks.mtp.any():
        total += ranks.mtp_held * blocks.mtp.saved_bytes
    return total


def backward_bytes(
    candidates: Candidates, blocks: RowBlocks, *, ranks: Ranks, tokens: FloatColumn
) -> FloatColumn:
    """What lives while one layer runs backward: its gradients and what it recomputed.

    Under full recomputation a group of layers lives again.
    Source: the head's backward pass frees the logits before the first layer runs backward; then one
    layer's gradients, and what was dropped and is made again, are live with all that is kept.
    """
    kept = blocks.largest(lambda layer: layer.saved_bytes)
    dropped = blocks.largest(lambda layer: layer.dropped_bytes)
    layer = layer_backward_bytes(candidates, tokens) + dropped
    layer = layer + made_weight_bytes(candidates)
    if candidates.traits.autograd.shared_layer_input:
        again = ranks.layers_at_once > 0
        layer = layer - again * blocks.kinds.layer_input_bytes[blocks.key]
    return layer + ranks.layers_at_once * kept
