"""Step time of every order of measured nodes.

`costs` prices a layout at any slowdown of its links, `seconds` adds up what an order of the nodes
makes of them.

slow_link_seconds: seconds all slow links add, the slowest most.
NodeLinks: what was measured of nodes, relative to the best of them.
nodes_of: slowdowns of measured links.
Orders: shape (order, place).
placed_seconds: step time of every order of the nodes.
placement_costs: price one layout at every slowdown its links have.
PlacementCosts: all that the order of the nodes decides about the step time of one layout.
RankCosts: one pipeline rank with equal links, and what slower ones add.
Term: seconds some pairs of places add together.
"""

from trainplan.costmodel.placement.costs import (
    NodeLinks,
    PlacementCosts,
    RankCosts,
    Term,
    nodes_of,
    placement_costs,
)
from trainplan.costmodel.placement.seconds import Orders, placed_seconds, slow_link_seconds
