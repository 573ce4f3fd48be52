"""Pipeline schedules by themselves: stated, compared, run on a clock, or found by a solver.

better: what would make a schedule faster.
Extras: what some schedules need beyond the durations of whole passes.
freed_bytes: what the input and the weight gradient of every stage free.
HoldsTooMuchError: a schedule needs more memory than it may have.
imported: a program read from a file, on the clock.
known: the name of a schedule.
other_schedules: the same degrees under every schedule the runtime lacks, fastest first, then by
    memory.
Pipeline: what a schedule is wanted for.
plain_program: a schedule of the registry, with its own backward passes and nothing copied.
ranked: every schedule of the registry, the fastest first, of equals the one of least memory.
Ranking: all schedules of a shape, the fastest first.
require_size: the shape, if its program is of a size to be built.
scheduled: a schedule of the registry on the clock.
score: a program on the clock, with a bound that no order of the same memory can beat.
Scored: one schedule on the clock.
stage_seconds: seconds of every pass.
StageTimes: durations of one virtual stage's passes of one micro batch.
synthesised: the fastest order a solver finds before the deadline.
vpp_of: virtual stages of the rank that has most, of one copy of the model.
"""

from trainplan.planner.schedules.compare import (
    Ranking,
    better,
    imported,
    known,
    plain_program,
    ranked,
    scheduled,
    synthesised,
)
from trainplan.planner.schedules.other_schedules import other_schedules
from trainplan.planner.schedules.pipelines import (
    Extras,
    Pipeline,
    StageTimes,
    freed_bytes,
    require_size,
    stage_seconds,
)
from trainplan.planner.schedules.scored import HoldsTooMuchError, Scored, score, vpp_of
