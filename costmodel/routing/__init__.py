"""What unequal experts cost: rows of the fullest expert rank over those of a balanced one.

`loads` are expectations over the micro batches of a layer, `choices` how often tokens choose each
expert, `expected_maximum` that of the largest of many sums, `destinations` the ranks of a token.

changes_rows: whether options or routing make ranks compute other rows than balanced tokens do.
check_routing: refuses counts that no router of the model makes.
destinations_in_groups: distinct ranks or domains that the experts of one token are on.
Load: rows of the fullest rank and node over balanced ones, fractions dropped and padded.
load: the load of one layout by its ranks and the tokens each routes.
Loads: rows of the fullest rank and node over balanced ones, by row.
loads: those of every row of a table of layouts.
local_tokens: tokens that one rank routes in a micro batch.
"""

from trainplan.costmodel.routing.choices import destinations_in_groups
from trainplan.costmodel.routing.loads import (
    Load,
    Loads,
    changes_rows,
    check_routing,
    load,
    loads,
    local_tokens,
)
