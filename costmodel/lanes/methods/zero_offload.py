"""ZeRO-Offload: optimizer and gradients on the host, Adam by its CPUs."""

from __future__ import annotations

from dataclasses import replace

from trainplan.costmodel.lanes.habits import deepspeed_habits
from trainplan.costmodel.lanes.methods.method import Kept, Method
from trainplan.costmodel.lanes.offloaded_step import step_work
from trainplan.costmodel.lanes.placed import Place, Placement, Quantities, Speeds
from trainplan.costmodel.lanes.work import Work

HABITS = replace(
    deepspeed_habits(2, overlap_comm=True, fp32_sums=True), gradient_bytes=2.0, keeps_last=False
)
"""Gradients leave in 16 bits while the backward pass runs.

Source: Ren et al., ZeRO-Offload, arXiv:2101.06840 (2 bytes a parameter each way).
"""


def _work(quantities: Quantities, speeds: Speeds, placement: Placement) -> Work:
    """All of the optimizer on the host; delayed where the placement says so."""
    placed = Placement(optimizer=1.0, delayed=placement.delayed)
    return step_work(quantities, speeds, placed, HABITS)


METHOD = Method(
    name="zero-offload",
    what="optimizer and gradients on the host, Adam on its CPUs, copies out beside backward passes",
    source="Ren et al., ZeRO-Offload, arXiv:2101.06840",
    work=_work,
    runtime="DeepSpeed offload_optimizer.device=cpu (without the delayed update)",
    keeps=(
        Kept(Place.DEVICE, "weights in 16 bits", 2.0),
        Kept(Place.HOST, "gradients in 16 bits", 2.0),
        Kept(Place.HOST, "weights in 32 bits", 4.0),
        Kept(Place.HOST, "moments", 8.0),
    ),
)
DELAYED = replace(
    METHOD,
    name="zero-offload-delayed",
    what="as zero-offload, its update beside the next step's passes: changes the training",
    work=lambda quantities, speeds, placement: _work(
        quantities, speeds, replace(placement, delayed=True)
    ),
    runtime=None,
)
