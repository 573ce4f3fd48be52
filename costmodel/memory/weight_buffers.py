"""Buffers of the shape of weights: gradients of a layer, or what is gathered under ZeRO."""

import numpy as np

from trainplan.costmodel.candidates import Candidates, remembered
from trainplan.costmodel.columns import BoolColumn, ClassRows, FloatColumn
from trainplan.costmodel.job import Job
from trainplan.costmodel.layouts import LayoutTable
from trainplan.costmodel.memory.optimizer_state import largest_block_gradients, uneven_share_bytes
from trainplan.costmodel.memory.states import BlockParams, RankParams, sums_whole
from trainplan.costmodel.pipeline import Ranks
from trainplan.costmodel.runtimes import RuntimeTraits
from trainplan.costmodel.shard_groups import shard_groups

GATHERED_UNITS = 2
"""Layers whose gathered weights exist at once under ZeRO-3: the running and the prefetched one.

Source: Zhao et al., PyTorch FSDP, arXiv:2304.11277, section 4.2; torchtitan runs agree.
"""


def dummy_gradient_bytes(job: Job, table: LayoutTable, params: BlockParams) -> FloatColumn:
    """One bf16 buffer for each weight shape of a layer, returned instead of real gradients.

    Of weights that `gtp` cuts there is none: see `gathered_bytes`.

    Source: Transformer Engine `get_dummy_wgrad`; measured on 24 B200 runs (1.6 GiB for 70B).
    """
    layer = params.largest_layer * (table.gtp == 1)
    if job.model.moe:
        one = params.most_experts / (job.model.moe.num_experts / table.ep)
        layer = layer + one * (table.egtp == 1)
    return np.asarray(job.training.storage_bytes * layer)


def added_gradient_bytes(candidates: Candidates, params: BlockParams) -> FloatColumn:
    """Gradients of the largest layer as its products write them, where whole sums take them up.

    Source: derived; PyTorch `_fsdp_param.py`, accumulate_unsharded_grad_if_needed: a unit's
    gradients are added when its backward pass has ended.
    """
    table = candidates.table
    shared, expert = (
        np.where(sums_whole(candidates.traits, table, groups), 1.0, 0.0)
        for groups in shard_groups(candidates)
    )
    layer = params.largest_layer * shared
    return np.asarray(
        candidates.job.training.storage_bytes * (layer + params.most_experts * expert)
    )


def sharded_unit_bytes(
    candidates: Candidates, params: BlockParams, *, held: RankParams, ends: FloatColumn
) -> FloatColumn:
    """Gathered weights (ZeRO-3) and whole gradients (ZeRO-2, 3) of the layers in work.

    `ends` are the parameters of embedding and head on each rank class: both belong to the root
    unit, which stays gathered. No more is gathered than the rank's blocks hold, and nothing that
    only one rank holds.
    Source: arXiv:2304.11277, section 4.2.
    """
    table = candidates.table
    dense, routed = shard_groups(candidates)

    def in_work(
        params: BlockParams, held: RankParams, shared: BoolColumn, expert: BoolColumn
    ) -> tuple[FloatColumn, FloatColumn]:
        """Sharded parameters of the largest layer, and of all that a rank holds."""
        pairs = zip(params.layers, params.experts, strict=True)
        layer = np.max([one * shared + experts * expert for one, experts in pairs], axis=0)
        return layer, held.weighted(shared.astype(np.float64), expert.astype(np.float64))

    shared = dense.weights > 1
    layer, most = in_work(params, held, shared, routed.weights > 1)
    own = in_work(
        params.with_gradients, held.with_gradients, dense.gradients > 1, routed.gradients > 1
    )
    gradients = candidates.traits.gradients.accumulated_bytes * np.minimum(*own)
    weights = candidates.job.training.storage_bytes * np.minimum(
        GATHERED_UNITS * layer + ends * shared, most
    )
    return np.where(table.zero_stage >= 2, gradients, 0.0) + np.where(
        table.zero_stage == 3, weights, 0.0
    )


def gathered_ends(traits: RuntimeTraits, embedding: ClassRows, head: ClassRows) -> ClassRows:
    """Parameters of embedding and head that are gathered at once.

    Both where they are units of FSDP; one of them where every weight goes by itself and is freed
    behind its use.
    Source: `sharded_unit_bytes`; deepspeedai/DeepSpeed
    runtime/zero/partitioned_param_coordinator.py, __params_to_release.
    """
    one_by_one = traits.sharding.fetches.weights > 1
    return np.maximum(embedding, head) if one_by_one else embedding + head


@remembered
def _always(candidates: Candidates, params: BlockParams) -> FloatColumn:
    """Gradients whatever is sharded. Source: as `weight_buffer_bytes`."""
    added = added_gradient_bytes(candidates, params.with_gradients)
    return added + (largest_block_gradients(candidates, params) + uneven_share_bytes(candidates))


@remembered
def _dummies(candidates: Candidates, params: BlockParams) -> FloatColumn:
    return dummy_gradient_bytes(candidates.job, candidates.table, params.with_gradients)


def weight_buffer_bytes(
    candidates: Candidates, *, ranks: Ranks, params: BlockParams, held: RankParams
) -> FloatColumn:
    """Buffers of the shape of weights: gradients of a layer, or gathered layers under ZeRO.

    Source: `dummy_gradient_bytes`, `added_gradient_bytes`, `sharded_unit_bytes` and
    `Footprint.reduce_bucket_elements`.
    """
    job, traits, table = candidates.job, candidates.traits, candidates.table
    whole = table.zero_stage < 2
    buffers = np.zeros(held.shared.shape) + _always(candidates, params)
    if traits.gradients.caches_dummies:
        dummy = whole & (table.gtp == 1)
        head = dummy * job.training.storage_bytes * params.with_gradients.head
        buffers += whole * _dummies(candidates, params) + ranks.head * head
    buffers += ~whole * job.training.storage_bytes * traits.footprint.reduce_bucket_elements
    rows = np.flatnonzero(~whole)
    if len(rows):
        some = params.take(rows)
        ends = gathered_ends(
            traits, ranks.embedding[:, rows] * some.embedding, ranks.head[:, rows] * some.head
        )
        buffers[:, rows] += sharded_unit_bytes(
            candidates.take(rows), some, held=held.take(rows), ends=ends
        )
    return buffers
