"""A machine corrected by measured steps: the few scalars they identify, and how precisely.

`machine_for` is the machine of a job, whatever is known of it.

agreed: the same, where the calibration corrects the profile it was fitted on.
calibrate: fit the scalars that the runs identify, on the machine of the catalog or of a profile.
calibrated: the machine with the scalars of a calibration, and their provenance.
context_for: a job with its machine and runtime, resolved once.
fit_of_one: most probable effects after one step that ran at `log_speed` of the prediction.
kind_of: GPU, precision and runtime of a run.
kinds_of: runs by kind, the largest group first.
LEAST_LEARNT: a scalar is identified when the runs halve its spread.
machine_for: the machine of a job as it was measured.
machine_spread: how far a machine and its software are from the model, log units.
Measured: what is known of a machine beyond the catalog.
measured_notes: what was measured, and where the job is not quite that.
NOTHING: no measurements: the catalog alone.
Observation: one measured step and what ran.
precision_note: why `usual_precision` chose it on a CPU, from what was measured and what the host
    states.
refusal: why it was refused, with the numbers.
Shared: what a run has in common with others of its machine.
shared_by: what a run shares.
usual_precision: of a job that names none.
"""

from trainplan.costmodel.calibration.effects import Shared, machine_spread, shared_by
from trainplan.costmodel.calibration.fit import Observation, calibrate, kind_of, kinds_of
from trainplan.costmodel.calibration.machine import (
    NOTHING,
    Measured,
    agreed,
    calibrated,
    context_for,
    machine_for,
    measured_notes,
    refusal,
)
from trainplan.costmodel.calibration.on_cpu import precision_note, usual_precision
from trainplan.costmodel.calibration.scalars import LEAST_LEARNT, fit_of_one
