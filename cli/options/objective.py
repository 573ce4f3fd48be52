"""What `plan search` calls best: options, and what they may be combined with."""

from __future__ import annotations

from typing import get_args

import click

from trainplan.cli.options.parameters import day_count, percentage
from trainplan.costmodel.base.errors import SpecError
from trainplan.planner.plan.options import SearchOptions
from trainplan.planner.plan.target import Name

NAMES: tuple[Name, ...] = get_args(Name)
OBJECTIVE = click.option(
    "--objective",
    type=click.Choice(NAMES),
    default="time",
    show_default=True,
    help="What is best: the fastest step, the most free memory near it, the least money or energy, "
    "or the fewest GPUs that meet the deadline. The last three may leave nodes unused.",
)
SLACK = click.option(
    "--slack",
    callback=percentage,
    metavar="PERCENT",
    help="With --objective memory: how much longer than the fastest a step may take.  "
    "[default: 2%]",
)
DEADLINE = click.option(
    "--deadline",
    callback=day_count,
    metavar="DURATION",
    help="The run of --tokens must end by then: 30d, 36h, 2w.",
)
PARETO = click.option(
    "--pareto",
    metavar="A,B",
    help="Instead of one answer, every layout that no other beats in both objectives: time,memory "
    "or cost,time.",
)


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
