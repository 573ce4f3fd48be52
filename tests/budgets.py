"""Budgets that end alike on any machine: they count how often they were asked, not seconds."""

import math


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
