"""Bytes of parts of a model that run on one tile of tokens at a time."""

from dataclasses import replace

import numpy as np

from trainplan.costmodel.architecture import trains_head
from trainplan.costmodel.base import BYTES_BF16, BYTES_FP32
from trainplan.costmodel.blocks import activation_tensors
from trainplan.costmodel.candidates import Candidates
from trainplan.costmodel.columns import FloatColumn
from trainplan.costmodel.model import query_columns, value_columns
from trainplan.costmodel.runtimes import HEAD_BYTES
from trainplan.costmodel.shards import mlp_share, table_weights

NORM_BACKWARD_TENSORS = 8
"""16-bit tensors of the width of the hidden state in the backward pass of a norm of single
operations, less its output, which is free by then.

Source: counted on huggingface/transformers models/llama/modeling_llama.py, LlamaRMSNorm, in fp32:
the gradient cast up and its three products, and that of the output; tests/oracles/test_tiles.py.
"""
SINGLE_NORM_TENSORS = 3
"""As above: what two such norms keep beyond `saved_bytes`, their outputs in front of the weight,
and the layer's input, of which they keep copies. Source: as above."""


PARALLEL_LOSS_BYTES = 4 * BYTES_FP32 + BYTES_BF16
"""Peak bytes of each logit where torch's own loss runs on a vocabulary that tensor ranks share.

Four fp32 tensors in its backward pass: the log-probabilities, zeros with a one at each label, the
exponentials and the sum of the last two; and the freed logits, whose block takes none of them, as
on one rank (`LOGIT_BYTES` of torchtitan).
Source: pytorch v2.9 `distributed/tensor/parallel/loss.py`, _nll_loss_and_log_softmax_backward;
pytorch/torchtitan @b5bcd76c components/loss.py, _LossParallelCrossEntropy.
"""


def tiled_layer_columns(candidates: Candidates, width: int) -> FloatColumn:
    """Elements per token in the backward pass of a layer with a tiled MLP of that width.

    They are live with what the layer keeps and the gradient of its output. The MLP is small by
    then, so the norm behind attention or attention itself may take most.
    Source: derived, moment by moment; tests/oracles/test_tiles.py counts them in DeepSpeed's code.
    """
    model, table = candidates.job.model, candidates.table
    moments = [tiled_mlp_columns(candidates, width), attention_columns(candidates)]
    # the output of attention is kept before and after it travels
    kept = np.where(table.cp > 1, value_columns(model) / table.tp, 0.0)
    if candidates.traits.autograd.norm_fp32_copies:
        moments.append(np.full(len(table), float(NORM_BACKWARD_TENSORS * model.hidden_size)))
        kept = kept + SINGLE_NORM_TENSORS * model.hidden_size
    return np.asarray(np.max(moments, axis=0) + kept)


def attention_columns(candidates: Candidates) -> FloatColumn:
    """Elements per token while attention runs backward, less what both norms' second half kept.

    The gradients of the residual stream and of its output, and `attention_backward_columns`.
    Source: as there.
    """
    model, table = candidates.job.model, candidates.table
    inside = attention_backward_columns(candidates)
    freed = 4 if candidates.traits.autograd.norm_fp32_copies else 2
    travels = np.where(table.cp > 1, value_columns(model) / table.tp, 0.0)
    return np.asarray(inside + (1 - freed) * model.hidden_size - travels)


def attention_backward_columns(candidates: Candidates) -> FloatColumn:
    """Elements per token that the attention core makes in its backward pass.

    The gradient of its output, those of queries, keys and values, the first also in fp32, and where
    heads share keys and values these also for each head.
    Source: Dao-AILab/flash-attention csrc/flash_attn/flash_api.cpp, mha_bwd: dq_accum, dk_expanded.
    """
    model, table = candidates.job.model, candidates.table
    queries, values = query_columns(model), value_columns(model)
    shared = model.num_key_value_heads != model.num_attention_heads and not model.mla
    each = queries + values if shared else 0
    pairs = (queries + values) * model.num_key_value_heads / model.num_attention_heads
    own = queries + values if model.mla else pairs
    return np.asarray((values + 3 * queries + each + own) / table.tp)


def tiled_mlp_columns(candidates: Candidates, width: int) -> FloatColumn:
    """Elements per token that a tiled MLP of that width makes.

    They are live with its input and the gradient of its output.
    Forward the outputs of all tiles and their concatenation; backward the gradient of the input,
    and of one tile what the MLP keeps, the gradients of both branches and its output. It is an
    MLP of single operations, whatever other kernels there are.
    Source: derived from deepspeedai/DeepSpeed runtime/sequence_parallel/ulysses_sp.py, TiledMLP.
    """
    job, table, hidden = candidates.job, candidates.table, candidates.job.model.hidden_size
    kept = activation_tensors(
        job.model, replace(candidates.traits.autograd, activation_output=True)
    )
    inside = (kept + 2) * width / table.tp + hidden
    return np.maximum(2.0 * hidden, hidden + mlp_share(job, table) * inside)


def tile_bytes_per_logit(candidates: Candidates) -> FloatColumn:
    """Peak bytes of each logit that exists: of a tile, nothing holds those in 16 bits.

    Liger writes the gradient where the logits were. Those of a chunk have a name until the next.
    Source: HEAD_BYTES; `loss_tiles`; snowflakedb/ArcticTraining trainer/sft_trainer.py,
    fused_logits_loss_fn; pytorch/torchtitan @b5bcd76c components/loss.py, ChunkedLossWrapper;
    tests/oracles/test_tiles.py counts them.
    """
    kernels, tiling = candidates.traits.kernels, candidates.traits.tiling
    shared = (candidates.table.tp > 1) & (kernels.head_bytes_per_logit == kernels.eager_loss_bytes)
    whole = np.where(shared, PARALLEL_LOSS_BYTES, kernels.head_bytes_per_logit)
    tile = whole if tiling.loss_chunks else np.minimum(whole, HEAD_BYTES["eager"])
    if candidates.job.options.liger:
        tile = np.full(len(whole), float(candidates.job.training.storage_bytes))
    return np.where(candidates.table.tiled_loss == 1, tile, whole)


def hidden_gradient_columns(candidates: Candidates) -> FloatColumn:
    """Stored elements per token that a tiled loss makes more than one tile: its input's gradient.

    That of chunks is in fp32.
    Source: as above, TiledFusedLogitsLoss, which runs both passes of a tile before the next one;
    GradAccumulator.
    """
    job = candidates.job
    wide = BYTES_FP32 / job.training.storage_bytes if candidates.traits.tiling.loss_chunks else 1.0
    return np.where(candidates.table.tiled_loss == 1, wide * job.model.hidden_size, 0.0)


def table_sum_bytes(candidates: Candidates) -> FloatColumn:
    """The output table's gradient, whole on a rank while the loss runs tile by tile.

    Chunks: their sum in fp32, where shards alone are kept. Liger's kernels make it with the loss.
    Source: pytorch `fsdp/_fully_shard/_fsdp_param.py`, to_accumulated_grad_if_needed (no chunk but
    the last is reduced); linkedin/Liger-Kernel src/liger_kernel/ops/fused_linear_cross_entropy.py.
    """
    job, traits, table = candidates.job, candidates.traits, candidates.table
    weights = table_weights(job.model, table)
    element = np.full(len(table), float(traits.tiling.fused_loss * job.training.storage_bytes))
    if traits.tiling.loss_chunks:
        whole = (table.zero_stage >= 2) & (table.dp * table.cp > 1)
        element = whole * float(traits.gradients.accumulated_bytes)
    return np.asarray((table.tiled_loss == 1) * element * weights * trains_head(job.model))
