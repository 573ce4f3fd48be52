"""Real launches of exported plans: started, watched, read, and ended to the last process.

FILE: name of the journal in its folder.
Limits: when a trial is given up.
run_trial: launch a trial, watch it, and end all its processes, whatever happens.
steps_to_run: steps that a trial is exported with.
template: a way to launch, from the text of `--command`.
TrialJournal: the trials of one job, in a file.
TrialRun: exported files, and what is known of the run that they start.
WARM_UP_STEPS: steps of a trial that do not count.
Backend: one way to launch exported files.
BACKENDS: backend of every name.
"""

from trainplan.profiler.trials.backends import BACKENDS
from trainplan.profiler.trials.backends.local import template
from trainplan.profiler.trials.follow import run_trial
from trainplan.profiler.trials.journal import FILE, TrialJournal
from trainplan.profiler.trials.run import Backend, Limits, TrialRun
from trainplan.profiler.trials.steady import WARM_UP_STEPS, steps_to_run
