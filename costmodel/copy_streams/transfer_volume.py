"""Seconds of work by lane, and the least time in which the lanes can do it.

Nothing here knows single pieces of work: a search prices thousands of rows with it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum

import numpy as np
from numpy.typing import NDArray

FloatColumn = NDArray[np.float64]
LaneRows = NDArray[np.float64]
"""Axes (lane, row)."""


class Lane(IntEnum):
    """What does one piece of work at a time, one after the other, for one rank."""

    GPU = 0
    H2D = 1
    D2H = 2
    CPU = 3
    DRIVE_READ = 4
    DRIVE_WRITE = 5
    NIC = 6

    @property
    def plain(self) -> str:
        """Name as people read it."""
        return PLAIN[self]


PLAIN = {
    Lane.GPU: "GPU",
    Lane.H2D: "host to GPU",
    Lane.D2H: "GPU to host",
    Lane.CPU: "CPU",
    Lane.DRIVE_READ: "drive read",
    Lane.DRIVE_WRITE: "drive write",
    Lane.NIC: "network",
}


class Order(StrEnum):
    """What the pieces of a part wait for, apart from their lane and what they name."""

    OVERLAPPED = "overlapped"
    """Nothing: they run beside each other, beside further rounds and parts that are beside too."""
    ROUNDS = "rounds"
    """A round starts when all before it has ended; what follows starts when the last has ended."""
    CHAIN = "chain"
    """Every piece starts when the one before has ended; what follows starts when all have."""


@dataclass(frozen=True, slots=True)
class Load:
    """Work of a part of a step: seconds of one round on every lane."""

    seconds: LaneRows
    order: Order = Order.OVERLAPPED
    rounds: FloatColumn | NDArray[np.int64] | int = 1
    """How often it is done, by row."""
    aside: LaneRows | float = 0.0
    """Seconds of what runs beside a chain."""

    @property
    def total(self) -> LaneRows:
        """Seconds of all rounds on every lane.

        Source: derived, rounds are the same work, so a lane's seconds are those of one round times
        how many there are, whatever they wait for.
        """
        return np.asarray((self.seconds + self.aside) * self.rounds)

    @property
    def alone(self) -> FloatColumn:
        """Least seconds of all rounds if nothing else runs beside. Source: `floor_seconds`."""
        least = (self.seconds + self.aside).max(axis=0)
        if self.order is Order.CHAIN:
            least = np.maximum(least, self.seconds.sum(axis=0))
        return np.asarray(least * self.rounds)


def lane_rows(rows: int, seconds: Mapping[Lane, FloatColumn | float]) -> LaneRows:
    """Seconds by lane and row, 0 of lanes that are not named.

    Source: derived, the axes are (lane, row); a lane that is not named has no work in that part
    and so takes no seconds of it.
    """
    result = np.zeros((len(Lane), rows))
    for lane, column in seconds.items():
        result[lane] += column
    return result


def lane_seconds(loads: Sequence[Load]) -> LaneRows:
    """Seconds that each lane works in a step.

    Source: derived, lanes do all rounds of all parts, so the seconds of the parts add up whatever
    they wait for.
    """
    return np.asarray(sum(load.total for load in loads))


def floor_seconds(loads: Sequence[Load]) -> FloatColumn:
    """Least seconds (row,) in which the lanes can do a step; never above the longest path.

    Source: derived. A lane does its pieces one after the other, so parts that run beside each other
    take no less than the lane with most work in all of them together; a round that nothing else
    runs beside no less than its own largest lane; a chain is the sum of its pieces.
    """
    overlapped: LaneRows | None = None
    ended: FloatColumn = np.zeros(loads[0].seconds.shape[1])
    for load in loads:
        if load.order is Order.OVERLAPPED:
            overlapped = load.total if overlapped is None else overlapped + load.total
            continue
        if overlapped is not None:
            ended, overlapped = ended + overlapped.max(axis=0), None
        ended = ended + load.alone
    return ended if overlapped is None else np.asarray(ended + overlapped.max(axis=0))
