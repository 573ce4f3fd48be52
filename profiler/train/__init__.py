"""Real training steps of small models, in processes of this machine.

`request` is what is run and what each rank reports; `server` imports the libraries once and forks
the ranks of one run after the other; `trainers` is the registry of what trains.

CountedRuns: trains some steps of a layout, and counts in the last of them.
has_engine: does Transformer Engine run its layers?
is_installed: can its layers run here?
micro_batch: the model of this rank, connected to the others until the block ends.
need: a trainer whose libraries are installed.
PARTS: between the marks of a micro batch.
refusal: what of a request its trainer cannot run, and why.
refusing: what the trainer cannot run of a job and a layout, and why.
lacking: which of some modules and variables is not there.
ScriptRuns: starts exported scripts, and reads the losses they print.
slowest_seconds: seconds of each step.
TrainerName: what trains: `megatron-core` or `torch`.
Trainers: processes that train one request after the other.
TrainingFailedError: ranks that did not come to their end.
TrainingRequest: some steps of one layout.
versions: what runs its layers, for the user.
"""

from trainplan.profiler.train.client import CountedRuns, Trainers, refusing, slowest_seconds
from trainplan.profiler.train.megatron.micro_batch import (
    PARTS,
    has_engine,
    is_installed,
    micro_batch,
    versions,
)
from trainplan.profiler.train.request import TrainerName, TrainingFailedError, TrainingRequest
from trainplan.profiler.train.scripts import ScriptRuns, lacking
from trainplan.profiler.train.trainers import need, refusal
