"""What a search makes small, what it is limited by, and what it knows when it ends.

An objective of a layout never falls when its step takes longer, so a lower bound of seconds gives
a lower bound of the objective, and branch and bound stays exact. Money is the step time times a
price; memory and the number of GPUs are searched under changing limits (`headroom`, `sizes`).
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from trainplan.costmodel.columns import FloatColumn
from trainplan.costmodel.job import Job
from trainplan.costmodel.layouts import LayoutTable
from trainplan.costmodel.run_costs import Energy
from trainplan.costmodel.step import Priced
from trainplan.planner.space import VARIANT_DEGREES, Space
from trainplan.planner.tree.pool import Pool


@dataclass(frozen=True, slots=True)
class SearchLimits:
    """What a layout must respect besides the rules, and how many answers are wanted."""

    memory_bytes: float
    """Device memory a rank may use."""
    top: int


@dataclass(frozen=True, slots=True)
class Answer:
    """A layout that was simulated."""

    value: float
    """Its objective."""
    layout: LayoutTable
    """One row."""
    member: int
    """Combination of settings it was simulated under."""


@dataclass(frozen=True, slots=True)
class SearchResult:
    """What the search knows when it ends."""

    finalists: LayoutTable | None
    """Best layout of each of the fastest skeletons, fastest first; None if nothing fits."""
    lower_bound_s: float
    """No layout of the space has a smaller objective: seconds where that is the step time."""
    relaxed_bound_s: float
    """Smallest such bound of the whole space before anything was simulated."""
    step_bound_s: float
    """No layout of the space is faster, whatever the objective."""
    value: float
    """Objective of the first finalist; infinite if nothing fits."""
    space: Space
    roots: Pool
    """All its nodes that may fit, each with a bound of the objective."""
    refused: dict[str, int]
    """Layouts refused, by the first rule they break; `memory` for those that do not fit."""
    priced: int
    """Layouts priced one by one."""
    evaluated: int
    """Layouts simulated."""
    complete: bool
    """False when the time limit ended it."""
    least_host_bytes: float | None
    """Of the layouts that fit on the GPUs and not on the host of a node: the least they need of it;
    None where there is none."""
    least_memory: tuple[float, LayoutTable] | None
    """If nothing fits: bytes of the layout of least memory found, and that layout."""

    @property
    def bounded(self) -> int:
        """Legal layouts that a bound alone, their own or their branch's, shows to be no faster."""
        return self.space.size - sum(self.refused.values()) - self.evaluated


@dataclass(frozen=True, slots=True)
class UnevenResult:
    """What is known when the second half of a search ends: that for uneven stages."""

    table: LayoutTable | None
    """The best layout with its stages; None where no split beats the even ones."""
    step_time_s: float
    lower_bound_s: float
    """No split of any layout is faster whose virtual stages of a rank differ by a layer at most."""
    num_simulated: int
    """Splits whose schedule was run."""
    expanded: int = 0
    """Layouts opened."""
    job: Job | None = None
    """With the settings of the best layout; None where nothing was opened."""
    any_split_lower_bound_s: float | None = None
    """No split at all is faster; None where that was not asked."""


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
        busy = self.energy.busy(priced, separate=False)
        return self._within(priced.step_seconds, self.energy.joules(priced.step_seconds, busy))

    def value(self, table: LayoutTable, seconds: FloatColumn) -> FloatColumn:
        """Joules of the simulated step."""
        return self._within(seconds, self.energy.of_step(table, seconds))

    def _within(self, seconds: FloatColumn, joules: FloatColumn) -> FloatColumn:
        return np.where(seconds <= self.most_seconds, joules, np.inf)


@dataclass(frozen=True, slots=True)
class Simplicity:
    """How many degrees of a layout split something, then how many virtual stages a rank has."""

    most_seconds: float
    """A step that takes longer is no answer."""

    def node_bound(self, table: LayoutTable, seconds: FloatColumn) -> FloatColumn:
        """A node has one virtual stage as yet: no choice below it is simpler."""
        return self.value(table, seconds)

    def bound(self, priced: Priced) -> FloatColumn:
        """No recomputation and no offload changes it."""
        return self.value(priced.table, priced.step_seconds)

    def value(self, table: LayoutTable, seconds: FloatColumn) -> FloatColumn:
        """Degrees above one, and a fraction that rises with the virtual stages."""
        return np.where(seconds <= self.most_seconds, complexity(table), np.inf)


SIMPLICITY_COLUMNS = (*VARIANT_DEGREES, "vpp")
"""What `complexity` reads."""


def complexity(table: LayoutTable) -> FloatColumn:
    """Degrees above one of each layout, plus `1 - 1 / vpp`: smaller is simpler.

    Source: a convention; data parallelism is not counted, as every job has it.
    """
    degrees = sum((getattr(table, name) > 1).astype(float) for name in VARIANT_DEGREES)
    return np.asarray(degrees + 1.0 - 1.0 / table.vpp)
