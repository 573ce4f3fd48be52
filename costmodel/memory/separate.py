"""Tensors that exist for a moment where every operation stands for itself (no fused kernels)."""

from __future__ import annotations

import numpy as np

from trainplan.costmodel.blocks.embedding_and_head import padded_vocab
from trainplan.costmodel.blocks.saved import norm_extra_bytes
from trainplan.costmodel.layouts import FloatColumn, LayoutTable
from trainplan.costmodel.runtimes.base import RuntimeTraits
from trainplan.costmodel.spec import Job


def final_norm_bytes(job: Job, traits: RuntimeTraits, tokens: FloatColumn) -> FloatColumn:
    """What the final norm keeps beside its output.

    Source: as in a layer; pytorch derivatives.yaml, `_fused_rms_norm` and `native_layer_norm`.
    """
    model, storage = job.model, job.training.storage_bytes
    kept = storage * model.hidden_size + norm_extra_bytes(model, traits.autograd, storage)
    return kept * tokens * (traits.autograd.final_norm and model.final_norm)


def head_gradient_bytes(job: Job, table: LayoutTable, tokens: FloatColumn) -> FloatColumn:
    """Gradients of logits, hidden state and output table together, with the table's input.

    Source: derived; `mm` makes both of its gradients while that of its result is there.
    """
    vocab = padded_vocab(job.model.vocab_size, table.tp) / table.tp
    hidden = job.model.hidden_size
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
    if model.num_dense_layers:
        inside = mlp_gradient_bytes(job, table, tokens, width=model.intermediate_size)
    if model.moe:
        inside = np.maximum(inside, expert_gradient_bytes(job, table, tokens))
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
    product = tokens + model.hidden_size
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
    rows, hidden = tokens * moe.num_experts_per_tok, job.model.hidden_size
    inner = rows * moe.moe_intermediate_size / table.etp
    outer = rows * hidden
    weight = moe.num_experts / table.ep * hidden * moe.moe_intermediate_size / table.etp
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
    tied = job.model.tie_word_embeddings
    return np.asarray(job.training.storage_bytes * vocab * job.model.hidden_size * tied)
