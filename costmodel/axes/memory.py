"""What a layout gives time for memory with: recomputation, offload to the host or drives, tiles."""

import numpy as np

from trainplan.costmodel.axes.axis import Axis, Least, Memory, Tried
from trainplan.costmodel.axes.values import (
    has_drives,
    moved_parameters,
    offloaded,
    recompute_subsets,
    recomputed_layers,
    tiers,
    tiled_losses,
    tiled_mlps,
    tiled_mlps_under,
)
from trainplan.costmodel.columns import BoolColumn
from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import RECOMPUTE, RECOMPUTE_METHODS
from trainplan.costmodel.layouts import ON_DRIVE, LayoutTable, rule
from trainplan.costmodel.runtimes import loss_tiles, runtime
from trainplan.costmodel.shards import mlp_tiles


@rule(
    "offload_optimizer offload_tier offload_stride",
    "offload.tier and stride set how an offloaded optimizer is kept: give offload.optimizer > 0, "
    "or leave them out",
    "derived; without an offloaded share nothing lies on the tier",
)
def update_is_offloaded(job: Job, table: LayoutTable) -> BoolColumn:
    """What says how a share is offloaded needs a share."""
    how = (table.offload_tier > 0) | (table.offload_stride > 0)
    return np.asarray(how & (table.offload_optimizer == 0))


@rule(
    "offload_tier offload_parameters offload_checkpoints",
    "nothing is kept on drives that are not known: give every node group of the cluster "
    "host.drives with tb, read_gb_per_s and write_gb_per_s, or use cpu",
    "derived; neither the time nor the space of an unknown drive is known",
)
def nodes_have_drives(job: Job, table: LayoutTable) -> BoolColumn:
    """What lies on drives needs some in every node."""
    on_drives = (table.offload_tier > 0) | (table.offload_parameters == ON_DRIVE)
    if runtime(job.runtime).offloading.checkpoints_tier == "nvme":
        on_drives = on_drives | (table.offload_checkpoints > 0)
    return np.asarray(on_drives & (not has_drives(job)))


OPTIMIZER = Axis(
    name="offload.optimizer",
    short="offload",
    off=0.0,
    search=Least(
        lambda traits: traits.offloading.optimizer_step,
        "the least fraction with which a layout fits; it counts as one choice",
    ),
    memory=Memory("falls", ("optimizer", "used"), "that share of the states is on the host"),
    rules=(update_is_offloaded,),
)
ACTIVATIONS = Axis(
    name="offload_modules",
    off=(),
    search=Tried(offloaded),
    memory=Memory("falls", ("activations",), "their inputs are on the host until they are read"),
)
TIER = Axis(
    name="offload.tier",
    off="cpu",
    search=Tried(tiers, costs_time=True),
    memory=Memory("neither", (), "the GPU holds as much; drives take what host memory would"),
    rules=(nodes_have_drives,),
)
PARAMETERS = Axis(
    name="offload.parameters",
    off=None,
    search=Tried(moved_parameters, costs_time=True),
    memory=Memory("falls", ("weights", "used"), "weights are on the GPU while a layer runs"),
)
CHECKPOINTS = Axis(
    name="offload.checkpoints",
    off=0.0,
    search=Tried(lambda job, traits: traits.offloading.checkpoints, costs_time=True),
    memory=Memory("falls", ("activations",), "what is kept is off the GPU until it is read"),
)
STRIDE = Axis(
    name="offload.stride",
    off=0,
    search=Tried(lambda job, traits: traits.offloading.strides, costs_time=True),
    memory=Memory("neither", (), "subgroups visit the GPU one by one"),
)


RECOMPUTED = Axis(
    name="recompute",
    off="none",
    search=Tried(lambda job, traits: RECOMPUTE),
    memory=Memory("falls", ("activations",), "what is computed again is not kept"),
)
MODULES = Axis(
    name="recompute_modules",
    off=(),
    search=Tried(recompute_subsets),
    memory=Memory("falls", ("activations",), "what is computed again is not kept"),
)
METHOD = Axis(
    name="recompute_method",
    off=None,
    search=Tried(lambda job, traits: RECOMPUTE_METHODS),
    memory=Memory("neither", (), "uniform keeps one input a group, block whole layers behind some"),
)
NUM_LAYERS = Axis(
    name="recompute_num_layers",
    off=None,
    search=Tried(recomputed_layers),
    memory=Memory("neither", (), "block keeps less, uniform fewer inputs and more of one group"),
)


TILED = "deepspeedai/DeepSpeed runtime/sequence_parallel/ulysses_sp.py"


@rule(
    "tiled_loss cp micro_batch_size",
    "the loss of a micro batch is one tile: tiled_loss means nothing, leave it out",
    f"{TILED}, the example of TiledLoss: one shard takes more memory than the usual loss",
)
def loss_has_tiles(job: Job, table: LayoutTable) -> BoolColumn:
    """One tile is the whole."""
    return np.asarray(
        (table.tiled_loss == 1) & (loss_tiles(job, table, runtime(job.runtime).tiling) <= 1)
    )


@rule(
    "tiled_mlp cp",
    "a rank has no more tokens of a sequence than hidden_size, which is one tile: leave out "
    "tiled_mlp",
    "snowflakedb/ArcticTraining model/tiled_compute.py, num_shards",
)
def mlp_has_tiles(job: Job, table: LayoutTable) -> BoolColumn:
    """One tile is the whole."""
    return np.asarray((table.tiled_mlp == 1) & (mlp_tiles(job, table) <= 1))


@rule(
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
