"""Traffic of generalised tensor parallelism in the passes of a micro batch.

Every weight is gathered while the product of the weight before it runs, in either direction; its
gradient is scattered while the next product of the backward pass does. Experts have the time of a
whole block. The token table is the first of a chain, which nothing runs before: its gather and its
scatter are waited for, and so is the gather of the output projection in the backward pass.
Source: NVIDIA/Megatron-LM @d98e8a64 docs/api-guide/core/generalized_tensor_parallel.md, sections
1.1 and 3.1; `core/tensor_parallel/generalized_tensor_parallelism.py`, all_gather_and_prefetch,
all_gather_and_prefetch_bwd and wgrad_reduce_scatter. Other chains that begin with a stage or a
graph are not counted separately: one weight of each.
"""

from dataclasses import dataclass, fields

import numpy as np

from trainplan.costmodel.candidates import Candidates, of_kinds
from trainplan.costmodel.columns import ClassRows, FloatColumn, distinct
from trainplan.costmodel.comm import collective_rate, group
from trainplan.costmodel.kernels import ForwardBackward, Product, linear_seconds
from trainplan.costmodel.layouts import FULL
from trainplan.costmodel.pipeline import Ranks
from trainplan.costmodel.shards import (
    Gathered,
    gathered_weights,
    matrix_shards,
    table_weights,
    whole_layer_params,
    wire_bytes,
)
from trainplan.costmodel.traffic.sharded import PassTraffic

READ = ("tp", "ep", "etp", "cp", "micro_batch_size", "recompute", "recompute_modules")
"""Columns that decide about it, with both degrees."""


def matrix_traffic(candidates: Candidates) -> list[PassTraffic]:
    """Of each kind of layer, embedding, head, and prediction module. Source: as this module."""
    table = candidates.table
    columns = (getattr(table, name) for name in READ)
    one, key = distinct(*columns, *matrix_shards(table))
    some = candidates.take(one)
    kinds, model = of_kinds(some), some.job.model
    layers = [_layer(kind) for kind in kinds]
    ends = _ends(some, _last_product(kinds[model.kind_of_layer[-1]]))
    module = _sum([layers[kind] for kind in model.kinds_of_module], len(one))
    return [each.take(key) for each in (*layers, *ends, module)]


@dataclass(frozen=True, slots=True)
class Step:
    """Seconds of one weight: its collectives, and the products that hide those of others."""

    gather: FloatColumn
    scatter: FloatColumn
    product: ForwardBackward
    again: FloatColumn
    """Gathered once more where its forward pass is repeated."""


def _layer(on: Candidates) -> PassTraffic:
    """Of a layer of one kind: each weight behind the product before it, in the order it is met.

    Source: derived; gather i overlaps product i - 1, and in the backward pass gather i - 1 and
    the scatter of i + 1 overlap both products of i. Layers follow layers of their kind.
    """
    weights = gathered_weights(on.job.model)
    steps = [_step(on, one) for one in weights if not one.experts]
    forward, backward, ahead, behind, again = np.zeros((5, len(on.table)))
    for number, step in enumerate(steps):
        before, after = steps[number - 1], steps[(number + 1) % len(steps)]
        hidden = np.minimum(step.gather, before.product.forward)
        forward, ahead = forward + hidden, ahead + (step.gather - hidden)
        waiting = before.gather + after.scatter
        hidden = np.minimum(waiting, step.product.backward)
        backward, behind = backward + hidden, behind + (waiting - hidden)
        again = again + step.again
    for step in (_step(on, one) for one in weights if one.experts):
        forward, backward = forward + step.gather, backward + step.gather + step.scatter
        again = again + step.again
    full = on.table.recompute == FULL
    return PassTraffic(
        forward=forward,
        backward=backward + np.where(full, 0.0, again),
        forward_alone=ahead,
        backward_alone=behind,
        recompute_forward=np.where(full, again, 0.0),
        slowing=np.ones(len(on.table)),
    )


def _step(on: Candidates, one: Gathered) -> Step:
    """Of one weight; nothing where its ranks have it whole."""
    job, machine, table, model = on.job, on.machine, on.table, on.job.model
    elements = one.elements(model, table)
    gather, scatter = _collectives(on, elements, wire_bytes(job), experts=one.experts)
    if one.experts:
        nothing = np.zeros(len(table))
        product = ForwardBackward(nothing, nothing, nothing)
    else:
        tokens = table.micro_batch_size * job.training.seq_length / table.cp
        inputs, outputs = (table.tp, 1) if one.by_rows else (1, table.tp)
        sizes = Product(
            tokens, *np.broadcast_arrays(one.outputs / outputs, one.inputs / inputs, tokens)[:2]
        )
        width = on.traits.gradients.accumulated_bytes
        product = linear_seconds(machine, on.linear, [sizes], width)
    return Step(gather, scatter, product, one.repeated(table) * gather)


def _collectives(
    on: Candidates, elements: FloatColumn, width: float, *, experts: bool = False
) -> tuple[FloatColumn, FloatColumn]:
    """Seconds to gather a weight, and to scatter its gradient, as wide as it is accumulated.

    Source: as this module; parallel_state.py:582, _inject_gtp_remat_axis: the ranks lie behind
    those of tensor parallelism, of experts behind expert parallelism.
    """
    machine, table = on.machine, on.table
    ranks, stride = (table.egtp, table.etp * table.ep) if experts else (table.gtp, table.tp)
    links, paid = group(machine, ranks, stride), ranks > 1
    gather = collective_rate(machine, "all_gather", links).seconds(width * elements)
    gradient = on.traits.gradients.accumulated_bytes * elements
    scatter = collective_rate(machine, "reduce_scatter", links).seconds(gradient)
    return paid * gather, paid * scatter


def _ends(on: Candidates, before: ForwardBackward) -> tuple[PassTraffic, PassTraffic]:
    """Token table and output projection, the last behind the products of the layer before it."""
    job, table, nothing = on.job, on.table, np.zeros(len(on.table))
    whole = table_weights(job.model, table)
    gather, scatter = _collectives(on, whole, job.training.storage_bytes)
    shown = np.ones(len(table))
    embedding = PassTraffic(nothing, nothing, gather, scatter, nothing, shown)
    hidden, behind = (np.minimum(gather, before.forward), np.minimum(scatter, before.backward))
    head = PassTraffic(
        forward=hidden,
        backward=behind,
        forward_alone=gather - hidden,
        backward_alone=gather + scatter - behind,
        recompute_forward=nothing,
        slowing=shown,
    )
    return embedding, head


def _last_product(on: Candidates) -> ForwardBackward:
    """Of the last weight of a layer that is gathered by itself."""
    own = [one for one in gathered_weights(on.job.model) if not one.experts]
    nothing = np.zeros(len(on.table))
    return _step(on, own[-1]).product if own else ForwardBackward(nothing, nothing, nothing)


def _sum(some: list[PassTraffic], size: int) -> PassTraffic:
    columns = {
        f.name: sum((getattr(one, f.name) for one in some), np.zeros(size))
        for f in fields(PassTraffic)
    }
    return PassTraffic(**{**columns, "slowing": np.ones(size)})


def whole_sum_seconds(candidates: Candidates, ranks: Ranks) -> ClassRows:
    """Seconds to sum the gradients of what is not cut, once a step after all others.

    Source: NVIDIA/Megatron-LM @d98e8a64 `core/distributed/finalize_model_grads.py`,
    _allreduce_replicated_grads_over_gtp_remat_group.
    """
    table, model = candidates.table, candidates.job.model
    if not matrix_shards(table):
        return np.zeros((1, 1))
    links = group(candidates.machine, table.gtp, table.tp)
    rate = collective_rate(candidates.machine, "all_reduce", links)
    count = sum(
        layers * float(whole_layer_params(kind))
        for layers, kind in zip(ranks.layers, model.kinds, strict=True)
    )
    gradient = candidates.traits.gradients.accumulated_bytes
    return np.asarray((table.gtp > 1) * rate.seconds(gradient * np.asarray(count)))
