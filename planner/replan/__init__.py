"""What to do with a plan whose cluster lost nodes: the next best plan, or to wait.

`losses` has what is left, `islands` how many of them go on, `kept` layouts with the degrees of the
plan, `replan` the answer, and `outage` what it costs until the nodes are back.

islands_of: a cluster of a job with islands, one in each group.
left_of: the cluster without the nodes that were lost.
Outage: what the loss of nodes costs, whatever is done.
outage_of: what may be done until the lost nodes are back, and what each costs.
Replan: what to go on with on another cluster than that of a plan.
replan: the next best plans on a cluster.
Resumed: a plan on what is left, and how the training gets there and back.
Saved: how the checkpoint was saved.
SpareWorth: a spare node out of those that the plan has, against training on all of them.
Stated: what is stated of an outage.
Taken: which of the plans, by name.
Times: what an outage takes.
Way: one thing to do until the lost nodes are back.
"""

from trainplan.planner.replan.islands import islands_of
from trainplan.planner.replan.losses import left_of
from trainplan.planner.replan.outage import Outage, SpareWorth, Stated, Times, Way, outage_of
from trainplan.planner.replan.replan import Replan, Resumed, Saved, Taken, replan
