"""A good answer to begin with, on unlike node groups: few layouts of every node, likely ones first.

Nothing is dropped here: what is looked at is looked at again by the search.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trainplan.costmodel.layouts.rules import Rule
from trainplan.costmodel.layouts.table import FULL, UNIFORM, FloatColumn, IntColumn, LayoutTable
from trainplan.planner.search.memory_bounds import ends
from trainplan.planner.search.pool import first_of_each
from trainplan.planner.space.grid import Sieve, policies, skeletons
from trainplan.planner.space.policies import with_offload
from trainplan.planner.space.uneven import any_split
from trainplan.planner.stages.heterogeneous.bounds import likely_seconds, steady_bound
from trainplan.planner.stages.heterogeneous.splits import Splits
from trainplan.planner.stages.heterogeneous.windows import Below, window_bound
from trainplan.planner.work.budget import Budget
from trainplan.planner.work.partition import parts_of

NODES_SORTED, FIRST_NODES = 512, 32
"""Nodes sorted together, and looked at first; twice as many each time. Source: as below."""
CHUNKS_TRIED = 2
"""Numbers of virtual stages of one rank that are looked at, the fewest."""
RUNS, LAST_RUNS, LEADERS = 3, 4, 4
"""Layouts on the clock of each batch of nodes, and of all policies of the last leaders.
Source: assumed; they only choose the first answer."""
SHARE = 0.8
"""Of the time left that the beginning may take. Source: assumed."""


@dataclass(frozen=True, slots=True)
class Likely:
    """One layout and about how long a step takes."""

    seconds: float
    family: int
    """Order of the groups."""
    table: LayoutTable

    @property
    def degrees(self) -> tuple[int, ...]:
        """What tells it from others that are tried beside it."""
        names = ("tp", "cp", "pp", "vpp", "ep")
        return tuple(int(getattr(self.table, name)[0]) for name in names)


class Dive:
    """One run; `run` leaves what it finds with the splits."""

    def __init__(
        self, splits: Splits, rules: Sequence[Rule], sieve: Sieve, orders: Sequence[Sequence[int]]
    ) -> None:
        self.splits, self.rules, self.sieve, self.orders = splits, rules, sieve, orders
        self.seen: list[Likely] = []

    def run(self, nodes: LayoutTable, budget: Budget) -> None:
        """Look at nodes in their order, then at every policy of those that looked best."""
        left = budget.seconds_left()
        self.budget, self.reserve = budget, left * (1 - SHARE) if np.isfinite(left) else 0.0
        start, size, nodes = 0, FIRST_NODES, nodes.take(self._promising(nodes))
        while start < len(nodes) and not self._late:
            self._batch(self._few(nodes.take(np.arange(start, min(start + size, len(nodes))))))
            start, size = start + size, 2 * size
        for one in sorted(self.seen, key=lambda one: one.seconds)[:LEADERS]:
            if one.seconds < self.splits.best_s and not self._late:
                self._close(one.table, one.family)

    def _promising(self, nodes: LayoutTable) -> IntColumn:
        """Nodes by what they take with no layer recomputed or all, as far as time goes.

        The best one of each tp, cp and pp comes before others.
        """
        looks, none = np.full(len(nodes), np.inf), np.zeros(len(nodes), dtype=np.int64)
        plain = nodes.replaced(zero_stage=none + max(self.splits.space.traits.sharding.zero_stages))
        full = plain.replaced(
            recompute=none + FULL, recompute_method=none + UNIFORM, recompute_num_layers=none + 1
        )
        for start in range(0, len(nodes), NODES_SORTED):
            some = np.arange(start, min(start + NODES_SORTED, len(nodes)))
            if start and self.budget.seconds_left() <= self.reserve:
                break
            both = [table.take(some) for table in (plain, full)]
            each = [self._looks(table, order) for table in both for order in self.orders]
            looks[some] = np.min(each, axis=0)
        first = _best_of_each(nodes, looks)
        rest = np.argsort(looks, kind="stable")
        return np.concatenate([first, rest[~np.isin(rest, first)]])

    @property
    def _late(self) -> bool:
        """Has it taken its share of the time, and found something?"""
        return bool(self.splits.found) and self.budget.seconds_left() <= self.reserve

    def _few(self, nodes: LayoutTable) -> LayoutTable:
        """The skeletons of nodes with the fewest virtual stages."""
        table = skeletons(self.splits.space, self.sieve, nodes).table
        keep = np.zeros(len(table), dtype=bool)
        for pp in np.unique(table.pp).tolist():
            chunks = np.unique(table.vpp[table.pp == pp])[:CHUNKS_TRIED]
            keep |= (table.pp == pp) & np.isin(table.vpp, chunks)
        return table.take(keep)

    def _batch(self, table: LayoutTable) -> None:
        """Leanest and fastest policies of some skeletons; the likeliest run."""
        if not len(table):
            return
        priced, found = self.splits.priced(table), []
        for family, order in enumerate(self.orders):
            fast = steady_bound(priced, order, priced.again(np.inf)) < self.splits.best_s
            if fast.any() and not self._late:
                both = LayoutTable.concat(ends(self.splits.space, table.take(fast)))
                found += self._likely(self._with_offload(both), family, RUNS)
        self._run(found, RUNS)

    def _with_offload(self, table: LayoutTable) -> LayoutTable:
        """Legal rows without offload and with all of it."""
        fractions = self.splits.space.traits.offloading.optimizer_fractions
        return self._legal(with_offload(table, sorted({min(fractions), max(fractions)})))

    def _legal(self, table: LayoutTable) -> LayoutTable:
        for rule in self.rules:
            table = table.take(~rule.broken(self.splits.job, table))
        return table.take(any_split(self.splits.space.traits, table))

    def _likely(self, table: LayoutTable, family: int, most: int) -> list[Likely]:
        """The layouts that look fastest, one of each tp, cp, pp and vpp."""
        parts = [self._looks(part, self.orders[family]) for part in parts_of(table)]
        looks = np.concatenate([np.zeros(0), *parts])
        rows = np.flatnonzero(looks < self.splits.best_s)
        first = rows[_best_of_each(table.take(rows), looks[rows])][:most]
        return [Likely(float(looks[row]), family, table.take(np.array([row]))) for row in first]

    def _run(self, found: list[Likely], most: int) -> None:
        """Run the schedules of the likeliest of some layouts, a few more where they do not fit."""
        likely = sorted(found, key=lambda one: one.seconds)
        tried = {one.degrees: one for one in likely[::-1]}
        for one in sorted(tried.values(), key=lambda one: one.seconds)[: 2 * most]:
            if most and one.seconds < self.splits.best_s and not self._late:
                self.seen.append(one)
                most -= self.splits.try_balanced(one.table, self.orders[one.family])

    def _looks(self, table: LayoutTable, order: Sequence[int]) -> FloatColumn:
        """About the seconds of layouts that may fit; infinite for others."""
        result = np.full(len(table), np.inf)
        if not len(table):
            return result
        best_s, priced = self.splits.best_s, self.splits.priced(table)
        steady = steady_bound(priced, order, priced.again(best_s))
        rows = np.flatnonzero(steady < best_s)
        if len(rows):
            priced = self.splits.priced(table.take(rows))
            stages = priced.table.pp * priced.table.vpp
            again = priced.again_of(np.ceil(self.splits.job.model.num_hidden_layers / stages))
            below = Below(self.splits.margin, best_s)
            window = window_bound(priced, order, again, below, updates=True)
            likely = likely_seconds(priced, order, again)
            result[rows] = np.maximum(window, np.maximum(likely, steady[rows]))
        return result

    def _close(self, table: LayoutTable, family: int) -> None:
        """Every policy of a leader, and every number of virtual stages."""
        names = ("recompute", "recompute_modules", "recompute_method", "recompute_num_layers")
        none = np.zeros(len(table), dtype=np.int64)
        plain = table.replaced(**dict.fromkeys(names, none), offload_optimizer=np.zeros(len(table)))
        node = plain.replaced(vpp=none + 1, schedule=none, zero_stage=none)
        every, _ = policies(self.splits.space, skeletons(self.splits.space, self.sieve, node).table)
        every = with_offload(every, self.splits.space.traits.offloading.optimizer_fractions)
        self._run(self._likely(self._legal(every), family, LAST_RUNS), LAST_RUNS)


def _best_of_each(table: LayoutTable, value: FloatColumn) -> IntColumn:
    """The row with the smallest value of each tp, cp, pp and vpp, smallest first."""
    order = np.argsort(value, kind="stable")
    return order[first_of_each(table.take(order), ("tp", "cp", "pp", "vpp"))]
