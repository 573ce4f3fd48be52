"""Does a plan compute what one process does?  A tiny model of its kind, in few real processes.

`shrink` makes the tiny model, `by_megatron` and `by_torch` the layouts that use what the plan
uses, `expected` what the cost model counts on each rank; `by_runtime` picks by the runtime.
`compared` has what the ranks computed; `runs` yields each run as it ends.

Combinations: all that is run, and what of the plan is not.
combinations: what a plan uses, on so many processes.
Compared: one layout beside one process, and beside what the cost model counts.
of_torch: is the parallelism of its runtime torch's own? Others follow Megatron's.
Ran: one combination, and how its run ended.
verify: run one process, then every combination, and yield each as it ends.
"""

from trainplan.planner.verification.by_megatron import Combinations
from trainplan.planner.verification.by_runtime import combinations, of_torch
from trainplan.planner.verification.compared import Compared
from trainplan.planner.verification.runs import Ran, verify
