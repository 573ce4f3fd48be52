"""From points to a profile: curves and their errors, stragglers, merging, coverage. Pure.

cluster_of: the machines a profile was measured on, as a cluster.
fitted: the profile with all curves through its points.
gemm_rate: a curve as the cost model reads it.
has_spec: are the numbers of its GPU known? Without them there are points, and no curves.
step_coverage: what `profile` knows, on the machine that `measured` describes.
KnownQuantity: one quantity.
merged: all points of all profiles, what several of them measured once, and the curves through
    them.
least_certain: the quantity most of whose timings are doubtful, where most of all are.
next_measurement: the quantity whose measurement, first or again, would shrink the error most.
profile_of: what was measured, with all that follows from it.
spec_of: numbers of the GPU of a profile.
error_shares: by item, the part of a step's time that it makes sure of on nodes nothing was measured
    of.
"""

from typing import TYPE_CHECKING

from trainplan.costmodel.base import door

if TYPE_CHECKING:
    from trainplan.profiler.fit.assemble import profile_of
    from trainplan.profiler.fit.coverage import KnownQuantity, least_certain, next_measurement
    from trainplan.profiler.fit.curves import gemm_rate
    from trainplan.profiler.fit.merge import has_spec, merged, spec_of
    from trainplan.profiler.fit.points import fitted
    from trainplan.profiler.fit.reference_step import cluster_of, error_shares, step_coverage
else:
    __getattr__ = door(__name__)
