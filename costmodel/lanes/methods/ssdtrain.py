"""SSDTrain: activations go to drives beside the forward pass and come back before the backward."""

from __future__ import annotations

import numpy as np

from trainplan.costmodel.lanes.habits import deepspeed_habits
from trainplan.costmodel.lanes.loads import FloatColumn
from trainplan.costmodel.lanes.methods.method import Method
from trainplan.costmodel.lanes.offloaded_step import step_work
from trainplan.costmodel.lanes.placed import Column, Place, Placement, Quantities, Speeds
from trainplan.costmodel.lanes.work import Work

HABITS = deepspeed_habits(3)


def kept_share(
    layers: Column, kept_bytes: Column, forward: Column, drive_write: Column
) -> FloatColumn:
    """Share of a micro batch's activations that is on the GPU when its backward pass begins.

    Those of the last layer stay and those of the one before come back already; what is not written
    yet is there too.
    Source: Wu et al., SSDTrain, arXiv:2408.10013 (the last module is kept, the next
    prefetched): 2 of the layers, or more if 1 - bandwidth x forward / bytes is more.
    """
    written = np.asarray(drive_write) * forward / kept_bytes
    return np.maximum(np.minimum(1.0, 2.0 / np.asarray(layers)), 1.0 - written)


def _work(quantities: Quantities, speeds: Speeds, placement: Placement) -> Work:
    """Activations on the drive, all unless the placement says a share."""
    share = placement.checkpoints if np.any(placement.checkpoints) else 1.0
    placed = Placement(checkpoints=share, checkpoints_place=Place.DRIVE)
    return step_work(quantities, speeds, placed, HABITS)


METHOD = Method(
    name="ssdtrain",
    what="activations to drives beside the forward pass, back ahead of the backward pass",
    source="Wu et al., SSDTrain, arXiv:2408.10013",
    work=_work,
)
