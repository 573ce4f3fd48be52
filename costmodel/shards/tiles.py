"""Into how many tiles the tokens of a rank are cut, by the rules of the runtimes that cut them."""

from __future__ import annotations

import numpy as np

from trainplan.costmodel.columns import FloatColumn
from trainplan.costmodel.job import Job
from trainplan.costmodel.layouts import LayoutTable
from trainplan.costmodel.runtimes.traits.tiling import loss_tiles

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


def loss_share(job: Job, table: LayoutTable) -> FloatColumn:
    """Share of the logits that exist at once: those of one tile, or all. Source: as `mlp_share`."""
    return np.where(table.tiled_loss == 1, 1.0 / loss_tiles(job, table), 1.0)


def added_bytes(storage_bytes: int, weights: FloatColumn, tiles: FloatColumn) -> FloatColumn:
    """Bytes moved to add the weight gradients of all tiles but the first to those before them.

    Source: GRADIENT_TENSORS_ADDED.
    """
    return GRADIENT_TENSORS_ADDED * storage_bytes * weights * np.maximum(0.0, tiles - 1)
