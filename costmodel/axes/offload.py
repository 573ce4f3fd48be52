"""Offload: what waits in host memory instead of on the GPU."""

from __future__ import annotations

from trainplan.costmodel.axes.axis import Axis, Least, Memory, Tried
from trainplan.costmodel.axes.grid import offloaded

OPTIMIZER = Axis(
    name="offload.optimizer",
    off=0.0,
    search=Least(
        lambda traits: traits.offloading.optimizer_step,
        "the least fraction with which a layout fits; it counts as one choice",
    ),
    memory=Memory("falls", ("optimizer", "used"), "that share of the states is on the host"),
)
ACTIVATIONS = Axis(
    name="offload_modules",
    off=(),
    search=Tried(offloaded),
    memory=Memory("falls", ("activations",), "their inputs are on the host until they are read"),
)
