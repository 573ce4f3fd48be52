"""A machine as its own measurements show it: curves and constants of a profile in place of ours.

attention_flop: forward FLOPs of a measured core.
collective_residual: what the curve of one collective leaves of its sizes.
collective_seconds_on: seconds of points of one collective in groups of one size, as its curve
    has them.
CONSTANTS: constants that points of each part give.
DRIVE_WAYS: `read` and `write` of a drive, by field of the profile.
host_notes: what an offloaded layout rests on that a profile did not measure.
inside_domain: points of one curve.
MEANINGS: what each scalar is, for the user.
measured_links: bandwidth between all nodes.
measured_machine: the machine of a cluster, as a profile measured it as far as that is worth, if
    one is given.
on_curve: products on the curve.
points_of: points of one sort, in order.
processes_per_core: processes that share a core of a machine without GPUs.
product_residuals: what the curve of a precision leaves of its points.
products: measured products as columns, the groups of one kernel together.
profile_notes: what was measured, and where the job needs more than that.
ScalarName: name of a scalar of a machine.
SCALARS: in the order of vectors of scalars.
shares_note: how much of a profile counts, in a line.
single_products: products that curves go through.
speed_spread: how far GPUs loaded at once differ, as a share of their mean seconds.
varied: the machine with some scalars changed.
with_measured_drives: the cluster with the drive of the profile where it does not state how fast its
    own are.
"""

from trainplan.costmodel.measured.counted import shares_note
from trainplan.costmodel.measured.curve_residuals import (
    attention_flop,
    collective_residual,
    collective_seconds_on,
    inside_domain,
    on_curve,
    product_residuals,
    products,
    single_products,
)
from trainplan.costmodel.measured.host import (
    DRIVE_WAYS,
    host_notes,
    processes_per_core,
    with_measured_drives,
)
from trainplan.costmodel.measured.links import measured_links
from trainplan.costmodel.measured.profile import measured_machine, points_of, profile_notes
from trainplan.costmodel.measured.shrink import CONSTANTS
from trainplan.costmodel.measured.stragglers import speed_spread
from trainplan.costmodel.measured.varied import MEANINGS, SCALARS, ScalarName, varied
