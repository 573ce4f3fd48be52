"""Which layout to run next, and when to stop: belief, choice, loop and a simulated machine.

Best: the fastest layout that was measured.
Event: any of the events of a run.
exports: can a launch be written? A layout that nothing can start is no trial.
Finished: the event of the end, with the result.
Forecast: what is believed of an untried layout.
Launch: runs a layout and returns how it ended.
Learned: what is believed after a trial.
LISTED: alternatives of a search that are contenders in any case.
MachineDocument: what is hidden of a machine.
NOISY: above it trials of a machine differ so much that the first two are run again.
ScalarRange: what is believed of one scalar of the machine.
SCHEMA: name of the document of a machine on paper.
SimulatedMachine: the machine of a document.
Start: where a run starts.
Started: the layouts that may be the fastest, and what is believed of the machine.
TrialEnded: how a trial ended.
TrialStarted: a layout is launched.
Tried: one trial of the run.
tune: run trials of a job and learn from each.
tuned_plan: a plan's document with the fastest layout that was measured in place of its answer.
TunedPlanDocument: a plan with the fastest layout that was measured in place of its answer.
TuneOptions: when to stop, and which layouts may be tried.
"""

from trainplan.planner.tuning.contenders import exports
from trainplan.planner.tuning.document import TunedPlanDocument, tuned_plan
from trainplan.planner.tuning.events import (
    Best,
    Event,
    Finished,
    Forecast,
    Learned,
    ScalarRange,
    Started,
    TrialEnded,
    TrialStarted,
    Tried,
)
from trainplan.planner.tuning.knowledge import NOISY
from trainplan.planner.tuning.loop import LISTED, Launch, Start, tune
from trainplan.planner.tuning.options import TuneOptions
from trainplan.planner.tuning.simulated import SCHEMA, MachineDocument, SimulatedMachine
