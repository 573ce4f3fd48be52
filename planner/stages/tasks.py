"""What the second half of a search asks of its workers: bounds of many layouts, splits of one."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from trainplan.costmodel.columns import BoolColumn, FloatColumn
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.layouts import LayoutTable, Rule, legal_rows
from trainplan.planner.policies import Fractions
from trainplan.planner.space import Space, nodes
from trainplan.planner.stages.bounds.mean_paths import PathPool
from trainplan.planner.stages.contexts import SplitContext
from trainplan.planner.stages.problem.problem import StageProblem
from trainplan.planner.stages.solve.best_split import best_split
from trainplan.planner.stages.solve.listed import NOTHING_KNOWN, SplitResult
from trainplan.planner.tree import MemoryFilter, Pool
from trainplan.planner.work import Deadline

Question = Callable[[LayoutTable, float, PathPool], FloatColumn]
"""What a context says of every row of a table, given the seconds to beat and paths."""


@dataclass(frozen=True, slots=True)
class Bounding:
    """One question about some layouts."""

    ask: Question
    table: LayoutTable
    incumbent_s: float
    pool: PathPool
    """What is known of pipelines."""

    def __call__(self, deadline: Deadline) -> tuple[FloatColumn, PathPool]:
        """The answer for every row, and what is known of pipelines then."""
        return self.ask(self.table, self.incumbent_s, self.pool), self.pool


def roots_of(of: SplitContext, rules: Sequence[Rule]) -> Pool:
    """All nodes whose states may fit, each with its floor."""
    space = Space(of)
    table = nodes(space, MemoryFilter(space, rules, of.memory_bytes)).table
    bound = of.nodes(table) if len(table) else np.zeros(0)
    return Pool.of(table, bound).prune(np.inf)


@dataclass(frozen=True, slots=True)
class SplitMember:
    """One combination of settings of a group, of which a search opens layouts."""

    of: SplitContext
    rules: tuple[Rule, ...]

    def legal(self, table: LayoutTable) -> BoolColumn:
        """Which rows break no rule of it under any split."""
        return legal_rows(self.of.job, self.rules, table)


SplitKey = tuple[Layout, Fractions | None, float, float]
"""A layout, what it may offload, the seconds to beat, and the bound that is enough."""


@dataclass(frozen=True, slots=True)
class BestSplit:
    """The fastest split of one layout that is faster than the best."""

    problem: StageProblem
    incumbent_s: float
    pool: PathPool
    """Paths known for its pipeline."""
    target_bound_s: float
    """It ends early where no split is faster than that."""

    @property
    def key(self) -> SplitKey:
        """The layout and the seconds to beat: more paths alone change no answer."""
        enough = min(self.target_bound_s, self.incumbent_s)
        return self.problem.table.row(0), self.problem.offloads, self.incumbent_s, enough

    def __call__(self, deadline: Deadline) -> tuple[SplitResult, PathPool]:
        """What is known of the split, and the paths that are known afterwards."""
        if deadline.seconds_left() <= 0:
            return NOTHING_KNOWN, self.pool
        return best_split(
            self.problem, self.pool, self.incumbent_s, deadline, self.target_bound_s
        ), self.pool


@dataclass(frozen=True, slots=True)
class BestSplits:
    """Some of them, handed over together: what they share is sent once."""

    tasks: tuple[BestSplit, ...]

    def __call__(self, deadline: Deadline) -> list[tuple[SplitResult, PathPool]]:
        """What is known of each, in order."""
        return [task(deadline) for task in self.tasks]
