"""Bytes that exist for a moment: logits, gradients of one layer, gather buffers.

Also where no operation is fused with another.
"""

import numpy as np

from trainplan.costmodel.architecture import ModelSpec, trains_embedding, trains_head
from trainplan.costmodel.base import BYTES_BF16, BYTES_FP32
from trainplan.costmodel.blocks import norm_extra_bytes
from trainplan.costmodel.candidates import Candidates, remembered
from trainplan.costmodel.columns import FloatColumn
from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import SCHEDULE_NAMES
from trainplan.costmodel.layouts import LayoutTable, num_microbatches
from trainplan.costmodel.memory.tiles import (
    attention_backward_columns,
    hidden_gradient_columns,
    table_sum_bytes,
    tile_bytes_per_logit,
    tiled_layer_columns,
)
from trainplan.costmodel.mixers import projected_columns
from trainplan.costmodel.model import expert_hidden, query_columns
from trainplan.costmodel.routing import loads
from trainplan.costmodel.runtimes import RuntimeTraits
from trainplan.costmodel.schedules import SCHEDULES
from trainplan.costmodel.shards import CAST_BYTES, loss_share, padded_vocab, projected_share

FORWARD_FIRST = np.array([SCHEDULES[name].forward_first for name in SCHEDULE_NAMES])
"""Schedules by number: does every forward pass come before the first backward pass?"""


def final_norm_bytes(job: Job, traits: RuntimeTraits, tokens: FloatColumn) -> FloatColumn:
    """What the final norm keeps more than its output.

    Source: as in a layer; pytorch derivatives.yaml, `_fused_rms_norm` and `native_layer_norm`.
    """
    model, storage = job.model, job.training.storage_bytes
    kept = storage * model.hidden_size + norm_extra_bytes(model, traits.autograd, storage)
    return kept * tokens * (traits.autograd.final_norm and model.final_norm)


def head_gradient_bytes(job: Job, table: LayoutTable, tokens: FloatColumn) -> FloatColumn:
    """Gradients of logits, hidden state and output table together, with the table's input.

    A frozen table has no gradient and keeps no input.
    Source: derived; `mm` makes both of its gradients while that of its result is there.
    """
    vocab = padded_vocab(job.model.vocab_size, table.tp) / table.tp
    hidden = job.model.hidden_size
    elements = tokens * vocab + tokens * hidden
    if trains_head(job.model):
        elements = tokens * vocab + vocab * hidden + 2 * tokens * hidden
    return np.asarray(job.training.storage_bytes * elements)


def layer_gradient_bytes(job: Job, table: LayoutTable, tokens: FloatColumn) -> FloatColumn:
    """What the backward pass of a layer adds to its kept tensors when the sum is largest.

    The gradient of the layer's output lives through all of it.
    Source: the output's gradient lives through the whole pass, so it adds to the larger of the
    inner sums, which `mlp_gradient_bytes` and `expert_gradient_bytes` derive moment by moment.
    """
    model = job.model
    inside = np.zeros(len(table))
    for kind in model.kinds:
        of_kind = job.model_copy(update={"model": kind})
        if kind.feed_forward == "mlp":
            width = kind.intermediate_size
            own = mlp_gradient_bytes(of_kind, table, tokens, width=width)
            inside = np.maximum(inside, own)
        elif kind.moe:
            inside = np.maximum(inside, expert_gradient_bytes(of_kind, table, tokens))
    output = job.training.storage_bytes * tokens * model.hidden_size
    return np.asarray(output + inside + waiting_gradient_bytes(job, table))


def mlp_gradient_bytes(
    job: Job, table: LayoutTable, tokens: FloatColumn, *, width: int
) -> FloatColumn:
    """Gradients inside an MLP of the given width, less the kept tensors that are freed by then.

    The last product makes the gradients of its input and its weight. It frees its input; then the
    activation runs backward: a gated unit makes the gradients of both branches, a ReLU, whose
    output that input is, frees nothing before its end, its square makes three tensors.
    Source: derived from pytorch derivatives.yaml, formulas of `mm`, `mul`, `relu` and `pow`.
    """
    model = job.model
    at_once = 2 if model.gated_mlp else {"relu": 2, "relu2": 3}.get(model.activation, 1)
    product = tokens + model.hidden_size * (model.trained is None)
    elements = width / table.tp * np.maximum(product, at_once * tokens)
    return np.asarray(job.training.storage_bytes * elements)


def expert_gradient_bytes(job: Job, table: LayoutTable, tokens: FloatColumn) -> FloatColumn:
    """Gradients inside a mixture of experts, less the kept tensors that are freed by then.

    In the order of the backward pass: the shared expert; weighting the outputs, three tensors of
    rows; the last product; the activation, when those outputs are freed; the last of the first
    products, when all around the activation is. All experts are one weight.
    Source: PyTorch `derivatives.yaml`, `mm`, and `_grouped_mm`: both gradients are made while that
    of the result is there; the lines of the sum are the moments above.
    """
    moe, storage = job.model.moe, job.training.storage_bytes
    assert moe is not None
    rows, hidden = tokens * moe.rows_per_token * loads(job, table).fullest, job.model.hidden_size
    inner = rows * moe.moe_intermediate_size / table.etp
    outer = rows * hidden
    weight = moe.num_experts / table.ep * hidden * moe.moe_intermediate_size / table.etp
    weight = weight * (job.model.trained is None)
    branches = 2 if job.model.gated_mlp else 1
    moments = (
        3 * outer,
        inner + weight,
        branches * inner - outer,
        (branches - 1) * outer - (2 * branches - 1) * inner + weight,
    )
    elements = np.max(np.broadcast_arrays(*moments), axis=0)
    width = moe.shared_expert_intermediate_size
    if not width:
        return np.asarray(storage * elements)
    shared = mlp_gradient_bytes(job, table, tokens, width=width)
    freed = tokens * (2 * branches * width / table.tp - hidden)
    return np.asarray(np.maximum(shared, storage * (elements - freed)))


def waiting_gradient_bytes(job: Job, table: LayoutTable) -> FloatColumn:
    """Gradient of a tied table from the head, which waits for that from the embedding.

    Source: derived; autograd adds the gradients of all uses before it hands a leaf its sum.
    """
    vocab = padded_vocab(job.model.vocab_size, table.tp) / table.tp
    tied = job.model.tie_word_embeddings and trains_embedding(job.model)
    return np.asarray(job.training.storage_bytes * vocab * job.model.hidden_size * tied)


RELOADED_LAYERS = 2
"""Layers of experts whose activations are back from their stash: the running and the next one.

Source: Megatron-LM @d98e8a64 `core/transformer/moe/paged_stash.py`, PipelinePreScheduleFunction.
"""
RING_TENSORS = 22
"""16-bit tensors of the width of the queries in the backward pass of torch's ring attention, next
to what was gathered: sums of three gradients in fp32, those of one step, and what travels.

Source: torch.distributed.tensor.experimental `_attention.py`, _templated_ring_attention_backward,
with convert_to_f32; counted in tests/oracles/test_ring_attention.py.
"""


@remembered
def head_bytes(candidates: Candidates, tokens: FloatColumn) -> FloatColumn:
    """Logits, their fp32 copy and gradient while the loss runs, of all tokens or of one tile.

    Source: `head_bytes_per_logit` of the runtime; Korthikanti et al., arXiv:2205.05198,
    section 4.3; `loss_share`; `Communication.gathers_logits`.
    """
    job, traits, table = candidates.job, candidates.traits, candidates.table
    hidden = job.training.storage_bytes * tokens * job.model.hidden_size * trains_head(job.model)
    projected = tokens * projected_share(job, traits)
    made = projected * loss_share(job, traits, table)
    cut = np.where(traits.communication.gathers_logits, 1, table.tp)
    logits = padded_vocab(job.model.vocab_size, table.tp) / cut
    loss = tile_bytes_per_logit(candidates) * made * logits + hidden
    loss = loss + table_sum_bytes(candidates)
    loss = loss + job.training.storage_bytes * projected * hidden_gradient_columns(candidates)
    if traits.autograd.weight_gradients:
        loss = np.maximum(loss, head_gradient_bytes(job, table, projected))
    return np.asarray(loss + final_norm_bytes(job, traits, tokens))


@remembered
def waiting_loss_bytes(candidates: Candidates, tokens: FloatColumn) -> FloatColumn:
    """What last norm, head and loss keep of micro batches that wait for their backward pass.

    All of a step but the one whose loss runs, where every forward pass comes first: the log-softmax
    in fp32, input and output of the norm. Elsewhere none waits.
    Source: pytorch v2.13.0 derivatives.yaml, `_log_softmax` (its result), `mm` (both factors);
    measured to 0.01 % on torch's GPipe, tests/unit/profiler/train/test_torch_layouts.py.
    """
    job, traits, table = candidates.job, candidates.traits, candidates.table
    first = FORWARD_FIRST[table.schedule] & (table.pp > 1)
    waiting = np.where(first, num_microbatches(job, table) - 1, 0)
    vocab = padded_vocab(job.model.vocab_size, table.tp) / table.tp
    logits = BYTES_FP32 * vocab * projected_share(job, traits) * (table.tiled_loss == 0)
    cut = np.where(table.sequence_parallel == 1, table.tp, 1)
    rows = 1 / cut + (1 if traits.footprint.keeps_gathered_inputs else 1 / cut)
    normed = rows * job.training.storage_bytes * job.model.hidden_size
    return np.asarray(waiting * tokens * (logits + normed))


@remembered
def layer_backward_bytes(candidates: Candidates, tokens: FloatColumn) -> FloatColumn:
    """Largest gradient inside a layer, and the gathered layer input under sequence parallelism.

    Source: derived: the gradient of the first MLP product's output, of unfused attention's scores,
    what attention over context ranks makes when the MLP is done, or that of the projected input of
    a mixer that carries a state; Megatron-LM
    `scaled_masked_softmax_backward` works in place; arXiv:2205.05198, section 4.2.2 for the gather.
    """
    job, traits, table = candidates.job, candidates.traits, candidates.table
    model, moe = job.model, job.model.moe
    if traits.autograd.weight_gradients:
        return layer_gradient_bytes(job, table, tokens)
    ups, tiled = 2 if model.gated_mlp else 1, table.tiled_mlp == 1
    ups = 1 if traits.autograd.gated_in_place else ups
    ups *= 2 if job.options.activation_func_fp8_input_store else 1  # cast back beside the gradients
    widest = ups * widest_mlp(model) / table.tp
    if tiled.any():
        widest = np.where(tiled, tiled_layer_columns(candidates, widest_mlp(model)), widest)
    if moe:
        cut = np.where(table.sequence_parallel == 1, table.tp, 1)
        rows = moe.rows_per_token * table.etp / cut * loads(job, table).fullest
        inner = moe.moe_intermediate_size / table.etp
        outputs = 1 + traits.experts.delays_weights  # whose gradients wait for the weights'
        expert = rows * (ups * inner + outputs * expert_hidden(model))
        if traits.stashes_experts:
            back = RELOADED_LAYERS * stashed_columns(job, rows, inner)
            expert = traits.rank_capacity * (expert + back)
        if "allgather" in (traits.experts.dispatcher, traits.experts.dispatcher_across):
            expert = expert + gathered_columns(candidates) / cut
        widest = np.maximum(widest, expert)
    projected = max(projected_columns(kind) for kind in model.kinds)
    widest = np.maximum(widest, projected / table.tp) if projected else widest
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


def gathered_columns(candidates: Candidates) -> FloatColumn:
    """Elements per token of a rank where all tokens are gathered to all expert ranks.

    The buffer of those that are gathered, which stays, what experts return for all of them, and
    that once more as wide as a routing weight.
    Source: Megatron-LM @d98e8a64 `moe/token_dispatcher.py`, MoEAllGatherTokenDispatcher
    (use_global_buffer; unpermute and `hidden_states.to(self.local_probs.dtype)`).
    """
    job, table = candidates.job, candidates.table
    weight = candidates.traits.experts.routing_weight_bytes / job.training.storage_bytes
    ranks = table.ep * table.etp
    return np.where(ranks > 1, ranks * expert_hidden(job.model) * (2 + weight), 0.0)


def stashed_columns(job: Job, rows: FloatColumn, inner: FloatColumn) -> FloatColumn:
    """Elements per token of one layer that come back from a stash.

    Inputs of both products of the experts, cast where those multiply in fewer bits, and of the
    activation.
    Source: `saved_bytes` of blocks/feed_forward/rows.py.
    """
    cast = CAST_BYTES.get(job.training.precision, BYTES_BF16) / BYTES_BF16
    branches = 2 if job.model.gated_mlp else 1
    return rows * (cast * expert_hidden(job.model) + (branches + cast) * inner)


def graph_pool_bytes(candidates: Candidates, tokens: FloatColumn) -> FloatColumn:
    """What graphs of layers hold more than their saved tensors while all else runs without a graph.

    Their pool gives nothing back: temporaries of attention running backward, and static gradients
    of a graph's output and input. Graphs that run one after the other have one of each.
    Source: Megatron-LM @d98e8a64 `core/transformer/cuda_graphs.py`, TECudaGraphHelper
    (_reuse_graph_input_output_buffers); PyTorch notes on CUDA semantics, graph memory management.
    """
    if candidates.traits.host.cuda_graph != "partial":
        return np.zeros(len(candidates.table))
    job, table = candidates.job, candidates.table
    cut = np.where(table.sequence_parallel == 1, table.tp, 1)
    gradients = 2 * job.model.hidden_size / cut
    columns = attention_backward_columns(candidates) + gradients
    return np.asarray(job.training.storage_bytes * tokens * columns)


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
    widths = [
        kind.intermediate_size / table.tp for kind in model.kinds if kind.feed_forward == "mlp"
    ]
    if moe:
        cut = np.where(table.sequence_parallel == 1, table.tp, 1)
        routed = moe.rows_per_token * moe.moe_intermediate_size / cut
        widths.append(routed + moe.shared_expert_intermediate_size / table.tp)
    if any(kind.feed_forward == "none" for kind in model.kinds):
        widths.append(np.zeros(len(table)))
    return np.asarray(tensors * np.min(widths, axis=0))


def widest_mlp(model: ModelSpec) -> int:
    """Largest width of a plain MLP; 0: no layer has one."""
    widths = [kind.intermediate_size for kind in model.kinds if kind.feed_forward == "mlp"]
    return max(widths, default=0)
