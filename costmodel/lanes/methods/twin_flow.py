"""Twin-flow: CPUs and GPU each update a share of the optimizer at the same time."""

from __future__ import annotations

from trainplan.costmodel.lanes.habits import deepspeed_habits
from trainplan.costmodel.lanes.methods.method import Kept, Method
from trainplan.costmodel.lanes.offloaded_step import step_work
from trainplan.costmodel.lanes.placed import Place, Placement, Quantities, Speeds
from trainplan.costmodel.lanes.work import Work

HABITS = deepspeed_habits(3)


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
