"""PatrickStar: states in chunks of one size that move between host and GPU as they are used."""

from __future__ import annotations

import numpy as np

from trainplan.costmodel.lanes.habits import deepspeed_habits
from trainplan.costmodel.lanes.methods.method import Kept, Method
from trainplan.costmodel.lanes.offloaded_step import step_work
from trainplan.costmodel.lanes.placed import Place, Placement, Quantities, Speeds
from trainplan.costmodel.lanes.work import Work

HABITS = deepspeed_habits(3)


def _work(quantities: Quantities, speeds: Speeds, placement: Placement) -> Work:
    """Weights and optimizer on the host, a share of the latter as placed or all."""
    share = placement.optimizer if np.any(placement.optimizer) else 1.0
    placed = Placement(optimizer=share, parameters=Place.HOST)
    return step_work(quantities, speeds, placed, HABITS)


METHOD = Method(
    name="patrickstar",
    what="states in chunks that move between host and GPU, the one needed last leaves first",
    source="Fang et al., PatrickStar, arXiv:2108.05818",
    work=_work,
    keeps=(
        Kept(Place.HOST, "weights in 16 bits, their chunks hold gradients later", 2.0),
        Kept(Place.HOST, "weights in 32 bits", 4.0),
        Kept(Place.HOST, "moments", 8.0),
    ),
)
