"""The tensors of every kind of block on one rank: their shapes, where `block_params` has their sum.

Projections are separate as in the model, whatever a runtime fuses. Tensor parallelism cuts one side
of a matrix, expert parallelism the number of experts.
Source: as `costmodel.model.params`, whose sums these are, tensor by tensor.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from trainplan.costmodel.architecture import ModelSpec
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
from trainplan.costmodel.model import expert_hidden, matrices, norms_per_layer
from trainplan.costmodel.optimizers import Matrix, Ranks, Role
from trainplan.costmodel.shards import padded_vocab


def of_blocks(job: Job, table: LayoutTable, of: Callable[[Matrix], FloatColumn]) -> BlockParams:
    """Sum over the tensors of a block, of every kind; `of` is one tensor's share.

    Source: a block's tensors are separate from one another, so what they take adds up.
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

    What is neither product, router nor norm (biases, convolutions, decays) is taken as one vector.
    """
    known = [*_norms(model, norms_per_layer(model)), *products(model, table)]
    known = known if model.own_weights is None else []
    held = layer_rank_params(model, table)[0]
    rest = held - sum((one.count * one.elements for one in known), np.zeros(len(table)))
    yield from known
    if (rest > 1).any():
        yield from _vector(rest)


def products(model: ModelSpec, table: LayoutTable) -> Iterator[Matrix]:
    """Matrices of the mixer, of the MLP or of shared experts, and of the router."""
    for one in matrices(model):
        if not one.experts:
            if one.cut == "whole":
                yield from _cut(one.inputs, one.outputs, 1.0)
            else:
                outputs = one.outputs / table.gtp
                yield from _cut(one.inputs, outputs, table.tp, rows=one.cut != "rows")
    if model.moe:
        yield from _cut(model.hidden_size, model.moe.num_experts, 1.0)


def experts(model: ModelSpec, table: LayoutTable) -> Iterator[Matrix]:
    """Routed experts of one layer that a rank holds, each with matrices of its own."""
    moe = model.moe
    if moe is None:
        return
    held, width, ups = moe.num_experts / table.ep, moe.moe_intermediate_size, 1 + model.gated_mlp
    for one in matrices(model):
        if one.experts:
            rows = one.cut != "rows"
            outputs = one.outputs / table.egtp
            yield from _cut(one.inputs, outputs, table.etp, rows=rows, count=held)
    if moe.expert_bias:
        yield from _vector(width, table.etp, ups * held)
        yield from _vector(expert_hidden(model), 1.0, held)


def embedding(model: ModelSpec, table: LayoutTable) -> Iterator[Matrix]:
    """Token table and learned positions."""
    vocab = padded_vocab(model.vocab_size, table.tp) / table.gtp
    yield from _cut(model.hidden_size, vocab, table.tp, role="end")
    if model.position_embedding == "learned":
        yield from _cut(model.hidden_size, model.max_position_embeddings, 1.0, role="end")
    if model.embedding_weights:
        yield from _vector(model.embedding_weights, table.tp)
    if model.embedding_norm:
        yield from _norms(model, 1)


def head(model: ModelSpec, table: LayoutTable) -> Iterator[Matrix]:
    """Output projection, a copy of the token table where that is another rank's, and the norm."""
    vocab = padded_vocab(model.vocab_size, table.tp) / table.gtp
    held = np.where(table.pp > 1, 1.0, 0.0) if model.tie_word_embeddings else 1.0
    yield from _cut(model.hidden_size, vocab, table.tp, role="end", count=held)
    yield from _norms(model, 1)
    if model.head_bias:
        yield from _vector(model.vocab_size, table.tp)


def mtp_module(model: ModelSpec, table: LayoutTable) -> Iterator[Matrix]:
    """A multi-token-prediction module without its layer; one copy of the table for all."""
    own = 1 / modules_alike(model)
    yield from _cut(2 * model.hidden_size, model.hidden_size / table.gtp, table.tp, count=own)
    yield from _norms(model, MTP_NORMS * own)
    held = np.where(table.pp > 1, 1.0, 0.0) / max(1, model.num_nextn_predict_layers)
    vocab = padded_vocab(model.vocab_size, table.tp) / table.gtp
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
