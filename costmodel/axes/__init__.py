"""The choices of a layout, one object each: values, text, effect, and what mathematics forbids.

To add one: a field of `Layout`, a column of `LayoutTable`, an `Axis` and its line in `registry`.
Every exporter then refuses it until it writes it; docs/how-to/add-an-axis.md does it step by step.

any_virtual_stages: values of vpp where layers need not divide.
AXES: every choice of a layout, as the certificate of a search lists them.
Axis: one choice of a layout.
AXIS_OF_COLUMN: each axis by its column of `LayoutTable`.
AXIS_OF_OPTION: by what `--fix` calls it.
AXIS_OF_SHORT: by what tables print for it.
degrees: divisors of the world size.
divisors: all divisors in ascending order.
has_drives: may state lie on drives.
Held: the search leaves the axis off.
Least: the search takes the least fraction with which a layout fits.
micro_batch_sizes: every power of two and every divisor of the batch, up to `LARGEST_MICRO_BATCH`.
NAMED_AXES: axes that a whole layout names, off or not.
NODE_AXES: axes of the first level of a search.
offloads: values of offload_modules but none, with what is recomputed next to them.
POLICY_AXES: axes of the last level, chosen together.
recompute_subsets: values of recompute_modules.
RULES: what mathematics forbids, whatever the runtime.
STAGED_AXES: axes of the level between them, all others that are tried.
stages_hold_layers: no empty stage but at the ends, and never more ranks than layers.
tiled_losses: values of tiled_loss.
tiled_mlps_under: values of tiled_mlp.
tp_divides_tower: whole heads and equal columns of an encoder that is cut over the decoder's
    tensor ranks.
Tried: how the search has the axis: it tries every one of some values.
virtual_stages: values of vpp.
"""

from trainplan.costmodel.axes.axis import Axis, Held, Least, Tried
from trainplan.costmodel.axes.pp import stages_hold_layers
from trainplan.costmodel.axes.registry import (
    AXES,
    AXIS_OF_COLUMN,
    AXIS_OF_OPTION,
    AXIS_OF_SHORT,
    NAMED_AXES,
    NODE_AXES,
    POLICY_AXES,
    RULES,
    STAGED_AXES,
)
from trainplan.costmodel.axes.tp import tp_divides_tower
from trainplan.costmodel.axes.values import (
    any_virtual_stages,
    degrees,
    divisors,
    has_drives,
    micro_batch_sizes,
    offloads,
    recompute_subsets,
    tiled_losses,
    tiled_mlps_under,
    virtual_stages,
)
