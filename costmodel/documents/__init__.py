"""Documents of evidence: measured runs, published runs, calibrations, constants, trials.

Calibration: scalars fitted on measured steps of one kind of GPU, precision and runtime.
CalibrationRun: a run the scalars were fitted on, priced without and with them.
Constants: one value of every fitted constant.
Ending: how a trial ends: a result, out of memory, a failure.
FittedFactor: a fitted factor of the cost model and its error.
FittedScalar: one scalar and how well the runs know it.
Intervals: contents of `intervals.toml`.
IntervalWidth: how far measured steps, or the ratio of two, are from their estimates.
MeasuredRun: one line of a runs file.
MemoryKind: what a measured peak counts.
MemoryRank: which rank a measured peak is of.
Outcome: how a trial ended.
Peaks: how far peaks of memory are from their estimates.
PublishedRun: a measured run with the error of its estimate.
RunCluster: the machine of a measured run.
RunLayout: how the job was cut over the ranks.
RunModel: dimensions of the model of a measured run.
RunStage: one stage of a plan whose stages differ.
RunTraining: how the model of a measured run was trained.
RunTwin: membership of runs that differ in one setting.
RunWide: products that multiply in 16 bits where the others multiply in fewer.
Scalars: corrections of a machine by a calibration.
Shape: what is compared of a run and of an answer.
SharedSpeed: speed of the jobs that have more in common with the runs than the machine.
Trial: a layout to run and for how many steps.
"""

from trainplan.costmodel.documents.calibration import (
    Calibration,
    CalibrationRun,
    Ending,
    FittedFactor,
    FittedScalar,
    Outcome,
    Scalars,
    SharedSpeed,
    Trial,
)
from trainplan.costmodel.documents.constants import (
    Constants,
    Intervals,
    IntervalWidth,
    Peaks,
    PublishedRun,
    Shape,
)
from trainplan.costmodel.documents.measured_run import (
    MeasuredRun,
    MemoryKind,
    MemoryRank,
    RunCluster,
    RunLayout,
    RunModel,
    RunStage,
    RunTraining,
    RunTwin,
    RunWide,
)
