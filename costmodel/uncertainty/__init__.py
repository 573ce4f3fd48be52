"""How far an estimate may be off: intervals of step times, and near-ties of layouts.

BY_EVIDENCE: regime of a GPU without published runs, by what its constants rest on.
calibrated_regime: regime of a machine that measured steps of the job's precision correct.
FIT_CHANCE: chance to fit of what a search takes by default.
fit_chance: chance that an estimated peak is within the memory.
Interval: seconds between which a measured step lies with a probability.
is_near_tie: whether a layout is faster than the best in at least one of three cases.
Kind: kinds of runs with similar errors: graphs, mixture_of_experts, fsdp, .
kind_of_run: the kind of a run, the first that fits.
kind_was_seen: whether a fitted run used this GPU, precision and runtime.
LEVEL: share of measured steps inside an interval.
margin_of: share of the memory that stays free for a layout to fit with a chance.
names_of_runs: GPU, precision, library and kind of each node group, as in `intervals.toml`.
near_tie_range: fractions by which near-ties may look slower: one change, and the most different.
NO_PEAKS: regime of peaks of libraries of which none was measured.
NORMAL_80: standard deviations within which 80 % of a normal variable lie.
peak_regime: which published peaks show how far one may be off.
peak_scale: scale of the error of a peak, in log units.
place_of_tie: sort key of a near-tie among others.
probability_faster: probability that one layout of a job runs faster than another.
seen: whether a fitted run used all GPUs of a job, its precision and its runtime.
step_time_interval: the interval around an estimated step time.
UNMEASURED: regimes without published runs, narrowest first.
UNVALIDATED: regime of a profile that no measured step was held against.
width_factor: error of the ratio of two step times over that of layouts that differ by one doubling.
"""

from trainplan.costmodel.uncertainty.intervals import (
    BY_EVIDENCE,
    LEVEL,
    NORMAL_80,
    UNMEASURED,
    UNVALIDATED,
    Interval,
    Kind,
    calibrated_regime,
    is_near_tie,
    kind_of_run,
    kind_was_seen,
    names_of_runs,
    near_tie_range,
    place_of_tie,
    probability_faster,
    seen,
    step_time_interval,
    width_factor,
)
from trainplan.costmodel.uncertainty.peaks import (
    FIT_CHANCE,
    NO_PEAKS,
    fit_chance,
    margin_of,
    peak_regime,
    peak_scale,
)
