"""Does a plan compute what one process does?  A tiny model of its kind, in few real processes.

`shrink` makes the tiny model, `by_megatron` and `by_torch` the layouts that use what the plan
uses, `expected` what the cost model counts on each rank; `by_runtime` picks by the runtime.
`compared` has what the ranks computed; `runs` yields each run as it ends. `exported` writes the
files of the runtime for the tiny job, as processes of a CPU run them.

Combinations: all that is run, and what of the plan is not.
combinations: what a plan uses, on so many processes.
Compared: one layout against one process, and against what the cost model counts.
exported_runs: files of the runtime for what a plan uses, and what is not started.
of_torch: is the parallelism of its runtime torch's own? Others follow Megatron's.
Ran: one combination, and how its run ended.
start_exported: start the files of one process, then the others, and yield each as it ends.
verify: run one process, then every combination, and yield each as it ends.
"""

from trainplan.planner.verification.by_megatron import Combinations
from trainplan.planner.verification.by_runtime import combinations, of_torch
from trainplan.planner.verification.compared import Compared
from trainplan.planner.verification.exported import exported_runs, start_exported
from trainplan.planner.verification.runs import Ran, verify
