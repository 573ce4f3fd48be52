"""How often a run saves, and how: what loses least where its failures are stated, else assumed."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from trainplan.costmodel.base import SECONDS_PER_DAY, UnsupportedError
from trainplan.costmodel.hardware import ClusterSpec
from trainplan.costmodel.job import Job
from trainplan.costmodel.run_costs import goodput_of, lasting

Row = Mapping[str, Any]
MINUTE_S = 60


@cache
def settings_table() -> Row:
    """Of `settings.toml`."""
    text = resources.files(__package__).joinpath("settings.toml").read_text("utf-8")
    return tomllib.loads(text)


@dataclass(frozen=True, slots=True)
class Saves:
    """Of a run."""

    way: str
    """As the cluster states it; without, asynchronously where the runtime does."""
    seconds: float
    """Between two saves."""
    reason: str
    """Why so often, in a clause."""
    stated: bool
    """Does the cluster state its failures?"""

    def steps(self, step_seconds: float) -> int:
        """Whole steps between two saves."""
        return max(1, round(self.seconds / step_seconds))

    def text(self, step_seconds: float) -> str:
        """How often, in steps and minutes, and why."""
        minutes = self.seconds / MINUTE_S
        return (
            f"a checkpoint every {self.steps(step_seconds)} steps: {minutes:.3g} minutes, "
            f"{self.reason}, of the plan's {step_seconds:.3g} s a step"
        )


def saves_of(job: Job) -> Saves:
    """Those that lose least; without failures, as often as the table assumes."""
    goodput, failures = goodput_of(job), job.cluster.failures
    if goodput is None or failures is None:
        seconds = settings_table()["minutes_between_saves"] * MINUTE_S
        return Saves("async", seconds, "assumed", stated=False)
    between = SECONDS_PER_DAY / goodput.failures_per_day
    reason = f"which loses least with a failure every {lasting(between)}"
    return Saves(failures.save, goodput.save_interval_s, reason, stated=True)


def copies_of(cluster: ClusterSpec) -> tuple[int, int]:
    """Nodes that hold each local save, and ranks from one of them to the next.

    Ranks so far apart are of two nodes, and copies must divide the world.

    Source: nvidia-resiliency-ext 0.4.1 `replication/group_utils.py`, parse_group_sequence.

    Raises:
        UnsupportedError: No number of copies does.
    """
    apart = max(one.gpus_per_node for one in cluster.groups)
    nodes, rest = divmod(cluster.num_gpus, apart)
    copies = next((n for n in range(2, nodes + 1) if nodes % n == 0), None)
    if rest or copies is None:
        raise UnsupportedError(
            f"local saves are copied between ranks {apart} numbers away, which the "
            f"{cluster.num_gpus:,} ranks of this cluster do not pair: take --save async"
        )
    return copies, apart
