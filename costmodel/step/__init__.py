"""The whole step: a lower bound and bytes for every row, simulated seconds for the finalists.

`estimate.price` is the sum for many layouts in closed form, `simulate.explicit` runs the schedule
of a few and accounts for every second. `heterogeneous` does both for different node groups,
`node_bound` bounds what is not chosen yet.

boundary_seconds: seconds of one message between each stage and the next, and how long it keeps a
    join busy.
busy_with_messages: passes with the messages in which their ranks wait, and what is left of the
    way between.
Costed: seconds of the blocks of layouts, and the memory of their ranks.
Estimate: all a layout is expected to cost.
explicit: price every row with its schedule simulated.
link_bound: seconds in which the joins of groups can carry all messages of a step, one after the
    other.
local_seconds: add what no term explains and the slowdown of large jobs.
Memory: peak memory of a step.
node_bound_seconds: seconds no choice of vpp, schedule, ZeRO stage, recomputation or offload can
    beat.
NodeMemory: what one node keeps off its GPUs, all of its ranks together.
on_groups: layouts on the machine of each node group.
price: time (a lower bound) and memory (exact within the model) of every row.
price_heterogeneous: as `costmodel.step.estimate.price`, of layouts whose stages name their node
    groups.
Priced: everything known of a table of layouts before its schedules are run.
RankMemory: peak bytes of one pipeline rank.
row_work: the items of one row, of the rank that is delayed most.
simulate: run each row's schedule, with its messages and with instant ones.
Simulated: layouts with their schedules simulated.
simulated: price every row with its schedule simulated.
SimulatedTable: `Makespans` of many layouts.
step_seconds: step time of every row with its schedule simulated.
Terms: exposed seconds of one step on the busiest pipeline rank.
virtual_stage_seconds: seconds of every virtual stage.
with_overhead: seconds of a step from the sum of its terms.
without_overhead: the sum of the terms that makes a step of so many seconds.
"""

from trainplan.costmodel.step.estimate import (
    Costed,
    Priced,
    local_seconds,
    price,
    with_overhead,
    without_overhead,
)
from trainplan.costmodel.step.group_links import boundary_seconds, link_bound
from trainplan.costmodel.step.heterogeneous import (
    on_groups,
    price_heterogeneous,
)
from trainplan.costmodel.step.node_bound import node_bound_seconds
from trainplan.costmodel.step.offloaded import row_work
from trainplan.costmodel.step.results import Estimate, Memory, NodeMemory, RankMemory, Terms
from trainplan.costmodel.step.simulate import Simulated, explicit, simulated, step_seconds
from trainplan.costmodel.step.timelines import (
    SimulatedTable,
    busy_with_messages,
    simulate,
    virtual_stage_seconds,
)
