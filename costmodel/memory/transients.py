"""Bytes that exist for a moment: logits, gradients of one layer, gather buffers."""

from __future__ import annotations

import numpy as np

from costmodel.blocks.ends import padded_vocab
from costmodel.memory.separate import (
    final_norm_bytes,
    head_gradient_bytes,
    layer_gradient_bytes,
)
from costmodel.memory.states import (
    BlockParams,
    RankParams,
    expert_shard_ranks,
    shard_ranks,
    sums_whole,
)
from costmodel.runtimes.base import RuntimeTraits
from costmodel.spec.job import Job
from costmodel.table import FloatColumn, LayoutTable

GATHERED_UNITS = 2
"""Layers whose gathered weights exist at once under ZeRO-3: the running and the prefetched one.

Source: Zhao et al., PyTorch FSDP, arXiv:2304.11277, section 4.2; torchtitan runs agree.
"""


def head_bytes(
    job: Job, traits: RuntimeTraits, table: LayoutTable, tokens: FloatColumn
) -> FloatColumn:
    """Logits, their fp32 copy and gradient while the loss runs.

    Source: `head_bytes_per_logit` of the runtime; Korthikanti et al., arXiv:2205.05198,
    section 4.3.
    """
    vocab = padded_vocab(job.model.vocab_size, table.tp) / table.tp
    hidden = job.training.storage_bytes * tokens * job.model.hidden_size
    loss = traits.head_bytes_per_logit * tokens * vocab + hidden
    if traits.autograd.weight_gradients:
        loss = np.maximum(loss, head_gradient_bytes(job, table, tokens))
    return np.asarray(loss + final_norm_bytes(job, traits, tokens))


def layer_backward_bytes(
    job: Job, traits: RuntimeTraits, table: LayoutTable, tokens: FloatColumn
) -> FloatColumn:
    """Largest gradient inside a layer, and the gathered layer input under sequence parallelism.

    Source: derived: the gradient of the first MLP product's output, or of unfused attention's
    scores; Megatron-LM `scaled_masked_softmax_backward` works in place; arXiv:2205.05198, section
    4.2.2 for the gather.
    """
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
    if traits.attention == "unfused":
        heads = model.num_attention_heads / table.tp
        score_gradients = 1 + traits.dropout  # softmax runs backward in place, dropout does not
        widest = np.maximum(widest, score_gradients * heads * job.training.seq_length)
    columns: FloatColumn = widest + model.hidden_size + gathered
    return job.training.storage_bytes * tokens * columns


def dummy_gradient_bytes(job: Job, table: LayoutTable, params: BlockParams) -> FloatColumn:
    """One bf16 buffer for each weight shape of a layer, returned instead of real gradients.

    Source: Transformer Engine `get_dummy_wgrad`; measured on 24 B200 runs (1.6 GiB for 70B).
    """
    layer = np.maximum(params.dense_layer, params.moe_layer)
    if job.model.moe:
        layer = layer + params.expert_layer / (job.model.moe.num_experts / table.ep)
    return job.training.storage_bytes * layer


def added_gradient_bytes(
    job: Job, traits: RuntimeTraits, table: LayoutTable, params: BlockParams
) -> FloatColumn:
    """Gradients of the largest layer as its products write them, where whole sums take them up.

    Source: derived; PyTorch `_fsdp_param.py`, accumulate_unsharded_grad_if_needed: a unit's
    gradients are added when its backward pass has ended.
    """
    shared, expert = (
        np.where(sums_whole(traits, table, ranks), 1.0, 0.0)
        for ranks in (shard_ranks(table), expert_shard_ranks(table))
    )
    layer = np.maximum(params.dense_layer, params.moe_layer) * shared
    return np.asarray(job.training.storage_bytes * (layer + params.expert_layer * expert))


def sharded_unit_bytes(
    job: Job,
    traits: RuntimeTraits,
    table: LayoutTable,
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
    shared, expert = shard_ranks(table) > 1, expert_shard_ranks(table) > 1
    layer = np.maximum(
        params.dense_layer * shared, params.moe_layer * shared + params.expert_layer * expert
    )
    most = held.weighted(shared.astype(np.float64), expert.astype(np.float64))
    gradients = traits.gradient_bytes * np.minimum(layer, most)
    weights = job.training.storage_bytes * np.minimum(GATHERED_UNITS * layer + ends * shared, most)
    return np.where(table.zero_stage >= 2, gradients, 0.0) + np.where(
        table.zero_stage == 3, weights, 0.0
    )
