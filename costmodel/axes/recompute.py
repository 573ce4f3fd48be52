"""Recomputation: what a backward pass computes again instead of keeping it."""

from __future__ import annotations

from trainplan.costmodel.axes.axis import Axis, Memory, Tried
from trainplan.costmodel.axes.values import recompute_subsets, recomputed_layers
from trainplan.costmodel.layout import RECOMPUTE, RECOMPUTE_METHODS

RECOMPUTED = Axis(
    name="recompute",
    off="none",
    search=Tried(lambda job, traits: RECOMPUTE),
    memory=Memory("falls", ("activations",), "what is computed again is not kept"),
)
MODULES = Axis(
    name="recompute_modules",
    off=(),
    search=Tried(recompute_subsets),
    memory=Memory("falls", ("activations",), "what is computed again is not kept"),
)
METHOD = Axis(
    name="recompute_method",
    off=None,
    search=Tried(lambda job, traits: RECOMPUTE_METHODS),
    memory=Memory("neither", (), "uniform keeps one input a group, block whole layers behind some"),
)
NUM_LAYERS = Axis(
    name="recompute_num_layers",
    off=None,
    search=Tried(recomputed_layers),
    memory=Memory("neither", (), "block keeps less, uniform fewer inputs and more of one group"),
)
