"""Every axis in a row, and in the levels of a search."""

from types import MappingProxyType

from trainplan.costmodel.axes.axis import Axis, Tried
from trainplan.costmodel.axes.cp import CP, CP_HEADS
from trainplan.costmodel.axes.dp import (
    DP,
    DP_REPLICATE,
    HPZ,
    MICRO_BATCH_SIZE,
    REPLICAS_SHARE_OPTIMIZER,
    SHARD,
    ZERO_STAGE,
)
from trainplan.costmodel.axes.ep import EP, ETP
from trainplan.costmodel.axes.gtp import EGTP, GTP
from trainplan.costmodel.axes.memory import (
    ACTIVATIONS,
    CHECKPOINTS,
    METHOD,
    MODULES,
    NUM_LAYERS,
    OPTIMIZER,
    PARAMETERS,
    RECOMPUTED,
    STRIDE,
    TIER,
    TILED_LOSS,
    TILED_MLP,
)
from trainplan.costmodel.axes.pp import PP, SCHEDULE, STAGES, VPP
from trainplan.costmodel.axes.tp import SEQUENCE_PARALLEL, TP
from trainplan.costmodel.layouts import Rule

AXES: tuple[Axis, ...] = (
    TP,
    CP,
    PP,
    DP,
    EP,
    ETP,
    VPP,
    MICRO_BATCH_SIZE,
    SEQUENCE_PARALLEL,
    ZERO_STAGE,
    SCHEDULE,
    RECOMPUTED,
    MODULES,
    METHOD,
    NUM_LAYERS,
    OPTIMIZER,
    ACTIVATIONS,
    TIER,
    PARAMETERS,
    CHECKPOINTS,
    STRIDE,
    DP_REPLICATE,
    STAGES,
    TILED_LOSS,
    TILED_MLP,
    CP_HEADS,
    GTP,
    EGTP,
    REPLICAS_SHARE_OPTIMIZER,
    HPZ,
    SHARD,
)
"""Every choice of a layout, as the certificate of a search lists them."""
NODE_AXES = (TP, CP, PP, DP, EP, ETP, CP_HEADS, GTP, EGTP, SEQUENCE_PARALLEL, MICRO_BATCH_SIZE)
"""Of the first level of a search: its bound, `node_bound_seconds`, holds for all other choices."""
POLICY_AXES = (RECOMPUTED, MODULES, METHOD, NUM_LAYERS, ACTIVATIONS)
"""Of the last level: chosen together, by what layers recompute and what they offload."""
_FIRST_STAGED = (VPP, SCHEDULE, ZERO_STAGE, DP_REPLICATE, TILED_LOSS, TILED_MLP)
STAGED_AXES: tuple[Axis, ...] = (
    *_FIRST_STAGED,
    *(
        axis
        for axis in AXES
        if isinstance(axis.search, Tried) and axis not in (*NODE_AXES, *_FIRST_STAGED, *POLICY_AXES)
    ),
)
"""Of the level between them, all others that are tried; the last varies fastest."""
NAMED_AXES = tuple(axis for axis in AXES if axis not in POLICY_AXES[1:])
"""Those that a whole layout names; of which modules and how, only where there are some."""
AXIS_OF_COLUMN = MappingProxyType({axis.column: axis for axis in AXES})
AXIS_OF_OPTION = MappingProxyType({axis.option: axis for axis in AXES})
AXIS_OF_SHORT = MappingProxyType({axis.short: axis for axis in AXES if axis.short})

_INNER_TO_OUTER = (TP, CP, EP, ETP, DP, PP)
"""As ranks are numbered; experts share the inner ranks."""
RULED: tuple[Axis, ...] = (
    *_INNER_TO_OUTER,
    *(axis for axis in AXES if axis.rules and axis not in _INNER_TO_OUTER),
)
"""Axes with rules, in the order they are asked: a layout counts for the first it breaks."""
RULES: tuple[Rule, ...] = tuple(rule for axis in RULED for rule in axis.rules)
"""What mathematics forbids, whatever the runtime."""
