"""Ranks that stop: heartbeats of each, read by the process that ends them all.

Awake: seconds without those in which this process was held, as Slurm and Ctrl-Z hold a whole job.
die_with_parent: let the system send a signal to this process when its parent ends.
died: for processes that ended before they were done.
end: end a process that leads a group, and others that do, by number.
Fault: why a run ends before it is done.
Heartbeat: writes the beat of this process.
hung: for a run that does not go on.
KEPT: the sentence that a later run goes on from what is measured.
kill: end processes that lead groups, with their groups.
Limits: when a rank that does not go on is given up.
main_thread: null where the process is gone or the system does not state it.
only_run: hold the lock file while the body runs.
Progress: how far a run is.
read_beats: beats of the ranks of this host, by rank.
run_folder: the temporary folder of a run, gone at its end, however that comes.
signal_name: `SIGKILL` of 9.
StopSignals: notes Ctrl-C, SIGTERM and SIGHUP while others work, in place of ending us in the
    middle.
Watch: looks at the ranks of this host again and again.
"""

from trainplan.profiler.watch.awake import Awake
from trainplan.profiler.watch.folder import run_folder
from trainplan.profiler.watch.heartbeat import Heartbeat, read_beats
from trainplan.profiler.watch.lock import only_run
from trainplan.profiler.watch.processes import die_with_parent, end, kill, main_thread, signal_name
from trainplan.profiler.watch.stop_signals import StopSignals
from trainplan.profiler.watch.watch import KEPT, Fault, Limits, Progress, Watch, died, hung
