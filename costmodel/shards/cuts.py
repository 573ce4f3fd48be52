"""What of a block one rank has, by how matrices, tokens and sequences are cut."""

import numpy as np

from trainplan.costmodel import catalog
from trainplan.costmodel.architecture import ModelSpec, MoeSpec
from trainplan.costmodel.columns import BoolColumn, FloatColumn, IntColumn
from trainplan.costmodel.job import ContextExchange, Job
from trainplan.costmodel.layouts import LayoutTable
from trainplan.costmodel.model import mlp_params
from trainplan.costmodel.runtimes import RuntimeTraits, loss_tiles


def dense_mlp_params(
    model: ModelSpec, table: LayoutTable, beyond: IntColumn | int = 1
) -> FloatColumn:
    """Parameters of one dense MLP, where a layer has one, cut over `beyond` more ranks than tp.

    Source: as `_cut`.
    """
    if model.feed_forward == "none":
        return np.zeros(len(table))
    return _cut(model, model.intermediate_size, table.tp * beyond, bias=model.mlp_bias)


def experts_params(
    model: ModelSpec, moe: MoeSpec, table: LayoutTable, beyond: IntColumn | int = 1
) -> FloatColumn:
    """Parameters of a layer's routed experts that a rank holds. Source: as `_cut`."""
    width, hidden = moe.moe_intermediate_size, moe.latent_size
    one = _cut(model, width, table.etp * beyond, bias=moe.expert_bias, hidden=hidden)
    return moe.num_experts / table.ep * one


def shared_experts_params(
    model: ModelSpec, moe: MoeSpec, table: LayoutTable, beyond: IntColumn | int = 1
) -> FloatColumn:
    """Parameters of all shared experts of one layer. Source: as `_cut`."""
    width = moe.shared_expert_intermediate_size
    return bool(width) * _cut(model, width, table.tp * beyond, bias=moe.expert_bias)


def _cut(
    model: ModelSpec, width: int, ranks: IntColumn, *, bias: bool, hidden: int | None = None
) -> FloatColumn:
    """Parameters of an MLP on one of so many ranks.

    Source: Megatron-LM `core/tensor_parallel/layers.py`, RowParallelLinear: its products are cut
    along their inputs, and every rank holds the whole bias, which is added after the sum.
    """
    whole = (hidden or model.hidden_size) if bias else 0
    return (mlp_params(model, width, bias=bias, hidden=hidden) - whole) / ranks + whole


GRADIENT_TENSORS_ADDED = 3
"""Elements moved to add the gradient of one weight to that of the tiles before: both are read, the
sum is written. Source: derived; PyTorch accumulate_grad.h, an addition in place."""


def mlp_tiles(job: Job, table: LayoutTable) -> FloatColumn:
    """Tiles of an MLP: as many as make a tile no longer than the hidden state is wide.

    Source: snowflakedb/ArcticTraining model/tiled_compute.py, tiled_mlp_forward_common.
    """
    return np.ceil(job.training.seq_length / table.cp / job.model.hidden_size)


def mlp_share(job: Job, table: LayoutTable) -> FloatColumn:
    """Share of its tokens that an MLP holds inside at once: one tile, or all.

    Source: derived; the tiles run one after the other and are alike, but for a shorter last one.
    """
    return np.where(table.tiled_mlp == 1, 1.0 / mlp_tiles(job, table), 1.0)


def loss_share(job: Job, traits: RuntimeTraits, table: LayoutTable) -> FloatColumn:
    """Share of the logits that exist at once: those of one tile, or all. Source: as `mlp_share`."""
    return np.where(table.tiled_loss == 1, 1.0 / loss_tiles(job, table, traits.tiling), 1.0)


def added_bytes(
    storage_bytes: int, weights: FloatColumn, tiles: FloatColumn, *, sum_bytes: float
) -> FloatColumn:
    """Bytes moved to add the weight gradients of all tiles but the first to those before them.

    Source: GRADIENT_TENSORS_ADDED; `sum_bytes` is an element of the sum, which may be wider.
    """
    one = storage_bytes + (GRADIENT_TENSORS_ADDED - 1) * sum_bytes
    return one * weights * np.maximum(0.0, tiles - 1)


CAST_BYTES = {"fp8": 1.0, "mxfp8": 1 + 1 / 32, "nvfp4": 1 / 2 + 1 / 16}
"""One number: one scale of a byte stands beside 32 (mxfp8) or 16 (nvfp4) of them.

Source: NVIDIA/TransformerEngine @d0067d0d `transformer_engine/pytorch/constants.py`,
MXFP8_BLOCK_SCALING_SIZE and NVFP4_BLOCK_SCALING_SIZE; `pytorch/tensor/nvfp4_tensor.py`,
get_scale_shape; scales of a whole tensor (fp8) are one number.
"""
TRANSPOSES_IN_PRODUCTS = frozenset({"blackwell"})
"""Architectures that multiply fp8 in any order, so that no transpose is kept.

Source: NVIDIA/TransformerEngine @d0067d0d `transformer_engine/pytorch/utils.py`,
is_non_tn_fp8_gemm_supported (compute capability 10 and 11, not 12); ROCm/TransformerEngine
@07f3c6a5, the same function: not on AMD.
"""


def needs_second_cast(job: Job, architecture: str) -> bool:
    """Does the backward pass read another cast of a weight than the forward pass?

    Blocks of mxfp8, nvfp4 and blockwise fp8 are along rows or along columns, so a product in the
    other order needs its own.
    Source: NVIDIA/TransformerEngine @d0067d0d `transformer_engine/pytorch/csrc/quantizer.cpp`,
    create_tensor: with_transpose = columnwise_usage && !is_non_tn_fp8_gemm_supported for fp8.
    """
    in_blocks = job.training.precision != "fp8" or job.options.fp8_recipe == "blockwise"
    return in_blocks or architecture not in TRANSPOSES_IN_PRODUCTS


def cast_weight_bytes(job: Job) -> float:
    """Bytes of what products read of one weight, kept between micro batches.

    Source: `CAST_BYTES` and `_casts_twice`; Transformer Engine user guide, "FP8 primer", weight
    caching; Megatron-LM `core/extensions/transformer_engine.py`, is_first_microbatch.
    """
    return CAST_BYTES[job.training.precision] * (1 + _casts_twice(job))


def _casts_twice(job: Job) -> bool:
    """Do products of any node group need a second cast? Source: `needs_second_cast`."""
    names = {catalog.device(group).architecture for group in job.cluster.groups}
    return any(needs_second_cast(job, name) for name in names)


def remade_bytes(job: Job, traits: RuntimeTraits) -> float:
    """Bytes of the copy of one frozen weight that every backward pass makes anew; 0: of none.

    A weight in fp8 alone is transposed there. Two blockwise copies have scales of their own, so
    neither is made of the other, and a cast of a weight in 16 bits lives until the backward pass.
    Source: Megatron-LM @d98e8a64 `core/extensions/transformer_engine.py`,
    disable_parameter_transpose_cache; NVIDIA/TransformerEngine @d0067d0d `pytorch/module/linear.py`
    (weightmat is saved for the backward pass); ROCm/TransformerEngine,
    keep_fp8_weight_transpose_cache.
    """
    alone = traits.footprint.low_precision == "primary" and job.training.precision == "fp8"
    kept = traits.adapting.caches_transposes or job.model.trained is None
    return CAST_BYTES["fp8"] * (alone and not kept and _casts_twice(job))


VOCAB_MULTIPLE = 128
"""Megatron pads the vocabulary to a multiple of this times tp. Source: Megatron-LM,
`--make-vocab-size-divisible-by`, default 128."""


def padded_vocab(vocab_size: int, tp: IntColumn) -> FloatColumn:
    """Rows of the padded vocabulary.

    Source: Megatron-LM `vocab_utils`, padded to a multiple of 128 tp.
    """
    multiple = VOCAB_MULTIPLE * tp
    return np.ceil(vocab_size / multiple) * multiple


def table_weights(model: ModelSpec, table: LayoutTable) -> FloatColumn:
    """Weights of the token table, or of the output projection, on one tensor rank.

    Source: `padded_vocab`.
    """
    return padded_vocab(model.vocab_size, table.tp) / table.tp * model.hidden_size


def projected_share(job: Job, traits: RuntimeTraits) -> float:
    """Share of the tokens that the output projection and the loss see.

    Source: `Kernels.skips_ignored_tokens`.
    """
    return job.training.loss_tokens if traits.kernels.skips_ignored_tokens else 1.0


def heads_to_cut(model: ModelSpec) -> int:
    """Key-value heads that an exchange of heads deals out; latent attention has as many as queries.

    Source: Transformer Engine @d0067d0d `context_parallel.py:4246`.
    """
    return model.num_attention_heads if model.mla else model.num_key_value_heads


def context_ways(
    model: ModelSpec, exchange: ContextExchange, table: LayoutTable
) -> tuple[BoolColumn, BoolColumn]:
    """Which rows exchange heads for sequence, and which gather keys and values; else: a ring.

    A ring has neither windows nor sinks: all layers of a model with either exchange heads, or
    gather keys and values where the heads cannot be cut.
    Source: Transformer Engine @d0067d0d `context_parallel.py`, attn_forward_func_with_cp.
    """
    windows, sinks = model.sliding_window is not None, model.attention_sinks
    instead = exchange == "p2p" and (windows or sinks)
    cut = (heads_to_cut(model) % (table.tp * table.cp) == 0) | sinks
    heads = cut if instead else np.full(len(table), exchange == "a2a")
    gathered = ~cut if instead else np.full(len(table), exchange == "all_gather")
    return heads & (table.cp > 1), gathered & (table.cp > 1)
