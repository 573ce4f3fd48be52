"""The whole step: a lower bound and bytes for every row, simulated seconds for the finalists.

`estimate.price` is the sum for many layouts in closed form, `simulate.explicit` runs the schedule
of a few and accounts for every second. `heterogeneous` does both for unlike node groups,
`node_bound` bounds what is not chosen yet, `energy`, `money` and `placement` follow from a step.

as_executed: the layouts as the runtime runs them.
block_costs: costs of every kind of block for each row of a priced table.
BlockCosts: costs of one block of each kind.
boundary_seconds: seconds of one message between each stage and the next, and how long it keeps a
    join busy.
busy_with_messages: passes with the messages in which their ranks wait, and what is left of the
    way between.
crowded_seconds: seconds all slow links add, the slowest most.
decoder_alone: the job without its tower, whose tokens arrive from other GPUs.
EMBEDDING: number of the embedding among the kinds of block, counted from the last.
Energy: joules of the layouts of one job.
energy_of: energy of the layouts of a job.
Estimate: all a layout is expected to cost.
explicit: price every row with its schedule simulated.
exposed_by_handing_over: seconds that a step of the decoder waits for the tower, and one of the
    tower for messages.
FloatMatrix: a matrix of numbers over nodes or ranks.
HEAD: as EMBEDDING, of the head.
joined: seconds of a step.
JOULES_PER_KWH: joules of a kilowatt-hour.
kg_co2: carbon dioxide of electricity, in kg.
Kinds: the kind of every layer in order.
layer_counts: kinds of decoder layer, and how many of each.
least_exposed: the same of any layout of the decoder, at least.
link_bound: seconds in which the joins of groups can carry all messages of a step, one after the
    other.
longest_step_seconds: seconds a step may take so that the run ends in time.
Memory: peak memory of a step.
MTP: as EMBEDDING, of a module of multi-token prediction.
node_bound_seconds: seconds no choice of vpp, schedule, ZeRO stage, recomputation or offload can
    beat.
NodeLinks: what was measured of nodes, relative to the best of them.
NodeMemory: what one node keeps off its GPUs, all of its ranks together.
nodes_of: slowdowns of measured links.
num_kinds: kinds of block.
on_groups: layouts on the machine of each node group.
Orders: shape (order, place).
placed_seconds: step time of every order of the nodes.
placement_costs: price one layout at every slowdown its links have.
PlacementCosts: all that the order of the nodes decides about the step time of one layout.
price: time (a lower bound) and memory (exact within the model) of every row.
price_heterogeneous: as `costmodel.step.estimate.price`, of layouts whose stages name their node
    groups.
price_per_second: money a second of the whole cluster costs, in `cluster.currency`.
Priced: everything known of a table of layouts before its schedules are run.
rank_memories: peak bytes of every pipeline rank of a row whose ranks are kept apart.
RankCosts: one pipeline rank with equal links, and what slower ones add.
RankMemory: peak bytes of one pipeline rank.
row_work: the items of one row, of the rank that is delayed most.
run_steps: optimizer steps of the whole run.
shared_core_seconds: step time of every row at least, where more processes run than there are
    cores.
simulate: run each row's schedule, with its messages and with instant ones.
simulate_heterogeneous: as `step.timelines.simulate`.
Simulated: layouts with their schedules simulated.
simulated: price every row with its schedule simulated.
SimulatedTable: `Makespans` of many layouts.
site_kwh: kilowatt-hours a site draws for joules of its machines.
step_seconds: step time of every row with its schedule simulated.
Term: seconds some pairs of places add together.
Terms: exposed seconds of one step on the busiest pipeline rank.
tower_on_gpus: the fastest that fits, on all GPUs of the job's cluster.
TowerStep: the fastest way of a tower through its samples of a step on so many GPUs.
usual_layers: the kind of decoder layer that there is most of, and how many.
virtual_stage_seconds: seconds of every virtual stage.
waiting_samples: samples that a decoder of this layout, and the link to it, hold at once.
with_lanes_run: the same with the longest path through the lanes beside the GPU for its floor.
with_overhead: add what no term explains and the slowdown of large jobs.
without_overhead: the sum of the terms that makes a step of so many seconds.
WORLD_KG_CO2_PER_KWH: carbon dioxide of a kilowatt-hour of electricity, mean of the world in 2024,
    in kg.
"""

from trainplan.costmodel.step.block_costs import (
    EMBEDDING,
    HEAD,
    MTP,
    BlockCosts,
    Kinds,
    block_costs,
    layer_counts,
    num_kinds,
    usual_layers,
)
from trainplan.costmodel.step.energy import Energy, energy_of
from trainplan.costmodel.step.estimate import (
    Priced,
    as_executed,
    price,
    with_lanes_run,
    with_overhead,
    without_overhead,
)
from trainplan.costmodel.step.footprint import (
    JOULES_PER_KWH,
    WORLD_KG_CO2_PER_KWH,
    kg_co2,
    site_kwh,
)
from trainplan.costmodel.step.group_links import boundary_seconds, link_bound
from trainplan.costmodel.step.heterogeneous import (
    on_groups,
    price_heterogeneous,
    simulate_heterogeneous,
)
from trainplan.costmodel.step.money import longest_step_seconds, price_per_second, run_steps
from trainplan.costmodel.step.node_bound import node_bound_seconds
from trainplan.costmodel.step.offloaded import row_work
from trainplan.costmodel.step.placement import Orders, crowded_seconds, placed_seconds
from trainplan.costmodel.step.placement_costs import (
    FloatMatrix,
    NodeLinks,
    PlacementCosts,
    RankCosts,
    Term,
    nodes_of,
    placement_costs,
)
from trainplan.costmodel.step.results import Estimate, Memory, NodeMemory, RankMemory, Terms
from trainplan.costmodel.step.shared_cores import shared_core_seconds
from trainplan.costmodel.step.simulate import (
    Simulated,
    explicit,
    rank_memories,
    simulated,
    step_seconds,
)
from trainplan.costmodel.step.timelines import (
    SimulatedTable,
    busy_with_messages,
    simulate,
    virtual_stage_seconds,
)
from trainplan.costmodel.step.tower_apart import (
    TowerStep,
    decoder_alone,
    exposed_by_handing_over,
    joined,
    least_exposed,
    tower_on_gpus,
    waiting_samples,
)
