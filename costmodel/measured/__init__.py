"""A machine as its own measurements say it is, in place of the catalog.

A profile replaces curves and constants; a calibration, fitted on measured steps, corrects the few
scalars of a machine. `machine_for` is the machine of a job, whatever is known of it.
"""

from trainplan.costmodel.measured.calibration import NOTHING, Measured, context_for, machine_for
