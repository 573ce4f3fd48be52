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

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.candidates import Candidates
from trainplan.costmodel.columns import BoolColumn, FloatColumn
from trainplan.costmodel.model import (
    embedding_params,
    num_active_parameters,
    num_parameters,
)


def in_buckets(candidates: Candidates) -> BoolColumn:
    """Rows whose gradients go in buckets of a stated size, once a step."""
    sharding, table = candidates.traits.sharding, candidates.table
    whole = (table.pp > 1) & sharding.whole_stages
    return np.asarray((sharding.stated_bucket_bytes is not None) & (table.zero_stage < 2) & ~whole)


def bucket_calls(candidates: Candidates, gradient_bytes: FloatColumn) -> FloatColumn:
    """Buckets of so many bytes of gradients, the last partly full.

    Source: derived; each holds whole tensors, so the mean is the quotient, and one at least.
    """
    bucket = candidates.traits.sharding.stated_bucket_bytes
    if bucket is None:
        return np.ones(1)
    return np.where(in_buckets(candidates), np.maximum(1.0, gradient_bytes / bucket), 1.0)


@dataclass(frozen=True, slots=True)
class BucketShares:
    """What buckets leave of traffic, and what they run beside."""

    last: FloatColumn
    """Of the gradients of a rank, those in the bucket that is full when the pass has ended."""
    window: FloatColumn
    """Of a pass, what is left of it once the first bucket is full."""


def bucket_shares(candidates: Candidates, last: float, window: float) -> BucketShares:
    """Of a stated size; elsewhere `last` and `window`.

    Source: as this module; before the table half a bucket waits in the mean.
    """
    stated, table, model = in_buckets(candidates), candidates.table, candidates.job.model
    bucket = candidates.traits.bucket_elements(candidates.job)
    if not stated.any():
        return BucketShares(np.asarray(last), np.asarray(window))
    experts, cut = _expert_weights(model), table.tp * table.gtp
    held = (num_parameters(model) - experts) / cut
    held = (held + experts / (table.ep * table.etp * table.egtp)) / table.pp
    waiting = (embedding_params(model) / cut + bucket / 2) / held
    return BucketShares(
        last=np.where(stated, np.minimum(1.0, waiting), last),
        window=np.where(stated, 1 - np.minimum(1.0, bucket / held), window),
    )


def _expert_weights(model: ModelSpec) -> float:
    """Weights of all routed experts.

    Source: derived; a token visits k of E experts in a layer, so those that none visits are
    1 - k / E of all of them.
    """
    if model.moe is None or model.moe.num_experts <= model.moe.rows_per_token:
        return 0.0
    share = model.moe.num_experts / (model.moe.num_experts - model.moe.rows_per_token)
    return share * (num_parameters(model) - num_active_parameters(model))
