"""What a rank holds of adapters and of frozen weights, in 16 bits or fewer."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.base import BYTES_BF16
from trainplan.costmodel.candidates import Candidates
from trainplan.costmodel.columns import ClassRows, FloatColumn, Rows
from trainplan.costmodel.job import Job
from trainplan.costmodel.kernels import sum_columns
from trainplan.costmodel.layouts import LayoutTable
from trainplan.costmodel.memory.matrices import of_blocks
from trainplan.costmodel.memory.states import (
    BlockParams,
    RankParams,
    block_params,
    modules_alike,
    weight_bytes_per_param,
)
from trainplan.costmodel.model import (
    adapted_matrices,
    matrices,
    norm_params,
    quantised_bytes,
)
from trainplan.costmodel.optimizers import Matrix
from trainplan.costmodel.runtimes import runtime
from trainplan.costmodel.shard_groups import ShardGroups, shard_groups
from trainplan.costmodel.shards import remade_bytes


def held_params(job: Job, table: LayoutTable) -> BlockParams:
    """Parameters of every kind of block on one rank, and those of them that are trained.

    Matrices in 4 bits count as so many parameters of 16 bits as have their bytes.
    Source: `block_params`; `adapter_rank_params`; `quantised_bytes`.
    """
    base, model = block_params(job, table), job.model
    if model.trained is None:
        return base
    adapters = [adapter_rank_params(job, kind, table) for kind in model.kinds]
    kinds = list(zip(model.kinds, base.layers, base.experts, adapters, strict=True))
    packed = sum(_packed(model.kinds[kind]) for kind in model.kinds_of_module)
    own_mtp, own_mtp_experts = _in_modules(model, adapters)
    held = replace(
        base,
        layers=tuple(layer + own[0] - _packed(kind) for kind, layer, _, own in kinds),
        experts=tuple(experts + own[1] for _, _, experts, own in kinds),
        mtp=base.mtp + own_mtp - packed / modules_alike(model),
        mtp_experts=base.mtp_experts + own_mtp_experts,
    )
    return replace(held, trained=_trained(model, held, adapters))


def of_trained(job: Job, table: LayoutTable, of: Callable[[Matrix], FloatColumn]) -> BlockParams:
    """As `of_blocks`, the share of every kind of block that its trained parameters are.

    Source: derived; exact where `of` is so much a parameter, as 8-bit moments are but for scales.
    """
    found = of_blocks(job, table, of)
    if job.model.trained is None:
        return found
    base, own = block_params(job, table), held_params(job, table).trained
    parts: dict[str, Any] = {}
    for name in ("layers", "experts", "embedding", "head", "mtp", "mtp_experts"):
        of_all, some, every = (getattr(one, name) for one in (found, own, base))
        share = np.asarray(of_all) * np.asarray(some) / np.maximum(every, 1.0)
        parts[name] = tuple(share) if isinstance(of_all, tuple) else share
    return replace(found, **parts)


def _in_modules(
    model: ModelSpec, adapters: list[tuple[FloatColumn, FloatColumn]]
) -> tuple[FloatColumn, FloatColumn]:
    """Adapters of a prediction module, and of its experts.

    Source: as `block_params`: those of its layers; modules of shared weights have them once.
    """
    own = [adapters[kind] for kind in model.kinds_of_module]
    shared, experts = (sum_columns(part) / modules_alike(model) for part in zip(*own, strict=True))
    return shared, experts


def _trained(
    model: ModelSpec, held: BlockParams, adapters: list[tuple[FloatColumn, FloatColumn]]
) -> BlockParams:
    """Those that are trained: adapters, or all of the layers that are not frozen."""
    trained = model.trained
    assert trained is not None
    nothing, norm = np.zeros_like(held.head), norm_params(model)
    if trained.adapts:
        mtp, mtp_experts = _in_modules(model, adapters)
        return BlockParams(
            layers=tuple(own for own, _ in adapters),
            experts=tuple(own for _, own in adapters),
            embedding=nothing,
            head=nothing,
            mtp=mtp,
            mtp_experts=mtp_experts,
            tower=held.tower,
        )
    free = [float(kind.trained is None) for kind in model.kinds]
    tied = trained.freezes_embedding and model.tie_word_embeddings
    return replace(
        held,
        layers=tuple(one * is_free for one, is_free in zip(held.layers, free, strict=True)),
        experts=tuple(one * is_free for one, is_free in zip(held.experts, free, strict=True)),
        embedding=nothing if trained.freezes_embedding else held.embedding,
        head=nothing + norm if tied else held.head,
    )


def adapter_rank_params(
    job: Job, kind: ModelSpec, table: LayoutTable
) -> tuple[FloatColumn, FloatColumn]:
    """Parameters of the adapters of a layer on one rank, those of routed experts separate.

    Source: `Matrix.adapter_params`; Megatron-Bridge @067f987d `peft/utils.py`, its adapter:
    either half is cut over the tensor ranks, whichever way the matrix is, and the local experts of
    a rank share one. `Adapting.local`: mcore-bridge @f020e47 `tuners/lora.py`, LoraParallelLinear.
    """
    shared, experts = np.zeros((2, len(table)))
    if kind.own_weights is not None:  # its matrices and their adapters are an earlier layer's
        return shared, experts
    rank = (kind.trained.rank if kind.trained else None) or 0
    adapting = runtime(job.runtime).adapting
    own = kind.moe.num_experts / table.ep if kind.moe and adapting.local else 1
    for matrix in adapted_matrices(kind, joined=adapting.joins):
        if matrix.experts:
            experts = experts + own * matrix.adapter_params(rank) / table.etp
        elif adapting.local:
            cut = {one: table.tp if matrix.cut == one else 1 for one in ("columns", "rows")}
            whole = matrix.inputs / cut["rows"] + matrix.outputs / cut["columns"]
            shared = shared + rank * whole
        else:
            shared = shared + matrix.adapter_params(rank) / table.tp
    return shared, experts


def _packed(kind: ModelSpec) -> float:
    """Parameters of 16 bits whose bytes a layer saves where its matrices are in 4."""
    if kind.trained is None or not kind.trained.quantised:
        return 0.0
    return sum(one.size for one in matrices(kind)) - quantised_bytes(kind) / BYTES_BF16


def made_weight_bytes(candidates: Candidates) -> FloatColumn:
    """Bytes of the frozen matrix that multiplies, as it is made for that: of 4 bits, or transposed.

    Source: bitsandbytes `autograd/_functions.py`, MatMul4Bit: dequantize_4bit in either pass;
    `remade_bytes`.
    """
    job, table = candidates.job, candidates.table
    if job.model.trained is None:
        return np.zeros(len(table))
    each = BYTES_BF16 if job.model.trained.quantised else remade_bytes(job, candidates.traits)
    sizes = (one.size for kind in job.model.kinds for one in matrices(kind))
    return each * max(sizes, default=0) / table.tp


def held_weight_bytes(candidates: Candidates, held: RankParams) -> ClassRows:
    """Bytes of all weights of each rank class.

    Source: `weight_bytes_per_param`, `frozen_bytes_per_param`.
    """
    groups = shard_groups(candidates)
    own = held.with_gradients
    trained = own.weighted(*(weight_bytes_per_param(candidates, one) for one in groups))
    if held.trained is None:
        return trained
    frozen = held.frozen.weighted(*(frozen_bytes_per_param(candidates, one) for one in groups))
    return trained + frozen + whole_scale_bytes(candidates)


def whole_scale_bytes(candidates: Candidates) -> FloatColumn:
    """Bytes of the scales of 4-bit matrices that a shard of them would not have.

    The matrices are sharded, what they were quantised with is no parameter and stays on every rank.
    Source: bitsandbytes `nn/modules.py`, Params4bit: quant_state next to the data; PyTorch
    `fsdp/_flat_param.py`, which shards parameters alone.
    """
    model = candidates.job.model
    if model.trained is None or not model.trained.quantised:
        return np.zeros(len(candidates.table))
    kinds = [quantised_bytes(kind, scales=True) for kind in model.kinds]
    scales = sum(kinds[kind] for kind in model.kind_of_layer)
    return scales * (1 - 1 / shard_groups(candidates)[0].weights)


def frozen_bytes_per_param(candidates: Candidates, groups: ShardGroups) -> Rows:
    """Bytes of a frozen weight: as a trained one, but no shard in fp32 replaces it.

    FSDP that keeps weights gathered holds the shard next to them; Megatron's replicas may do
    without the transpose of those in 8 bits.
    Source: as `weight_bytes_per_param`; `remade_bytes`; PyTorch `fsdp/_fully_shard/
    _fsdp_param.py`, sharded_param and unsharded_param; accelerate `utils/fsdp_utils.py`,
    fsdp2_prepare_model, which casts trained parameters alone to fp32.
    """
    job, traits, table = candidates.job, candidates.traits, candidates.table
    usual = weight_bytes_per_param(candidates, groups) - remade_bytes(job, traits)
    if not traits.footprint.sharded_weights_are_master:
        return usual
    storage, stage = job.training.storage_bytes, table.zero_stage
    kept = usual + (stage == 2) * storage / groups.gradients
    return np.where(stage == 3, storage / groups.weights, kept)
