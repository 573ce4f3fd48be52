"""The grid of candidates: what is legal, what the user fixed, and in which order choices are made.

`grid` grows nodes, skeletons and layouts; a `Choice` is one `--fix` or `--exclude`; rules are
applied as soon as their columns are known and count what they refuse.
"""

from trainplan.planner.space.choices import Choice, legality_rules, parse_choice
from trainplan.planner.space.grid import Space

__all__ = ["Choice", "Space", "legality_rules", "parse_choice"]
