"""What the search makes small: the step time, or the energy of a step.

An objective of a layout never falls when its step takes longer, so a lower bound of seconds gives
a lower bound of the objective, and branch and bound stays exact. Money is the step time times a
price; memory and the number of GPUs are searched under changing limits (`headroom`, `sizes`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from trainplan.costmodel.columns import FloatColumn
from trainplan.costmodel.layouts import LayoutTable
from trainplan.costmodel.step import Priced
from trainplan.costmodel.step.energy import Energy


class Objective(Protocol):
    """A figure per layout, smaller is better; infinite for a layout that is no answer."""

    def node_bound(self, table: LayoutTable, seconds: FloatColumn) -> FloatColumn:
        """Bound of nodes, whose step time is `seconds` at least."""

    def bound(self, priced: Priced) -> FloatColumn:
        """Bound of priced layouts and of all that add recomputation or offload to them."""

    def value(self, table: LayoutTable, seconds: FloatColumn) -> FloatColumn:
        """Objective of layouts whose simulated step time is `seconds`."""


class StepTime:
    """Seconds of one step."""

    def node_bound(self, table: LayoutTable, seconds: FloatColumn) -> FloatColumn:
        """The seconds."""
        return seconds

    def bound(self, priced: Priced) -> FloatColumn:
        """The seconds."""
        return priced.step_seconds

    def value(self, table: LayoutTable, seconds: FloatColumn) -> FloatColumn:
        """The seconds."""
        return seconds


@dataclass(frozen=True, slots=True)
class StepEnergy:
    """Joules of one step of all GPUs."""

    energy: Energy
    most_seconds: float = np.inf
    """A step that takes longer is no answer."""

    def node_bound(self, table: LayoutTable, seconds: FloatColumn) -> FloatColumn:
        """Joules without recomputation."""
        return self._within(seconds, self.energy.joules(seconds, self.energy.least_busy(table)))

    def bound(self, priced: Priced) -> FloatColumn:
        """Joules at the bound of the step time."""
        busy = self.energy.busy(priced, apart=False)
        return self._within(priced.step_seconds, self.energy.joules(priced.step_seconds, busy))

    def value(self, table: LayoutTable, seconds: FloatColumn) -> FloatColumn:
        """Joules of the simulated step."""
        return self._within(seconds, self.energy.of_step(table, seconds))

    def _within(self, seconds: FloatColumn, joules: FloatColumn) -> FloatColumn:
        return np.where(seconds <= self.most_seconds, joules, np.inf)
