"""What unequal experts cost: rows of the fullest expert rank over those of a balanced one.

`loads` are expectations over the micro batches of a layer, `choices` how often tokens choose each
expert, `expected_maximum` that of the largest of many sums, `destinations` the ranks of a token.

AIMS: what a placement is best for, by the value of the option `expert_placement`.
changes_rows: whether options or routing make ranks compute other rows than balanced tokens do.
check_routing: refuses counts that no router of the model makes.
counted: rows a placement is made by, of step, layer and expert.
Counts: mean, variance and third moment of rows.
destinations_in_groups: distinct ranks or domains that the experts of one token are on.
fullest: the fullest pack of experts over the mean one.
FullLayer: a layer and a rank whose experts have many rows.
greedy: experts into packs by a greedy rule and swaps, with a bound.
in_order: experts on ranks in the order of their numbers.
largest_below: rows that the fullest of many ranks has at most in so many steps.
Load: rows of the fullest rank and node over balanced ones, fractions dropped and padded.
load: the load of one layout by its ranks and the tokens each routes.
Loads: rows of the fullest rank and node over balanced ones, by row.
loads: those of every row of a table of layouts.
LoadShift: step time and memory of the fullest rank, by step.
local_tokens: tokens that one rank routes in a micro batch.
moments_of_maximum: mean and variance of the largest of some counts.
Packing: the expert of each slot, and whose slot it is.
place: experts of each layer on ranks, so that the fullest has least.
Placement: shares of the rows of each expert that ranks compute.
placement_of: where the experts of a job lie.
places: can experts be placed on so many ranks, groups of a router whole?
step_rows: rows of each rank over those of a balanced one, by step and layer.
StepLoad: one step of these.
"""

from trainplan.costmodel.routing.choices import Counts, destinations_in_groups
from trainplan.costmodel.routing.expected_maximum import moments_of_maximum
from trainplan.costmodel.routing.load_shift import FullLayer, LoadShift, StepLoad
from trainplan.costmodel.routing.loads import (
    AIMS,
    Load,
    Loads,
    changes_rows,
    check_routing,
    load,
    loads,
    local_tokens,
    placement_of,
)
from trainplan.costmodel.routing.packing import Packing, fullest
from trainplan.costmodel.routing.placed import counted, greedy, place, places
from trainplan.costmodel.routing.placement import Placement, in_order
from trainplan.costmodel.routing.steps import largest_below, step_rows
