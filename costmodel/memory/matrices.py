"""The tensors of every kind of block on one rank: their shapes, where `block_params` has their sum.

Projections stand apart as in the model, whatever a runtime fuses. Tensor parallelism cuts one side
of a matrix, expert parallelism the number of experts.
Source: as `costmodel.model.params`, whose sums these are, tensor by tensor.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from trainplan.costmodel.architecture import ATTENTIONS, ModelSpec, MoeSpec
from trainplan.costmodel.columns import FloatColumn
from trainplan.costmodel.job import Job
from trainplan.costmodel.kernels import sum_columns
from trainplan.costmodel.layouts import LayoutTable
from trainplan.costmodel.memory.states import (
    MTP_NORMS,
    BlockParams,
    layer_rank_params,
    modules_alike,
)
from trainplan.costmodel.memory.tower_params import TowerParams, tower_rank_params
from trainplan.costmodel.model import expert_hidden, norms_per_layer, query_columns, value_columns
from trainplan.costmodel.optimizers import Matrix, Ranks, Role
from trainplan.costmodel.shards import padded_vocab


def of_blocks(job: Job, table: LayoutTable, of: Callable[[Matrix], FloatColumn]) -> BlockParams:
    """Sum over the tensors of a block, of every kind; `of` is one tensor's share.

    Source: a block's tensors are apart from one another, so what they take adds up.
    """

    def total(some: Iterator[Matrix]) -> FloatColumn:
        each = (one.count * of(one) for one in some)
        return np.asarray(sum(each, np.zeros(len(table))))

    model = job.model
    layers = tuple(total(layer(kind, table)) for kind in model.kinds)
    routed = tuple(total(experts(kind, table)) for kind in model.kinds)
    return BlockParams(
        layers=layers,
        experts=routed,
        embedding=total(embedding(model, table)),
        head=total(head(model, table)),
        mtp=_of_module(model, layers) + total(mtp_module(model, table)),
        mtp_experts=_of_module(model, routed),
        tower=TowerParams(total(tower(model, table)), np.zeros(len(table))),
    )


def _of_module(model: ModelSpec, kinds: Sequence[FloatColumn]) -> FloatColumn:
    """Of the layers of one multi-token-prediction module, mean over those that share weights.

    Source: as `block_params`.
    """
    return sum_columns(kinds[kind] for kind in model.kinds_of_module) / modules_alike(model)


def largest_in_layers(
    job: Job, table: LayoutTable, of: Callable[[Matrix], FloatColumn]
) -> tuple[FloatColumn, FloatColumn]:
    """Largest share of one matrix inside a layer: of those that all ranks hold, and of experts.

    Source: as `of_blocks`; a layer without experts has none of the second sort, 0.
    """

    def most(some: Iterator[Matrix]) -> FloatColumn:
        each = (of(one) for one in some if one.role == "hidden")
        return np.asarray(np.max(np.broadcast_arrays(np.zeros(len(table)), *each), axis=0))

    kinds = job.model.kinds
    shared = np.max([most(layer(kind, table)) for kind in kinds], axis=0)
    return shared, np.asarray(np.max([most(experts(kind, table)) for kind in kinds], axis=0))


def layer(model: ModelSpec, table: LayoutTable) -> Iterator[Matrix]:
    """A layer of a model with one kind, without its routed experts.

    What is neither attention, MLP, router nor norm, and attention of rare parts, is taken as one
    matrix over the hidden size that tensor parallelism cuts.
    """
    h, held = model.hidden_size, layer_rank_params(model, table)[0]
    for attends in (True, False):
        known = list(_known_parts(model, table, attends=attends))
        rest = held - sum((one.count * one.elements for one in known), np.zeros(len(table)))
        if (rest > -1).all():
            break
    yield from known
    if (rest > 1).any():
        yield from _cut(h, rest * table.tp / h, table.tp)


def _known_parts(model: ModelSpec, table: LayoutTable, *, attends: bool) -> Iterator[Matrix]:
    yield from _norms(model, norms_per_layer(model))
    if attends and model.mixer in ATTENTIONS:
        yield from attention(model, table)
    if model.feed_forward == "mlp":
        yield from mlp(model, model.intermediate_size, table.tp, bias=model.mlp_bias)
    elif model.moe:
        yield from unrouted(model, model.moe, table)


def unrouted(model: ModelSpec, moe: MoeSpec, table: LayoutTable) -> Iterator[Matrix]:
    """Router and shared experts."""
    yield from _cut(model.hidden_size, moe.num_experts, 1.0)
    if moe.counted_router_bias:
        yield from _vector(moe.counted_router_bias)
    if moe.shared_expert_gate:
        yield from _cut(model.hidden_size, 1, 1.0)
    if moe.shared_expert_intermediate_size:
        yield from mlp(model, moe.shared_expert_intermediate_size, table.tp, bias=moe.expert_bias)


def experts(model: ModelSpec, table: LayoutTable) -> Iterator[Matrix]:
    """Routed experts of one layer that a rank holds, each with matrices of its own."""
    moe = model.moe
    if moe is None:
        return
    held, hidden = moe.num_experts / table.ep, expert_hidden(model)
    width, bias = moe.moe_intermediate_size, moe.expert_bias
    yield from mlp(model, width, table.etp, bias=bias, count=held, hidden=hidden)


def attention(model: ModelSpec, table: LayoutTable) -> Iterator[Matrix]:
    """Projections and biases."""
    h, tp = model.hidden_size, table.tp
    yield from _latent(model, table) if model.mla else _heads(model, table)
    yield from _cut(value_columns(model), h, tp, rows=False)
    if model.attention_output_bias:
        yield from _vector(h)
    if model.attention_sinks:
        yield from _vector(model.num_attention_heads, tp)


def _heads(model: ModelSpec, table: LayoutTable) -> Iterator[Matrix]:
    """Queries, keys and values with a head size of their own."""
    h, tp, size = model.hidden_size, table.tp, model.head_dim
    keys = model.num_key_value_heads * size
    for width, count in ((query_columns(model), 1.0), (keys, 2.0)):
        yield from _cut(h, width, tp, count=count)
        if model.qkv_bias:
            yield from _vector(width, tp, count)
    if model.qk_norm == "head":
        yield from _vector(size, 1.0, 2.0)
    if model.qk_norm == "full":
        yield from _vector(query_columns(model))
        yield from _vector(keys)


def _latent(model: ModelSpec, table: LayoutTable) -> Iterator[Matrix]:
    """Projections of multi-head latent attention; those down are whole on every rank."""
    h, tp, mla = model.hidden_size, table.tp, model.mla
    assert mla is not None
    narrow = mla.kv_lora_rank + mla.qk_rope_head_dim
    yield from _cut(h, narrow, 1.0)
    yield from _vector(mla.kv_lora_rank)
    if mla.q_lora_rank:
        yield from _cut(h, mla.q_lora_rank, 1.0)
        yield from _vector(mla.q_lora_rank)
    yield from _cut(mla.q_lora_rank or h, query_columns(model), tp)
    wide = model.num_attention_heads * (mla.qk_nope_head_dim + mla.v_head_dim)
    yield from _cut(mla.kv_lora_rank, wide, tp)
    if model.qkv_bias:
        yield from _vector((mla.q_lora_rank or 0) + narrow)


def mlp(
    model: ModelSpec,
    width: int,
    ranks: Ranks,
    *,
    bias: bool,
    count: Ranks = 1.0,
    hidden: int | None = None,
) -> Iterator[Matrix]:
    """One MLP, or so many of them; null: on the hidden size."""
    h, ups = hidden or model.hidden_size, 2 if model.gated_mlp else 1
    yield from _cut(h, width, ranks, count=ups * count)
    yield from _cut(width, h, ranks, rows=False, count=count)
    if bias:
        yield from _vector(width, ranks, ups * count)
        yield from _vector(h, 1.0, count)


def embedding(model: ModelSpec, table: LayoutTable) -> Iterator[Matrix]:
    """Token table and learned positions."""
    vocab = padded_vocab(model.vocab_size, table.tp)
    yield from _cut(model.hidden_size, vocab, table.tp, role="end")
    if model.position_embedding == "learned":
        yield from _cut(model.hidden_size, model.max_position_embeddings, 1.0, role="end")
    if model.embedding_weights:
        yield from _vector(model.embedding_weights, table.tp)
    if model.embedding_norm:
        yield from _norms(model, 1)


def head(model: ModelSpec, table: LayoutTable) -> Iterator[Matrix]:
    """Output projection, a copy of the token table where that is another rank's, and the norm."""
    vocab = padded_vocab(model.vocab_size, table.tp)
    held = np.where(table.pp > 1, 1.0, 0.0) if model.tie_word_embeddings else 1.0
    yield from _cut(model.hidden_size, vocab, table.tp, role="end", count=held)
    yield from _norms(model, 1)
    if model.head_bias:
        yield from _vector(model.vocab_size, table.tp)


def mtp_module(model: ModelSpec, table: LayoutTable) -> Iterator[Matrix]:
    """What a multi-token-prediction module has beside its layer; one copy of the table for all."""
    own = 1 / modules_alike(model)
    yield from _cut(2 * model.hidden_size, model.hidden_size, table.tp, count=own)
    yield from _norms(model, MTP_NORMS * own)
    held = np.where(table.pp > 1, 1.0, 0.0) / max(1, model.num_nextn_predict_layers)
    vocab = padded_vocab(model.vocab_size, table.tp)
    yield from _cut(model.hidden_size, vocab, table.tp, role="end", count=held)


def tower(model: ModelSpec, table: LayoutTable) -> Iterator[Matrix]:
    """What is trained of a tower, as one matrix over its hidden size."""
    if model.tower is None:
        return
    width = model.tower.hidden_size
    yield from _cut(width, tower_rank_params(model.tower, table).trained / width, 1.0)


def _norms(model: ModelSpec, count: float) -> Iterator[Matrix]:
    """Norms over the hidden size, with a bias each where they are LayerNorms."""
    tensors = 2 if model.norm == "layernorm" else 1
    yield from _vector(model.hidden_size, 1.0, count * tensors)


def _cut(
    inputs: FloatColumn | int,
    outputs: FloatColumn | int,
    ranks: Ranks,
    *,
    rows: bool = True,
    count: Ranks = 1.0,
    role: Role = "hidden",
) -> Iterator[Matrix]:
    """A weight of (outputs, inputs), cut over ranks along one of them."""
    by_rows, by_columns = (ranks, 1.0) if rows else (1.0, ranks)
    own = np.asarray(outputs / by_rows, float), np.asarray(inputs / by_columns, float)
    yield Matrix(*own, count, role, by_rows, by_columns)


def _vector(length: FloatColumn | int, ranks: Ranks = 1.0, count: Ranks = 1.0) -> Iterator[Matrix]:
    """So many vectors, each cut over ranks."""
    yield Matrix(np.asarray(length / ranks, float), np.ones(()), count, "vector")
