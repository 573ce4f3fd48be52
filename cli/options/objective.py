"""What `plan search` calls best, and what it may be combined with."""

from __future__ import annotations

from typing import get_args

from trainplan.costmodel.base import SpecError
from trainplan.planner.plan import SearchOptions
from trainplan.planner.plan.target import Name

NAMES: tuple[Name, ...] = get_args(Name)


def slack_of(objective: str, slack: float | None) -> float:
    """The slack, where the objective has one.

    Raises:
        SpecError: It has none.
    """
    if slack is None:
        return SearchOptions().slack
    if objective != "memory":
        raise SpecError(f"--slack means nothing with --objective {objective}: only memory has one")
    return slack


def pair_of(text: str) -> tuple[Name, Name]:
    """Read `cost,time`.

    Raises:
        SpecError: Not two different objectives.
    """
    known = {str(name): name for name in NAMES}
    names = [part.strip() for part in text.split(",")]
    if len(names) != 2 or names[0] == names[1] or not all(name in known for name in names):
        raise SpecError(
            f"--pareto {text[:40]!r}: give two of {', '.join(NAMES)}, such as cost,time"
        )
    return known[names[0]], known[names[1]]
