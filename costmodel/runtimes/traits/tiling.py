"""What a runtime computes tile by tile along the sequence, to hold one tile of it at a time."""

from dataclasses import dataclass

import numpy as np

from trainplan.costmodel.base import BYTES_FP32, GIB
from trainplan.costmodel.columns import FloatColumn
from trainplan.costmodel.job import Job
from trainplan.costmodel.layouts import LayoutTable

LOSS_TILE_BYTES = GIB
"""fp32 logits of one tile of the loss.

Source: snowflakedb/ArcticTraining trainer/sft_trainer.py, slice_size_in_gb; deepspeedai/DeepSpeed
runtime/sequence_parallel/ulysses_sp.py, the example of TiledLoss.
"""


@dataclass(frozen=True, slots=True)
class Tiling:
    """Parts of a model that it can tile; how many tiles there are is its own rule."""

    mlp: bool = False
    """Dense gated MLPs: each tile runs forward again in front of its backward pass."""
    loss: bool = False
    """Output projection and loss: each tile runs both passes at once, so no logits are kept."""
    loss_tile_bytes: int = LOSS_TILE_BYTES
    """fp32 logits of one tile."""
    loss_chunks: int = 0
    """Tiles of its loss whatever their size; 0: as many as `loss_tile_bytes` asks for."""
    fused_loss: bool = False
    """Its tiles of the loss are those of Liger's kernels."""


UNTILED = Tiling()


def loss_tiles(job: Job, table: LayoutTable, tiling: Tiling = UNTILED) -> FloatColumn:
    """Tiles of the loss: as many as leave a tile `LOSS_TILE_BYTES`, chunks, or by Liger's rule.

    Its tiles have a power of two of tokens, so many that logits take about as many elements as all
    hidden states.
    Source: LOSS_TILE_BYTES; that of the number of shards beside it, with the vocabulary unpadded;
    linkedin/Liger-Kernel src/liger_kernel/ops/fused_linear_cross_entropy.py, chunk_size.
    """
    if tiling.loss_chunks:
        return np.full(len(table), float(tiling.loss_chunks))
    tokens = table.micro_batch_size * job.training.seq_length / table.cp
    if job.options.liger:
        wider = np.ceil(job.model.vocab_size / job.model.hidden_size)
        return np.asarray(np.ceil(tokens / 2 ** np.ceil(np.log2(np.ceil(tokens / wider)))))
    return np.ceil(BYTES_FP32 * tokens * job.model.vocab_size / LOSS_TILE_BYTES)
