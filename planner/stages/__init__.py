"""Uneven stages: is another split of the layers faster than the best even one, at most by how much?

`search` goes on where the even search ended. `problem` is a layout whose layers are not split yet,
on equal nodes or in different groups, `bounds` holds for all its splits at once, `solve` finds the
best one by lists, moves and simulation, `contexts` uses all three on equal nodes and in groups.

best_by_stage: the fastest choice for a layout of `by_stage` that fits and is faster than the
    cutoff.
by_stage: the rows of a table with full recomputation of some layers of each stage, evenly split.
ByStage: what is known of the recomputation of each stage.
EvenLayouts: layouts of one job with even stages and full recomputation of some layers of each.
HeterogeneousResult: what a search over node groups found.
HeterogeneousSearch: one run for pipeline ranks in different node groups.
simulated_choice: what each stage recomputes, on the clock.
PathPool: paths of pipelines, and a mean of each, computed when they are first needed.
polished: the best of some splits, then of those near the best, again and again.
SplitContext: what all layouts share.
SplitMember: one combination of settings of a group, of which a search opens layouts.
stage_problems: the layouts of a table, one by one, each free to offload as far as its own range
    goes.
StageProblem: one layout, with all that no split of its layers changes.
TRIED_FIRST: finalists of the even search that are split before any other layout.
try_near: split the answer of a similar job, where it is legal here, and its siblings.
try_siblings: split those siblings of an answer that look fastest, if there is one.
UnevenSearch: one run for splits on equal nodes.
"""

from typing import TYPE_CHECKING

from trainplan.costmodel.base import door

if TYPE_CHECKING:
    from trainplan.planner.stages.bounds.mean_paths import PathPool
    from trainplan.planner.stages.bounds.recompute import EvenLayouts
    from trainplan.planner.stages.contexts import SplitContext
    from trainplan.planner.stages.groups_search import HeterogeneousResult, HeterogeneousSearch
    from trainplan.planner.stages.heuristics import try_near, try_siblings
    from trainplan.planner.stages.problem.of_layouts import stage_problems
    from trainplan.planner.stages.problem.problem import StageProblem
    from trainplan.planner.stages.search import TRIED_FIRST, UnevenSearch
    from trainplan.planner.stages.solve.listed import polished
    from trainplan.planner.stages.solve.recompute import (
        ByStage,
        best_by_stage,
        by_stage,
        simulated_choice,
    )
    from trainplan.planner.stages.tasks import SplitMember
else:
    __getattr__ = door(__name__)
