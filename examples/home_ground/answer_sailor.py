"""OPT-350M on A100 of 40 GB, as Sailor ships it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import sailor
from answers import Row
from filled import solved

PLANS = ((sailor.Grid(1, 8, 8, 32), 4), (sailor.Grid(1, 32, 8, 128), 4))
"""Plans of its planner, by GPUs, and their tensor parallelism: 0.12511 and 0.41753 iterations/s in
its simulator. Source: simulator.py at commit cf2c8e3 run on a CPU."""


def rows(checkout: Path, limit: float) -> Iterator[Row]:
    """Both clusters."""
    of = sailor.read(checkout)
    for plan, tp in PLANS:
        found = solved(partial(sailor.cases, of, plan.gpus), limit)
        theirs = sailor.step_seconds(of, plan, tp)
        note = f"{1 / found.best.value:.5f} iterations/s against {1 / theirs:.5f}"
        yield found.row("sailor", f"OPT-350M, {plan.gpus} A100-40", theirs, None, note)
