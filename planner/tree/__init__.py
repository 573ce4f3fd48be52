"""Best-first branch and bound over the grid: the fastest layouts that fit, and a proof.

Branches wait in a `Pool` by their lower bound; the incumbent prunes them; `memory_bounds` drops
what cannot fit before it is priced.
"""

from trainplan.planner.tree.pool import Pool
from trainplan.planner.tree.result import SearchResult

__all__ = ["Pool", "SearchResult"]
