"""When the passes of a program run, in seconds, and what no order of them can beat.

`clock` runs a program; `cycles` and `critical_path` give its end for many durations at once;
`release_times`, `one_machine_bound` and `lower_bounds` hold for every order of the passes.

critical_paths: the longest path of every candidate under a schedule.
EQUALS: ratio below which two times differ by rounding alone.
first_start_seconds: seconds at which each rank starts its first pass.
gap_fraction: by how much a makespan is longer than its bound.
long_paths: the longest paths of a pipeline, of a long one those that a short run shows.
makespan_lower_bound: seconds that no legal order of the passes goes below.
named_program: the program of a schedule by name and sizes, remembered.
Paths: how often some paths cross each stage and each boundary.
program_lower_bound: seconds that no order with a program's placement, passes and memory goes
    below.
prolonged: paths of a shape that a shorter run shows.
rank_end_seconds: seconds at which each rank ends, by candidate.
reaches: whether a makespan is its bound, up to rounding.
relative_seconds: durations of each candidate's mean stage and message in a common unit.
Run: the longest paths of a run, and of longer ones.
run: start and end of every op of a program, in seconds.
run_of: the longest paths of every candidate, with nothing behind them.
ScheduleLimits: seconds of a message, memory, and whether backward passes may split.
settled: a bound, or the value that it bounds where they differ by rounding alone.
StageSeconds: seconds of forward, backward and weight passes of every virtual stage.
Timeline: start and end (seconds) of every op.
units_of: units of a forward and a backward pass that the order of a schedule is made for.
"""

from trainplan.costmodel.timeline.clock import StageSeconds, Timeline, first_start_seconds, run
from trainplan.costmodel.timeline.critical_path import (
    Paths,
    Run,
    critical_paths,
    long_paths,
    prolonged,
    run_of,
)
from trainplan.costmodel.timeline.cycles import (
    named_program,
    rank_end_seconds,
    relative_seconds,
    units_of,
)
from trainplan.costmodel.timeline.lower_bounds import (
    EQUALS,
    ScheduleLimits,
    gap_fraction,
    makespan_lower_bound,
    program_lower_bound,
    reaches,
    settled,
)
