"""Bytes that exist for a moment: logits, gradients of one layer, gather buffers."""

from __future__ import annotations

import numpy as np

from trainplan.costmodel.blocks.candidates import Candidates
from trainplan.costmodel.blocks.embedding_and_head import padded_vocab
from trainplan.costmodel.layouts import FloatColumn, LayoutTable
from trainplan.costmodel.memory.separate import (
    final_norm_bytes,
    head_gradient_bytes,
    layer_gradient_bytes,
)
from trainplan.costmodel.memory.states import (
    BlockParams,
    RankParams,
    expert_shard_ranks,
    shard_ranks,
    sums_whole,
)
from trainplan.costmodel.model.params import query_columns
from trainplan.costmodel.spec import Job

GATHERED_UNITS = 2
"""Layers whose gathered weights exist at once under ZeRO-3: the running and the prefetched one.

Source: Zhao et al., PyTorch FSDP, arXiv:2304.11277, section 4.2; torchtitan runs agree.
"""


RING_TENSORS = 22
"""16-bit tensors of the width of the queries in the backward pass of torch's ring attention, beside
what was gathered: sums of three gradients in fp32, those of one step, and what travels.

Source: torch.distributed.tensor.experimental `_attention.py`, _templated_ring_attention_backward,
with convert_to_f32; counted in tests/oracles/test_ring_attention.py.
"""


def head_bytes(candidates: Candidates, tokens: FloatColumn) -> FloatColumn:
    """Logits, their fp32 copy and gradient while the loss runs.

    Source: `head_bytes_per_logit` of the runtime; Korthikanti et al., arXiv:2205.05198,
    section 4.3.
    """
    job, traits, table = candidates.job, candidates.traits, candidates.table
    vocab = padded_vocab(job.model.vocab_size, table.tp) / table.tp
    hidden = job.training.storage_bytes * tokens * job.model.hidden_size
    loss = traits.kernels.head_bytes_per_logit * tokens * vocab + hidden
    if traits.autograd.weight_gradients:
        loss = np.maximum(loss, head_gradient_bytes(job, table, tokens))
    return np.asarray(loss + final_norm_bytes(job, traits, tokens))


def layer_backward_bytes(candidates: Candidates, tokens: FloatColumn) -> FloatColumn:
    """Largest gradient inside a layer, and the gathered layer input under sequence parallelism.

    Source: derived: the gradient of the first MLP product's output, of unfused attention's scores,
    or what attention over context ranks makes when the MLP is done; Megatron-LM
    `scaled_masked_softmax_backward` works in place; arXiv:2205.05198, section 4.2.2 for the gather.
    """
    job, traits, table = candidates.job, candidates.traits, candidates.table
    model, moe = job.model, job.model.moe
    if traits.autograd.weight_gradients:
        return layer_gradient_bytes(job, table, tokens)
    ups = 2 if model.gated_mlp else 1
    widest = ups * (model.intermediate_size if model.num_dense_layers else 0) / table.tp
    if moe:
        cut = np.where(table.sequence_parallel == 1, table.tp, 1)
        rows = moe.num_experts_per_tok * table.etp / cut
        expert = rows * (ups * moe.moe_intermediate_size / table.etp + model.hidden_size)
        widest = np.maximum(widest, expert)
    gathered = np.where(table.sequence_parallel == 1, model.hidden_size, 0)
    if traits.kernels.attention == "unfused":
        heads = model.num_attention_heads / table.tp
        score_gradients = (
            1 + traits.kernels.dropout
        )  # softmax runs backward in place, dropout does not
        widest = np.maximum(widest, score_gradients * heads * job.training.seq_length)
    ring = ring_columns(candidates) - mlp_columns(job, table)
    columns: FloatColumn = np.maximum(widest + gathered, ring) + model.hidden_size
    return job.training.storage_bytes * tokens * columns


def ring_columns(candidates: Candidates) -> FloatColumn:
    """Columns in the backward pass of attention where torch rotates repeated keys and values.

    It gathers them from all context ranks at once.
    Source: RING_TENSORS; `_attention.py`, _AllGatherRotater.
    """
    table = candidates.table
    width = query_columns(candidates.job.model) / table.tp
    tensors = (RING_TENSORS + 2 * table.cp) * (table.cp > 1)
    return np.asarray(tensors * width * candidates.traits.communication.gathers_query_heads)


def mlp_columns(job: Job, table: LayoutTable) -> FloatColumn:
    """Columns that the MLP of a layer kept, free again when its attention runs backward.

    Source: derived; the second half of a layer runs backward first. Of two kinds of layers, the
    one that frees less.
    """
    model, moe = job.model, job.model.moe
    tensors = 3 if model.gated_mlp else 2
    widths = [model.intermediate_size / table.tp] if model.num_dense_layers else []
    if moe:
        cut = np.where(table.sequence_parallel == 1, table.tp, 1)
        routed = moe.num_experts_per_tok * moe.moe_intermediate_size / cut
        widths.append(routed + moe.shared_expert_intermediate_size / table.tp)
    return np.asarray(tensors * np.min(widths, axis=0))


def dummy_gradient_bytes(job: Job, table: LayoutTable, params: BlockParams) -> FloatColumn:
    """One bf16 buffer for each weight shape of a layer, returned instead of real gradients.

    Source: Transformer Engine `get_dummy_wgrad`; measured on 24 B200 runs (1.6 GiB for 70B).
    """
    layer = np.maximum(params.dense_layer, params.moe_layer)
    if job.model.moe:
        layer = layer + params.expert_layer / (job.model.moe.num_experts / table.ep)
    return job.training.storage_bytes * layer


def added_gradient_bytes(candidates: Candidates, params: BlockParams) -> FloatColumn:
    """Gradients of the largest layer as its products write them, where whole sums take them up.

    Source: derived; PyTorch `_fsdp_param.py`, accumulate_unsharded_grad_if_needed: a unit's
    gradients are added when its backward pass has ended.
    """
    table = candidates.table
    shared, expert = (
        np.where(sums_whole(candidates.traits, table, ranks), 1.0, 0.0)
        for ranks in (shard_ranks(table), expert_shard_ranks(table))
    )
    layer = np.maximum(params.dense_layer, params.moe_layer) * shared
    return np.asarray(
        candidates.job.training.storage_bytes * (layer + params.expert_layer * expert)
    )


def sharded_unit_bytes(
    candidates: Candidates,
    params: BlockParams,
    *,
    held: RankParams,
    ends: FloatColumn,
) -> FloatColumn:
    """Gathered weights (ZeRO-3) and whole gradients (ZeRO-2, 3) of the layers in work.

    `ends` are the parameters of embedding and head on each rank class: both belong to the root
    unit, which stays gathered. No more is gathered than the rank's blocks hold, and nothing that
    only one rank holds.
    Source: arXiv:2304.11277, section 4.2.
    """
    table = candidates.table
    shared, expert = shard_ranks(table) > 1, expert_shard_ranks(table) > 1
    layer = np.maximum(
        params.dense_layer * shared, params.moe_layer * shared + params.expert_layer * expert
    )
    most = held.weighted(shared.astype(np.float64), expert.astype(np.float64))
    gradients = candidates.traits.gradients.accumulated_bytes * np.minimum(layer, most)
    weights = candidates.job.training.storage_bytes * np.minimum(
        GATHERED_UNITS * layer + ends * shared, most
    )
    return np.where(table.zero_stage >= 2, gradients, 0.0) + np.where(
        table.zero_stage == 3, weights, 0.0
    )
