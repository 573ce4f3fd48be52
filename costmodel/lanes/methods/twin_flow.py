"""Twin-flow: CPUs and GPU each update a share of the optimizer at the same time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from trainplan.costmodel.lanes.habits import deepspeed_habits
from trainplan.costmodel.lanes.loads import FloatColumn
from trainplan.costmodel.lanes.methods.method import Kept, Method
from trainplan.costmodel.lanes.offloaded_step import step_work
from trainplan.costmodel.lanes.placed import Place, Placement, Quantities, Speeds
from trainplan.costmodel.lanes.work import Work

HABITS = deepspeed_habits(3)


def update_seconds(quantities: Quantities, speeds: Speeds, share: FloatColumn) -> FloatColumn:
    """Seconds of the update if the CPUs have a share of it: the later of both.

    Source: DeepSpeed 0.19.8, runtime/zero/stage3.py, step: subgroups of the GPU are launched first,
    those of the CPUs then run one after the other, update and copy of the weights.
    """
    away = share * quantities.updated
    host = away / speeds.cpu_params + HABITS.weight_bytes * away / speeds.h2d
    return np.maximum(host, (1.0 - share) * quantities.update_seconds)


def best_share(quantities: Quantities, speeds: Speeds) -> FloatColumn:
    """The share of the CPUs with which both end at the same time, the least `update_seconds`.

    Source: derived, share x host = (1 - share) x gpu at the crossing of a line that rises with the
    share and one that falls, where their larger one is least.
    """
    ones = np.ones(quantities.rows)
    host = update_seconds(replace(quantities, update_seconds=0 * ones), speeds, ones)
    return np.asarray(quantities.update_seconds / (host + quantities.update_seconds))


def _work(quantities: Quantities, speeds: Speeds, placement: Placement) -> Work:
    """The share of the placement off the GPU, weights where the placement has them."""
    placed = Placement(optimizer=placement.optimizer, parameters=placement.parameters)
    return step_work(quantities, speeds, placed, HABITS)


METHOD = Method(
    name="twin-flow",
    what="CPUs and GPU each update a share of the optimizer at the same time",
    source="DeepSpeed blogs/deepspeed-offloadpp (ZeRO-Offload++, offload_optimizer.ratio)",
    work=_work,
    runtime="DeepSpeed offload_optimizer.ratio; Megatron-LM --optimizer-offload-fraction",
    keeps=(Kept(Place.DEVICE, "weights in 16 bits", 2.0),),
)
