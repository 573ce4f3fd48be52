"""Budgets: by counted looks, which end alike on any machine, and by the seconds of a clock."""

import math
import time
from collections.abc import Callable


class Steps:
    """Time for as many steps as are given; without a number, for all."""

    def __init__(self, steps: float = math.inf) -> None:
        self.steps = steps

    def spent(self) -> bool:
        self.steps -= 1
        return self.steps < 0

    def seconds_left(self) -> float:
        return 60.0 if self.steps > 0 else 0.0

    def report(self, done: float, bound_s: float, best_s: float) -> None:
        assert 0 <= done <= 1


def least_steps(holds: Callable[[int], bool], most: int) -> int:
    """The fewest steps with which something holds that more of them do not undo, up to `most`."""
    low, high = 0, 1
    while not holds(high):
        assert high < most, "it holds with no number of steps"
        low, high = high, min(2 * high, most)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


class Until:
    """Some seconds of a clock, those that pass unless another is given."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock, self.end = clock, clock() + seconds

    def seconds_left(self) -> float:
        return max(0.0, self.end - self.clock())

    def spent(self) -> bool:
        return self.seconds_left() <= 0

    def report(self, done: float, bound_s: float, best_s: float) -> None:
        """Nobody listens."""
