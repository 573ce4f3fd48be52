"""Tiles along the sequence: the loss and the MLPs of a rank run on one tile of tokens at a time."""

from __future__ import annotations

import numpy as np

from trainplan.costmodel.axes.axis import Axis, Memory, Tried
from trainplan.costmodel.axes.values import tiled_losses, tiled_mlps, tiled_mlps_under
from trainplan.costmodel.columns import BoolColumn
from trainplan.costmodel.job import Job
from trainplan.costmodel.layouts import LayoutTable, rule
from trainplan.costmodel.runtimes.traits.tiling import loss_tiles
from trainplan.costmodel.shards import mlp_tiles

TILED = "deepspeedai/DeepSpeed runtime/sequence_parallel/ulysses_sp.py"


@rule(
    "loss_has_tiles",
    "tiled_loss cp micro_batch_size",
    "the loss of a micro batch is one tile: tiled_loss means nothing, leave it out",
    f"{TILED}, the example of TiledLoss: one shard takes more memory than the usual loss",
)
def loss_has_tiles(job: Job, table: LayoutTable) -> BoolColumn:
    """One tile is the whole."""
    return np.asarray((table.tiled_loss == 1) & (loss_tiles(job, table) <= 1))


@rule(
    "mlp_has_tiles",
    "tiled_mlp cp",
    "a rank has no more tokens of a sequence than hidden_size, which is one tile: leave out "
    "tiled_mlp",
    "snowflakedb/ArcticTraining model/tiled_compute.py, num_shards",
)
def mlp_has_tiles(job: Job, table: LayoutTable) -> BoolColumn:
    """One tile is the whole."""
    return np.asarray((table.tiled_mlp == 1) & (mlp_tiles(job, table) <= 1))


@rule(
    "mlp_is_tiled_whole",
    "tiled_mlp",
    "tiled_mlp replaces dense gated MLPs whose weights are trained: leave it out for this model",
    "snowflakedb/ArcticTraining model/tiled_compute.py, enable_tiled_mlp_compute",
)
def mlp_is_tiled_whole(job: Job, table: LayoutTable) -> BoolColumn:
    """The function it runs on every tile is down(act(gate(x)) * up(x))."""
    model = job.model
    dense = model.gated_mlp and all(kind.feed_forward == "mlp" for kind in model.kinds)
    return np.asarray((table.tiled_mlp == 1) & (not dense or model.trained is not None))


TILED_LOSS = Axis(
    name="tiled_loss",
    off=False,
    search=Tried(tiled_losses),
    memory=Memory("neither", (), "the logits of one tile, but a gradient of all hidden states"),
    rules=(loss_has_tiles,),
)
TILED_MLP = Axis(
    name="tiled_mlp",
    off=False,
    search=Tried(tiled_mlps, tiled_mlps_under),
    memory=Memory("falls", ("activations",), "nothing inside an MLP is kept"),
    rules=(mlp_has_tiles, mlp_is_tiled_whole),
)
