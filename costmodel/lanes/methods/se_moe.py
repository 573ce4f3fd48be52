"""SE-MoE: expert weights of the next layer are fetched while this one runs."""

from __future__ import annotations

import numpy as np

from trainplan.costmodel.lanes.habits import deepspeed_habits
from trainplan.costmodel.lanes.methods.method import Kept, Method
from trainplan.costmodel.lanes.offloaded_step import step_work
from trainplan.costmodel.lanes.placed import Place, Placement, Quantities, Speeds
from trainplan.costmodel.lanes.work import Work

HABITS = deepspeed_habits(3)


def _work(quantities: Quantities, speeds: Speeds, placement: Placement) -> Work:
    """Weights (those of experts, in `weight_bytes`) on host or drive, the optimizer as placed."""
    place = placement.parameters if np.any(placement.parameters) else Place.DRIVE
    placed = Placement(
        optimizer=placement.optimizer,
        optimizer_place=placement.optimizer_place,
        parameters=place,
    )
    return step_work(quantities, speeds, placed, HABITS)


METHOD = Method(
    name="se-moe",
    what="experts on host or drives, those of the next layer fetched while this one runs",
    source="Shen et al., SE-MoE, arXiv:2205.10034",
    work=_work,
    keeps=(
        Kept(Place.DRIVE, "weights in 32 bits", 4.0),
        Kept(Place.DRIVE, "moments", 8.0),
        Kept(Place.DEVICE, "weights in 16 bits", 2.0),
        Kept(Place.DEVICE, "gradients in 16 bits", 2.0),
    ),
)
