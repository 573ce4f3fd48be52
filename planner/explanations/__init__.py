"""What limits a plan: what more of a resource saves, and what other rules of it cost.

Each figure has a file: prices of resources, imbalance of experts and lengths of sequences, the
largest model, finer recompute, use of links.

axis_links: links of every axis whose groups have two ranks or more.
AxisLinks: links of one axis.
Bought: what a change buys by itself.
DynamicContext: every sequence on as many context ranks as it needs, rows of equal work.
explain: what limits a layout of a job, and what more of it would save.
Explanation: where the step goes, what binds, what more would buy, how sure the choice is.
ExpertPlacement: where the experts of a plan should lie, and how sure that is.
kept_prices: what changes of a job would buy with the layout as it is, nothing searched.
LargestModel: the largest model that fits, and the smallest that does not.
places_experts: has a layout experts of unequal rows that could lie otherwise?
RecomputeRule: what the same recomputation on every stage costs.
RelaxedRule: the fastest step without one rule, as far as it is known.
Resource: what a second of the step waits for.
Robustness: the choice and its rivals, fastest first.
SequenceLengths: a layout's rows, who waits for whom, and what else could be done.
ShadowPrice: what a change of the job would buy.
"""

from typing import TYPE_CHECKING

from trainplan.costmodel.base import door

if TYPE_CHECKING:
    from trainplan.planner.explanations.expert_placement import (
        ExpertPlacement,
        places_experts,
    )
    from trainplan.planner.explanations.explanation import Explanation, Resource, explain
    from trainplan.planner.explanations.largest_model import LargestModel
    from trainplan.planner.explanations.links import AxisLinks, axis_links
    from trainplan.planner.explanations.relaxed_recompute import RecomputeRule, RelaxedRule
    from trainplan.planner.explanations.robustness import Robustness
    from trainplan.planner.explanations.sequence_lengths import DynamicContext, SequenceLengths
    from trainplan.planner.explanations.shadow_prices import (
        Bought,
        ShadowPrice,
        kept_prices,
    )
else:
    __getattr__ = door(__name__)
