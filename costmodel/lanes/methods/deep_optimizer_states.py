"""Deep Optimizer States: every k-th subgroup of the host's optimizer is updated on the GPU."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from trainplan.costmodel.lanes.habits import deepspeed_habits
from trainplan.costmodel.lanes.methods.method import Kept, Method
from trainplan.costmodel.lanes.offloaded_step import step_work
from trainplan.costmodel.lanes.placed import Place, Placement, Quantities, Speeds
from trainplan.costmodel.lanes.update import subgroups, update_part
from trainplan.costmodel.lanes.work import Work

SUBGROUP_PARAMS = 100_000_000
"""Parameters of a subgroup.

Source: Maurya et al., Deep Optimizer States, arXiv:2410.21316: subgroups of 100 M.
"""


HABITS = deepspeed_habits(3, pipelined=True, subgroup_params=SUBGROUP_PARAMS)


def best_stride(quantities: Quantities, speeds: Speeds) -> int:
    """The stride of one row whose update ends first; 0 if the CPUs alone end first.

    All are tried: filling and emptying the lanes counts where subgroups are few.
    Source: `update_seconds` of all strides.
    """
    tried = (0, *range(2, int(subgroups(quantities.updated, HABITS)[0]) + 1))
    seconds = [update_seconds(quantities, speeds, stride) for stride in tried]
    return int(tried[int(np.argmin(seconds))])


def update_seconds(quantities: Quantities, speeds: Speeds, stride: int) -> float:
    """Seconds of the update alone with a stride. Source: `Work.makespan` of `update_part`."""
    placement = Placement(optimizer=1.0, stride=stride)
    part = update_part(quantities, speeds, placement, HABITS, pipelined=True)
    return float(Work((part,)).makespan[0])


def _work(quantities: Quantities, speeds: Speeds, placement: Placement) -> Work:
    """The stride of the placement, or the best one if it has none."""
    stride = int(_first(placement.stride)) or best_stride(quantities, speeds)
    placed = replace(placement, optimizer=1.0, optimizer_place=Place.HOST, stride=stride)
    return step_work(quantities, speeds, placed, HABITS)


def _first(column: object) -> float:
    """The value of a single row."""
    return float(np.asarray(column).reshape(-1)[0])


METHOD = Method(
    name="deep-optimizer-states",
    what="every k-th subgroup of the host's optimizer goes to the GPU for its update and back",
    source="Maurya et al., Deep Optimizer States, arXiv:2410.21316",
    work=_work,
    keeps=(
        Kept(Place.DEVICE, "weights in 16 bits", 2.0),
        Kept(Place.HOST, "gradients in 32 bits", 4.0),
        Kept(Place.HOST, "weights in 32 bits", 4.0),
        Kept(Place.HOST, "moments", 8.0),
    ),
)
