"""Bytes of parts of a model that run on one tile of tokens at a time."""

from __future__ import annotations

import numpy as np

from trainplan.costmodel.blocks.candidates import Candidates
from trainplan.costmodel.blocks.saved import activation_tensors
from trainplan.costmodel.blocks.tiles import mlp_share
from trainplan.costmodel.layouts import FloatColumn
from trainplan.costmodel.runtimes.traits.kernels import EAGER_HEAD_BYTES


def tiled_mlp_columns(candidates: Candidates, width: int) -> FloatColumn:
    """Elements per token that a tiled MLP of that width makes.

    They are beside its input and the gradient of its output.
    Forward the outputs of all tiles and their concatenation; backward the gradient of the input,
    and of one tile what the MLP keeps, the gradients of both branches and its output.
    Source: derived from deepspeedai/DeepSpeed runtime/sequence_parallel/ulysses_sp.py, TiledMLP.
    """
    job, table, hidden = candidates.job, candidates.table, candidates.job.model.hidden_size
    kept = activation_tensors(job.model, candidates.traits.autograd)
    inside = (kept + 2) * width / table.tp + hidden
    return np.maximum(2.0 * hidden, hidden + mlp_share(job, table) * inside)


def tile_bytes_per_logit(candidates: Candidates) -> FloatColumn:
    """Peak bytes of each logit that exists: of a tile, nothing holds those in 16 bits.

    Source: EAGER_HEAD_BYTES; snowflakedb/ArcticTraining trainer/sft_trainer.py,
    fused_logits_loss_fn; tests/oracles/test_tiles.py counts them.
    """
    whole = candidates.traits.kernels.head_bytes_per_logit
    return np.where(candidates.table.tiled_loss == 1, min(whole, EAGER_HEAD_BYTES), whole)


def hidden_gradient_columns(candidates: Candidates) -> FloatColumn:
    """Elements per token that a tiled loss makes beside one tile: the gradient of its input.

    Source: as above, TiledFusedLogitsLoss, which runs both passes of a tile before the next one.
    """
    return np.where(candidates.table.tiled_loss == 1, candidates.job.model.hidden_size, 0.0)
