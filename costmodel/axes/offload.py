"""Offload: what waits in host memory, or on drives, instead of on the GPU."""

from __future__ import annotations

import numpy as np

from trainplan.costmodel.axes.axis import Axis, Least, Memory, Tried
from trainplan.costmodel.axes.values import has_drives, moved_parameters, offloaded, tiers
from trainplan.costmodel.columns import BoolColumn
from trainplan.costmodel.job import Job
from trainplan.costmodel.layouts import ON_DRIVE, LayoutTable, rule
from trainplan.costmodel.runtimes import runtime


@rule(
    "update_is_offloaded",
    "offload_optimizer offload_tier offload_stride",
    "offload.tier and stride say how an offloaded optimizer is kept: give offload.optimizer > 0, "
    "or leave them out",
    "derived; without an offloaded share nothing lies on the tier",
)
def update_is_offloaded(job: Job, table: LayoutTable) -> BoolColumn:
    """What says how a share is offloaded needs a share."""
    how = (table.offload_tier > 0) | (table.offload_stride > 0)
    return np.asarray(how & (table.offload_optimizer == 0))


@rule(
    "nodes_have_drives",
    "offload_tier offload_parameters offload_checkpoints",
    "nothing is kept on drives that are not known: give every node group of the cluster "
    "host.drives with tb, read_gb_per_s and write_gb_per_s, or use cpu",
    "derived; neither the time nor the space of an unknown drive can be said",
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
