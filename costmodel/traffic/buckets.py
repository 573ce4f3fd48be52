"""Buckets of a stated size, in which gradients are reduced and updated weights gathered.

A bucket goes as soon as its gradients are there, one after the other: nothing can start before the
first is full, and the last one, which has the token table, is full when the pass has ended. Small
ones start a collective each, large ones leave more behind the pass: between them lies the fastest.
Source: Li et al., PyTorch DDP, arXiv:2006.15704, sections 3.2.2 and 3.2.3; NVIDIA/Megatron-LM
@d98e8a64 `core/distributed/distributed_data_parallel.py` (which makes larger ones for more ranks)
and `param_and_grad_buffer.py`: no buckets behind the first pipeline rank, so under a pipeline all
is as without a size.
"""

from dataclasses import dataclass

import numpy as np

from trainplan.costmodel.candidates import Candidates, remembered
from trainplan.costmodel.columns import BoolColumn, ClassRows, FloatColumn
from trainplan.costmodel.model import embedding_params, matrices
from trainplan.costmodel.shards import gathered_weights


def in_buckets(candidates: Candidates) -> BoolColumn:
    """Rows whose gradients go in buckets of a stated size, once a step."""
    sharding, table = candidates.traits.sharding, candidates.table
    whole = (table.pp > 1) & sharding.whole_stages
    return np.asarray((sharding.stated_bucket_bytes is not None) & (table.zero_stage < 2) & ~whole)


def bucket_calls(candidates: Candidates, params: ClassRows, *, experts: bool) -> ClassRows:
    """Buckets of so many parameters of each rank class, dense ones or of `experts`.

    Source: `_bucket_elements`; both tables of the vocabulary are tensors that fill one each.
    """
    if not in_buckets(candidates).any():
        return np.ones((1, 1))
    size, tables = _bucket_elements(candidates, experts=experts), np.zeros((1, 1))
    calls = tables
    for table in () if experts else _tables(candidates):
        held = np.minimum(table, params - tables)
        tables, calls = tables + held, calls + np.minimum(1.0, held / size)
    calls = np.maximum(1.0, calls + (params - tables) / size)
    return np.where(in_buckets(candidates), calls, 1.0)


def _tables(candidates: Candidates) -> tuple[FloatColumn, ...]:
    """Parameters of the token table, and of an output projection of its own, on a tensor rank."""
    model, cut = candidates.job.model, candidates.table.tp * candidates.table.gtp
    tied, head = model.tie_word_embeddings, model.vocab_size * model.hidden_size
    both = (embedding_params(model),) if tied else (embedding_params(model), head)
    return tuple(count / cut for count in both)


@remembered
def _weights(candidates: Candidates) -> tuple[tuple[float, bool], ...]:
    """Sizes of the weights of all layers, with whether experts have one each.

    Those that read one input are one where the runtime fuses them.
    """
    model, fused = candidates.job.model, candidates.traits.on_megatron_core
    kinds = [
        [
            (float(one.inputs * one.outputs), one.experts)
            for one in (gathered_weights(kind) if fused else matrices(kind))
        ]
        for kind in model.kinds
    ]
    return tuple(one for kind in model.kind_of_layer for one in kinds[kind])


def _bucket_elements(candidates: Candidates, *, experts: bool) -> FloatColumn:
    """Gradients in a bucket of whole tensors, in the mean.

    A bucket is full with the tensor that takes it to its size, which goes beyond by half of what
    tensors have on average by their weight, E[s^2] / E[s], as the rest of an interval of renewals;
    and it has one tensor at least.
    Source: PyTorch `torch/csrc/distributed/c10d/reducer.cpp`, compute_bucket_assignment_by_size,
    and NVIDIA/Megatron-LM @d98e8a64 `core/distributed/param_and_grad_buffer.py`; Feller, An
    Introduction to Probability Theory, vol. 2, section XI.4; tests/oracles/test_buckets.py.
    """
    table = candidates.table
    cut = table.etp * table.egtp if experts else table.tp * table.gtp
    sizes = np.array([size for size, of in _weights(candidates) if of == experts] or [1.0])
    beyond = (sizes**2).sum() / sizes.sum() / 2
    stated = candidates.traits.bucket_elements(candidates.job)
    return np.asarray(np.maximum(sizes.mean() / cut, stated + beyond / cut))


@dataclass(frozen=True, slots=True)
class BucketShares:
    """What buckets leave of traffic, and what they overlap."""

    last: FloatColumn
    """Of the gradients of a rank, those in the bucket that is full when the pass has ended."""
    window: FloatColumn
    """Of a pass, what is left of it once the first bucket is full."""


def bucket_shares(candidates: Candidates, last: float, window: float) -> BucketShares:
    """Of a stated size; elsewhere `last` and `window`.

    Source: as this module; before the table half a bucket waits in the mean.
    """
    stated, table = in_buckets(candidates), candidates.table
    if not stated.any():
        return BucketShares(np.asarray(last), np.asarray(window))
    size = _bucket_elements(candidates, experts=False)
    tables = _tables(candidates)
    dense, experts = (
        sum(one for one, of in _weights(candidates) if of == expert) for expert in (False, True)
    )
    if candidates.job.model.moe:
        experts = experts * candidates.job.model.moe.num_experts
    held = sum(tables) + dense / (table.tp * table.gtp)
    held = (held + experts / (table.ep * table.etp * table.egtp)) / table.pp
    waiting = (tables[0] + size / 2) / held
    return BucketShares(
        last=np.where(stated, np.minimum(1.0, waiting), last),
        window=np.where(stated, 1 - np.minimum(1.0, size / held), window),
    )
