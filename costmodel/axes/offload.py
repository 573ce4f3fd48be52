"""Offload: what waits in host memory, or on drives, instead of on the GPU."""

from __future__ import annotations

import numpy as np

from trainplan.costmodel.axes.axis import Axis, Held, Least, Memory, Tried
from trainplan.costmodel.axes.grid import has_drives, moved_parameters, offloaded, tiers
from trainplan.costmodel.layouts import BoolColumn, LayoutTable, rule
from trainplan.costmodel.layouts.table import FULL, ON_DRIVE
from trainplan.costmodel.spec import Job


@rule(
    "update_is_offloaded",
    "offload_optimizer offload_tier offload_stride offload_delayed",
    "offload.tier, stride and delayed say how an offloaded optimizer is kept: give "
    "offload.optimizer > 0, or leave them out",
    "derived; without an offloaded share nothing lies on the tier",
)
def update_is_offloaded(job: Job, table: LayoutTable) -> BoolColumn:
    """What says how a share is offloaded needs a share."""
    how = (table.offload_tier > 0) | (table.offload_stride > 0) | (table.offload_delayed > 0)
    return np.asarray(how & (table.offload_optimizer == 0))


@rule(
    "checkpoints_are_recomputed",
    "offload_checkpoints recompute",
    "offload.checkpoints keeps inputs of recomputed layers on the host: use recompute=full",
    "derived; without recomputation in full no layer keeps its input alone",
)
def checkpoints_are_recomputed(job: Job, table: LayoutTable) -> BoolColumn:
    """A checkpoint is the input of a layer that runs again."""
    return np.asarray((table.offload_checkpoints > 0) & (table.recompute != FULL))


@rule(
    "nodes_have_drives",
    "offload_tier offload_parameters",
    "nothing is kept on drives that are not known: give every node group of the cluster "
    "host.drives with tb, read_gb_per_s and write_gb_per_s, or use cpu",
    "derived; neither the time nor the space of an unknown drive can be said",
)
def nodes_have_drives(job: Job, table: LayoutTable) -> BoolColumn:
    """What lies on drives needs some in every node."""
    on_drives = (table.offload_tier > 0) | (table.offload_parameters == ON_DRIVE)
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
    search=Tried(tiers),
    memory=Memory("neither", (), "the GPU holds as much; drives take what host memory would"),
    rules=(nodes_have_drives,),
)
PARAMETERS = Axis(
    name="offload.parameters",
    off=None,
    search=Tried(moved_parameters),
    memory=Memory("falls", ("weights", "used"), "weights are on the GPU while a layer runs"),
)
CHECKPOINTS = Axis(
    name="offload.checkpoints",
    off=0.0,
    search=Tried(lambda job, traits: traits.offloading.checkpoints),
    memory=Memory(
        "falls", ("activations",), "inputs of layers are on the host until they are read"
    ),
    rules=(checkpoints_are_recomputed,),
)
STRIDE = Axis(
    name="offload.stride",
    off=0,
    search=Tried(lambda job, traits: traits.offloading.strides),
    memory=Memory("neither", (), "subgroups visit the GPU one by one"),
)
DELAYED = Axis(
    name="offload.delayed",
    off=False,
    search=Held(
        says="the search does not try offload.delayed",
        why="it changes what is learned, not only how fast",
    ),
    memory=Memory("neither", (), "the same states are on the host"),
)
