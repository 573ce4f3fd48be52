"""Best-first branch and bound over the grid: the fastest layouts that fit, and a proof.

Branches wait in a `Pool` by their lower bound; the incumbent prunes them; `memory_bounds` drops
what cannot fit before it is priced.

class_extremes: for each class the policies that take least time, and those that keep least.
classes_with_policies: which classes, given by what keeps least, have a policy that is allowed and
    breaks no rule.
complexity: degrees above one of each layout, plus `1 - 1 / vpp`: smaller is simpler.
first_of_each: the first row of each that are equal in some columns, in order.
Group: combinations with one bound.
groups_of: all members in groups.
Member: one combination of settings, and what its layouts must respect.
MemoryFilter: a `RuleFilter` that also refuses what needs more memory than a rank may use.
Objective: a figure per layout, smaller is better.
policies_of: every policy of some classes of skeletons, or of skeletons, and the row each belongs
    to.
Pool: branches waiting to be opened, each with its bound and its family of like layouts.
PricePolicies: layouts that offload no more than they must.
PricingContext: what all layouts share.
Search: one run of the branch and bound.
SearchLimits: what a layout must respect with the rules, and how many answers are wanted.
SearchResult: what the search knows when it ends.
SIMPLICITY_COLUMNS: what `complexity` reads.
Simplicity: how many degrees of a layout split something, then how many virtual stages a rank has.
StepEnergy: joules of one step of all GPUs.
StepTime: seconds of one step.
time_minimal: of classes that are given by what keeps least, what takes least time.
UnevenResult: what is known when the second half of a search ends.
"""

from trainplan.planner.tree.branch_and_bound import Search
from trainplan.planner.tree.groups import Group, Member, groups_of
from trainplan.planner.tree.memory_bounds import (
    MemoryFilter,
    class_extremes,
    classes_with_policies,
    policies_of,
    time_minimal,
)
from trainplan.planner.tree.pool import Pool, first_of_each
from trainplan.planner.tree.result import (
    SIMPLICITY_COLUMNS,
    Objective,
    SearchLimits,
    SearchResult,
    Simplicity,
    StepEnergy,
    StepTime,
    UnevenResult,
    complexity,
)
from trainplan.planner.tree.tasks import PricePolicies, PricingContext
