"""Into how many tiles the tokens of a rank are cut, by the rules of the runtimes that cut them."""

from __future__ import annotations

import numpy as np

from trainplan.costmodel.base import BYTES_FP32, GIB
from trainplan.costmodel.layouts import FloatColumn, LayoutTable
from trainplan.costmodel.spec import Job

LOSS_TILE_BYTES = GIB
"""fp32 logits of one tile of the loss.

Source: snowflakedb/ArcticTraining trainer/sft_trainer.py, slice_size_in_gb; deepspeedai/DeepSpeed
runtime/sequence_parallel/ulysses_sp.py, the example of TiledLoss.
"""
GRADIENT_TENSORS_ADDED = 3
"""Elements moved to add the gradient of one weight to that of the tiles before: both are read, the
sum is written. Source: derived; PyTorch accumulate_grad.h, an addition in place."""


def mlp_tiles(job: Job, table: LayoutTable) -> FloatColumn:
    """Tiles of an MLP: as many as make a tile no longer than the hidden state is wide.

    Source: snowflakedb/ArcticTraining model/tiled_compute.py, tiled_mlp_forward_common.
    """
    return np.ceil(job.training.seq_length / table.cp / job.model.hidden_size)


def loss_tiles(job: Job, table: LayoutTable) -> FloatColumn:
    """Tiles of the loss: as many as leave a tile `LOSS_TILE_BYTES`, or by the rule of Liger.

    Its tiles have a power of two of tokens, so many that logits take about as many elements as all
    hidden states.
    Source: LOSS_TILE_BYTES; that of the number of shards beside it, with the vocabulary unpadded;
    linkedin/Liger-Kernel src/liger_kernel/ops/fused_linear_cross_entropy.py, chunk_size.
    """
    tokens = table.micro_batch_size * job.training.seq_length / table.cp
    if job.options.liger:
        wider = np.ceil(job.model.vocab_size / job.model.hidden_size)
        return np.asarray(np.ceil(tokens / 2 ** np.ceil(np.log2(np.ceil(tokens / wider)))))
    return np.ceil(BYTES_FP32 * tokens * job.model.vocab_size / LOSS_TILE_BYTES)


def mlp_share(job: Job, table: LayoutTable) -> FloatColumn:
    """Share of its tokens that an MLP holds inside at once: one tile, or all.

    Source: derived; the tiles run one after the other and are alike, but for a shorter last one.
    """
    return np.where(table.tiled_mlp == 1, 1.0 / mlp_tiles(job, table), 1.0)


def loss_share(job: Job, table: LayoutTable) -> FloatColumn:
    """Share of the logits that exist at once: those of one tile, or all. Source: as `mlp_share`."""
    return np.where(table.tiled_loss == 1, 1.0 / loss_tiles(job, table), 1.0)


def added_bytes(storage_bytes: int, weights: FloatColumn, tiles: FloatColumn) -> FloatColumn:
    """Bytes moved to add the weight gradients of all tiles but the first to those before them.

    Source: GRADIENT_TENSORS_ADDED.
    """
    return GRADIENT_TENSORS_ADDED * storage_bytes * weights * np.maximum(0.0, tiles - 1)
