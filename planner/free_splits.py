"""The second half of a search: may another split of the layers be faster than the best even one?

    node       bounded by `floor_seconds`, which holds for every split
    skeleton   bounded by mean paths without recomputation and offload
    layout     bounded by mean paths, then by the windows of its ranks
    split      judged: its schedule is run

Best first, as in `planner.search`; a layout is opened only where its bound is below the best.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from costmodel.block_costs import BlockCosts, block_costs
from costmodel.estimate import Priced, price, with_overhead, without_overhead
from costmodel.floor import floor_seconds
from costmodel.machine import Machine
from costmodel.rules import Rule
from costmodel.runtimes.base import RuntimeTraits
from costmodel.schedules import SCHEDULES
from costmodel.spec.job import Job
from costmodel.spec.layout import SCHEDULE_NAMES
from costmodel.table import (
    FULL,
    SELECTIVE,
    UNIFORM,
    BoolColumn,
    FloatColumn,
    IntColumn,
    LayoutTable,
)
from planner.budget import Budget
from planner.pool import Pool
from planner.shape_bounds import split_bound, steady_seconds
from planner.space import Sieve, Space, nodes, policies, skeletons
from planner.split import PathPool, Split, best_split, with_split
from planner.split_memory import Limits
from planner.split_problem import Splittable, splittables

NODES_AT_ONCE, MOST_NODES = 32, 512
"""Nodes opened first, and at most: twice as many each time, so that a time limit is kept and many
are bounded together where there is time."""
SKELETONS_AT_ONCE = 256
LAYOUTS_AT_ONCE = 16
TURNS = 3
"""Every so often the fastest layouts are split before their turn."""
CHUNK_ROWS = 8_192
OPENED_WITHOUT_LIMIT = 40
"""Layouts opened where no time limit says when to stop: a second or two, and always the same."""


@dataclass(frozen=True, slots=True)
class FreeFound:
    """What is known when the second half ends."""

    table: LayoutTable | None
    """The best layout with its stages; None where no split beats the even ones."""
    step_time_s: float
    lower_bound_s: float
    """No split of any layout is faster."""
    judged: int
    """Splits whose schedule was run."""


def may_split(traits: RuntimeTraits, table: LayoutTable) -> BoolColumn:
    """Rows whose layers may be split freely.

    The order of the pipeline ignores durations, and its ranks do not wait for messages: the length
    of a path is the seconds of its passes and messages alone.
    """
    other = {*traits.unsynchronised, *traits.waits_for_messages}
    fixed = [not SCHEDULES[name].adapts and name not in other for name in SCHEDULE_NAMES]
    return np.asarray((table.pp > 1) & np.array(fixed)[table.schedule])


class FreeSplits:
    """One run; `run` returns what it found."""

    def __init__(
        self,
        job: Job,
        machine: Machine,
        rules: Sequence[Rule],
        memory_bytes: float,
        best_s: float,
    ) -> None:
        self.job, self.machine, self.rules = job, machine, rules
        self.memory_bytes, self.best_s = memory_bytes, best_s
        self.space, self.sieve = Space(job), Sieve(job, rules)
        roots = nodes(self.space, self.sieve).table
        roots = roots.take(roots.pp > 1)
        self.nodes = self._pool(roots, floor_seconds(job, machine, self.space.traits, roots))
        self.skeletons = self.layouts = self.nodes.take(np.arange(0))
        self.paths, self.judged = PathPool(), 0
        self.table: LayoutTable | None = None
        self.opened = 0
        """Layouts opened so far, a skeleton counting as a fraction of one."""
        self.turn, self.nodes_at_once = 0, NODES_AT_ONCE
        self.families = 0
        """Skeletons opened so far."""
        self.left = np.inf
        """Smallest bound of layouts that were opened and are not settled."""

    def try_first(self, table: LayoutTable, budget: Budget) -> None:
        """Split some layouts before any other: a good answer soon, and fewer that may beat it."""
        table = table.take(may_split(self.space.traits, table))
        for row in self._rows(table) if len(table) else ():
            if not budget.spent():
                self._keep(best_split(row, self.paths, self.best_s, budget), row)

    def _keep(self, found: Split, row: Splittable) -> None:
        """Take note of a split, and drop what is no faster."""
        self.opened += 1
        self.judged += found.judged
        if found.layers is not None and found.step_time_s < self.best_s:
            self.best_s = found.step_time_s
            self.table = with_split(row.table, found.layers)
            self.skeletons = self.skeletons.below(self.best_s)
            self.layouts = self.layouts.below(self.best_s)

    def run(self, budget: Budget) -> FreeFound:
        """Open branches until none can win, the budget is spent, or, without one, work is done."""
        limited = budget.seconds_left() < np.inf
        while self._smallest() < self.best_s:
            if budget.spent() or (not limited and self.opened >= OPENED_WITHOUT_LIMIT):
                break
            self._open_some(budget)
            budget.report(1.0, min(self._smallest(), self.best_s))
        bound = min(self._smallest(), self.left, self.best_s)
        return FreeFound(self.table, self.best_s, bound, self.judged)

    def _smallest(self) -> float:
        return min(self.nodes.smallest, self.skeletons.smallest, self.layouts.smallest)

    def _open_some(self, budget: Budget) -> None:
        """Open what is deepest: a better answer, found early, leaves fewer branches to open.

        Layouts wait in turns, or nothing else would be opened while there are any.
        """
        self.turn += 1
        fewest = min(self.nodes.smallest, self.skeletons.smallest)
        if self.layouts.smallest < fewest or (self.turn % TURNS == 0 and len(self.layouts.bound)):
            self._open_layouts(budget)
        elif len(self.skeletons.bound):
            batch, self.skeletons = self.skeletons.split(SKELETONS_AT_ONCE)
            self.opened += 1
            self._open_skeletons(batch.below(self.best_s))
        else:
            batch, self.nodes = self.nodes.split(self.nodes_at_once)
            self.nodes_at_once = min(2 * self.nodes_at_once, MOST_NODES)
            self.opened += 1
            self._open_nodes(batch.below(self.best_s))

    def _open_layouts(self, budget: Budget) -> None:
        """Split the fastest layouts of some skeletons: they may settle the others of theirs."""
        order = np.argsort(self.layouts.bound, kind="stable")[: 4 * LAYOUTS_AT_ONCE]
        _, first = np.unique(self.layouts.family[order], return_index=True)
        chosen = order[np.sort(first)][:LAYOUTS_AT_ONCE]
        batch, rest = self.layouts.take(chosen), np.ones(len(self.layouts.bound), dtype=bool)
        rest[chosen] = False
        self.layouts = self.layouts.take(rest)
        for i, row in enumerate(self._rows(batch.table)):
            one = batch.take(np.array([i]))
            if one.smallest >= self.best_s:
                continue
            if budget.spent():
                self.layouts = self.layouts.joined(one)
            else:
                self._split(row, one, budget)

    def _open_nodes(self, batch: Pool) -> None:
        table = skeletons(self.space, self.sieve, batch.table).table
        table = table.take(may_split(self.space.traits, table))
        table = table.take(_by_shape(table))
        for part in (table.take(rows) for rows in _parts(np.arange(len(table)))):
            bound = self._bound(*self._leanest(part))
            self.skeletons = self.skeletons.joined(self._pool(part, bound).below(self.best_s))

    def _open_skeletons(self, batch: Pool) -> None:
        """Bound every recomputation and offload of skeletons."""
        table = batch.table
        if not len(table):
            return
        plain, owner = policies(self.space, table.take(_by_shape(table)))
        family = owner + self.families
        self.families += len(table)
        wins = self._may_win(plain)
        plain, family = plain.take(wins), family[wins]
        for fraction in self.space.traits.offload_fractions:
            some = plain.replaced(offload_optimizer=np.full(len(plain), fraction))
            rows = np.flatnonzero(self._legal(some))
            for part in _parts(rows):
                bound = self._bound(*self._costs(some.take(part)))
                waiting = Pool(some.take(part), bound, family[part])
                self.layouts = self.layouts.joined(waiting.below(self.best_s))

    def _may_win(self, table: LayoutTable) -> BoolColumn:
        """Rows that are faster than the best if no rank ever waits, whatever is offloaded."""
        parts = [table.take(rows) for rows in _parts(np.arange(len(table)))]
        bounds = [steady_seconds(self.job, *self._costs(part)) for part in parts]
        return np.asarray(with_overhead(self.machine, np.concatenate(bounds)) < self.best_s)

    def _legal(self, table: LayoutTable) -> BoolColumn:
        broken = [rule.broken(self.job, table) for rule in self.rules]
        return np.asarray(~np.any(broken, axis=0))

    def _split(self, row: Splittable, one: Pool, budget: Budget) -> None:
        """Find the best split of one layout; drop those that only take longer."""
        found = best_split(row, self.paths, self.best_s, budget)
        self._keep(found, row)
        bound = max(one.smallest, found.lower_bound_s)
        if bound < self.best_s:
            self.left = min(self.left, bound)
            return
        siblings = self.layouts.family == one.family[0]
        if siblings.any() and not found.memory_decides:
            longer = siblings & takes_longer(self.layouts.table, one.table)
            self.layouts = self.layouts.take(~longer)

    def _costs(self, table: LayoutTable) -> tuple[Priced, BlockCosts]:
        priced = price(self.job, self.machine, self.space.traits, table)
        return priced, block_costs(self.job, self.machine, self.space.traits, priced)

    def _bound(self, priced: Priced, costs: BlockCosts) -> FloatColumn:
        """Bound of every row; infinite where no split fits that is faster than the best."""
        limits = Limits(self.memory_bytes, without_overhead(self.machine, self.best_s))
        return split_bound(self.job, self.machine, self.space.traits, priced, costs, limits=limits)

    def _leanest(self, table: LayoutTable) -> tuple[Priced, BlockCosts]:
        """The least seconds and bytes of skeletons, whatever they recompute and offload."""
        most = max(self.space.traits.offload_fractions)
        priced, costs = self._costs(table.replaced(offload_optimizer=np.full(len(table), most)))
        return priced, replace(
            costs,
            offload=np.zeros_like(costs.offload),
            kept_bytes=np.zeros_like(costs.kept_bytes),
            input_bytes=np.zeros_like(costs.input_bytes),
        )

    def _rows(self, table: LayoutTable) -> list[Splittable]:
        traits = self.space.traits
        return splittables(self.job, self.machine, traits, table, self.memory_bytes)

    def _pool(self, table: LayoutTable, bound: FloatColumn) -> Pool:
        return Pool(table, bound, np.zeros(len(bound), dtype=np.int64))


def takes_longer(table: LayoutTable, one: LayoutTable) -> BoolColumn:
    """Rows that recompute and offload at least what `one` does, all else equal.

    Source: derived; of equal splits such a row is never faster.
    """
    modules, number = int(one.recompute_modules[0]), int(one.recompute_num_layers[0])
    uniform = table.recompute_method == UNIFORM
    if int(one.recompute[0]) == FULL:
        whole = int(one.recompute_method[0]) == UNIFORM
        more = uniform | ((table.recompute_num_layers >= number) & (not whole))
        more = (table.recompute == FULL) & more
    elif int(one.recompute[0]) == SELECTIVE:
        more = (table.recompute == SELECTIVE) & ((table.recompute_modules & modules) == modules)
    else:
        more = np.ones(len(table), dtype=bool)
    return np.asarray(more & (table.offload_optimizer >= one.offload_optimizer[0]))


def _by_shape(table: LayoutTable) -> IntColumn:
    """Rows of one pipeline shape side by side."""
    return np.lexsort((table.dp * table.micro_batch_size, table.vpp, table.pp, table.schedule))


def _parts(rows: IntColumn) -> list[IntColumn]:
    return [rows[start : start + CHUNK_ROWS] for start in range(0, len(rows), CHUNK_ROWS)]
