"""What is best: each objective finds the layouts of a plan and states what is proved of it.

Time, memory near the fastest, money, energy and fewest GPUs, and the Pareto front of two. Made of
searches under changing limits (`context`), with uneven stages and node groups where they may win.

PART_ALONE: in a note on whether part of the cluster alone is faster.
answer: the layouts of a plan.
check_disaggregated: what no split helps.
check_uneven: can even stages be excluded from a job? Raises.
disaggregated_tower: the decoder's answer on its part of the GPUs, and the split.
looks_for_uneven: does a search for the fastest layout go on with uneven stages?.
Objective: an objective of a front, with its unit.
Pareto: a front, its best point by the first objective first.
part_alone: that part of the cluster alone is faster, or that it is not known; usually nothing.
part_text: that a part of the cluster is faster; without its seconds that it is not known.
pareto: all layouts that no other beats in both objectives.
pareto_json: the public document `trainplan/pareto/v1`.
ParetoDocument: all layouts that no other beats in both of two objectives.
Point: a layout that no other beats in both objectives.
Reached: what a plan is made of.
roomy: a search for the fastest even layout that leaves a tenth of the memory free.
SearchContext: a job, resolved once, with what all searches of its question share.
splits_freely: does the runtime take any split of the layers, and the user too? Clusters of
different
    groups have a search of their own.
time_before_part: a time limit without what `part_alone` may take.
time_before_ties: a time limit without what the search for simpler layouts may take.
too_late: the fastest layout found, maybe of those with even stages, misses the deadline.
uses_all_nodes: is no part of the cluster searched by itself?
UntilFeasible: a budget that is spent as soon as one answer is known, or with the budget around
    it.
wants_uneven: is no even split an answer?.
with_simpler: finalists, and even layouts within the slack that are as simple as any.
"""

from typing import TYPE_CHECKING

from trainplan.costmodel.base import door

if TYPE_CHECKING:
    from trainplan.planner.goals.after_even import check_uneven
    from trainplan.planner.goals.alone import (
        PART_ALONE,
        part_alone,
        part_text,
        time_before_part,
    )
    from trainplan.planner.goals.answered import answer, uses_all_nodes
    from trainplan.planner.goals.context import SearchContext, UntilFeasible
    from trainplan.planner.goals.disaggregated import check_disaggregated, disaggregated_tower
    from trainplan.planner.goals.fronts import (
        Objective,
        Pareto,
        ParetoDocument,
        Point,
        pareto,
        pareto_json,
    )
    from trainplan.planner.goals.reach import Reached, too_late
    from trainplan.planner.goals.simplest import roomy, time_before_ties, with_simpler
    from trainplan.planner.goals.uneven import looks_for_uneven, splits_freely, wants_uneven
else:
    __getattr__ = door(__name__)
