"""Offloaded layers that are on the device, however the layers are split."""

from __future__ import annotations

import numpy as np

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.columns import IntColumn, IntRankChunks
from trainplan.costmodel.memory.in_transit import LAYERS_IN_TRANSIT

ANYWHERE = 1 << 30
"""Layers of the smaller kind may lie behind any stage."""


def first_layers(model: ModelSpec) -> int:
    """Layers of a model in front of the last ones, which are all of one kind."""
    kinds = model.kind_of_layer
    tail = next((i for i, kind in enumerate(reversed(kinds)) if kind != kinds[-1]), len(kinds))
    return len(kinds) - tail


def least_in_transit(first: int, stage_of: IntRankChunks, passes: IntRankChunks) -> IntColumn:
    """Layers in transit on each rank at least, of the kind of the last ones.

    Stages at the ends may be empty, and every other one before a stage holds a layer, so a stage
    behind the `first` layers is of one kind; of other ranks nothing is said. `passes` in flight are
    those of each chunk; shape (rank, chunk).
    Source: LAYERS_IN_TRANSIT layers are on their way, or all in flight where those are fewer; each
    pass in flight has a layer at least where the stage is not empty.
    """
    ends = (stage_of == 0) | (stage_of == stage_of.max())
    alike = (stage_of > first).all(axis=1) | (first == 0)
    held = np.where(ends, 0, passes).sum(axis=1)
    return np.where(alike, np.minimum(LAYERS_IN_TRANSIT, held), 0)
