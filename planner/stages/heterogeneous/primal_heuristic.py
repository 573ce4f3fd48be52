"""A good answer to begin with, on unlike node groups: few layouts of every node, likely ones first.

Nothing is dropped here: what is looked at is looked at again by the search.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trainplan.costmodel.layouts import FloatColumn, IntColumn, LayoutTable, Rule
from trainplan.costmodel.layouts.table import FULL, UNIFORM
from trainplan.planner.space.grid import RuleFilter, memory_policies, skeletons
from trainplan.planner.space.offload import with_least_offload
from trainplan.planner.space.policies import names_modules, recompute_allows_any_split
from trainplan.planner.stages.heterogeneous.bounds import estimated_seconds, steady_bound
from trainplan.planner.stages.heterogeneous.splits import HeterogeneousSplits
from trainplan.planner.stages.heterogeneous.windows import SplitLimits, window_bound
from trainplan.planner.tree.memory_bounds import class_extremes
from trainplan.planner.tree.pool import first_of_each
from trainplan.planner.work import Budget
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
class Estimated:
    """One layout and about how long a step takes."""

    seconds: float
    order_index: int
    """Order of the groups."""
    table: LayoutTable

    @property
    def degrees(self) -> tuple[int, ...]:
        """What tells it from others that are tried beside it."""
        names = ("tp", "cp", "pp", "vpp", "ep")
        return tuple(int(getattr(self.table, name)[0]) for name in names)


class PrimalHeuristic:
    """One run; `run` leaves what it finds with the splits."""

    def __init__(
        self,
        splits: HeterogeneousSplits,
        rules: Sequence[Rule],
        rule_filter: RuleFilter,
        orders: Sequence[Sequence[int]],
    ) -> None:
        self.splits, self.rules, self.rule_filter, self.orders = splits, rules, rule_filter, orders
        self.seen: list[Estimated] = []

    def run(self, nodes: LayoutTable, budget: Budget) -> None:
        """Look at nodes in their order, then at every policy of those that looked best."""
        left = budget.seconds_left()
        self.budget, self.reserve = budget, left * (1 - SHARE) if np.isfinite(left) else 0.0
        start, size, nodes = 0, FIRST_NODES, nodes.take(self._promising(nodes))
        while start < len(nodes) and not self._out_of_time:
            self._batch(
                self._few_stages(nodes.take(np.arange(start, min(start + size, len(nodes)))))
            )
            start, size = start + size, 2 * size
        for one in sorted(self.seen, key=lambda one: one.seconds)[:LEADERS]:
            if one.seconds < self.splits.incumbent_s and not self._out_of_time:
                self._refine(one.table, one.order_index)

    def _promising(self, nodes: LayoutTable) -> IntColumn:
        """Nodes by what they take with no layer recomputed or all, as far as time goes.

        The best one of each tp, cp and pp comes before others.
        """
        estimates, none = np.full(len(nodes), np.inf), np.zeros(len(nodes), dtype=np.int64)
        plain = nodes.replaced(zero_stage=none + max(self.splits.space.traits.sharding.zero_stages))
        full = plain.replaced(
            recompute=none + FULL, recompute_method=none + UNIFORM, recompute_num_layers=none + 1
        )
        for start in range(0, len(nodes), NODES_SORTED):
            some = np.arange(start, min(start + NODES_SORTED, len(nodes)))
            if start and self.budget.seconds_left() <= self.reserve:
                break
            both = [table.take(some) for table in (plain, full)]
            each = [self._estimates(table, order) for table in both for order in self.orders]
            estimates[some] = np.min(each, axis=0)
        first = _best_of_each(nodes, estimates)
        rest = np.argsort(estimates, kind="stable")
        return np.concatenate([first, rest[~np.isin(rest, first)]])

    @property
    def _out_of_time(self) -> bool:
        """Has it taken its share of the time, and found something?"""
        return bool(self.splits.found) and self.budget.seconds_left() <= self.reserve

    def _few_stages(self, nodes: LayoutTable) -> LayoutTable:
        """The skeletons of nodes with the fewest virtual stages."""
        table = skeletons(self.splits.space, self.rule_filter, nodes).table
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
        for order_index, order in enumerate(self.orders):
            fast = (
                steady_bound(priced, order, priced.recomputed_share(np.inf))
                < self.splits.incumbent_s
            )
            if fast.any() and not self._out_of_time:
                both = LayoutTable.concat(class_extremes(self.splits.space, table.take(fast)))
                found += self._best_estimated(self._with_offload(both), order_index, RUNS)
        self._run(found, RUNS)

    def _with_offload(self, table: LayoutTable) -> LayoutTable:
        """Legal rows without offload and with most of it."""
        ranges = self.splits.ranges
        return self._legal(with_least_offload(table, {ranges[0]: None, ranges[-1]: None}))

    def _legal(self, table: LayoutTable) -> LayoutTable:
        for rule in self.rules:
            table = table.take(~rule.broken(self.splits.job, table))
        table = table.take(names_modules(table))
        return table.take(recompute_allows_any_split(self.splits.space.traits, table))

    def _best_estimated(self, table: LayoutTable, order_index: int, most: int) -> list[Estimated]:
        """The layouts that look fastest, one of each tp, cp, pp and vpp."""
        parts = [self._estimates(part, self.orders[order_index]) for part in parts_of(table)]
        estimates = np.concatenate([np.zeros(0), *parts])
        rows = np.flatnonzero(estimates < self.splits.incumbent_s)
        first = rows[_best_of_each(table.take(rows), estimates[rows])][:most]
        return [
            Estimated(float(estimates[row]), order_index, table.take(np.array([row])))
            for row in first
        ]

    def _run(self, found: list[Estimated], most: int) -> None:
        """Run the schedules of the likeliest of some layouts, a few more where they do not fit."""
        estimated = sorted(found, key=lambda one: one.seconds)
        tried = {one.degrees: one for one in estimated[::-1]}
        for one in sorted(tried.values(), key=lambda one: one.seconds)[: 2 * most]:
            if most and one.seconds < self.splits.incumbent_s and not self._out_of_time:
                self.seen.append(one)
                most -= self.splits.try_balanced(one.table, self.orders[one.order_index])

    def _estimates(self, table: LayoutTable, order: Sequence[int]) -> FloatColumn:
        """About the seconds of layouts that may fit; infinite for others."""
        result = np.full(len(table), np.inf)
        if not len(table):
            return result
        incumbent_s, priced = self.splits.incumbent_s, self.splits.priced(table)
        steady = steady_bound(priced, order, priced.recomputed_share(incumbent_s))
        rows = np.flatnonzero(steady < incumbent_s)
        if len(rows):
            priced = self.splits.priced(table.take(rows))
            stages = priced.table.pp * priced.table.vpp
            recomputed = priced.recomputed_share_of(
                np.ceil(self.splits.job.model.num_hidden_layers / stages)
            )
            split_limits = SplitLimits(self.splits.margin, incumbent_s)
            window = window_bound(priced, order, recomputed, split_limits, updates=True)
            estimated = estimated_seconds(priced, order, recomputed)
            result[rows] = np.maximum(window, np.maximum(estimated, steady[rows]))
        return result

    def _refine(self, table: LayoutTable, order_index: int) -> None:
        """Every policy of a leader, and every number of virtual stages."""
        names = ("recompute", "recompute_modules", "recompute_method", "recompute_num_layers")
        none = np.zeros(len(table), dtype=np.int64)
        plain = table.replaced(**dict.fromkeys(names, none), offload_optimizer=np.zeros(len(table)))
        node = plain.replaced(vpp=none + 1, schedule=none, zero_stage=none)
        every, _ = memory_policies(
            self.splits.space, skeletons(self.splits.space, self.rule_filter, node).table
        )
        every = with_least_offload(every, self.splits.ranges)
        self._run(self._best_estimated(self._legal(every), order_index, LAST_RUNS), LAST_RUNS)


def _best_of_each(table: LayoutTable, value: FloatColumn) -> IntColumn:
    """The row with the smallest value of each tp, cp, pp and vpp, smallest first."""
    order = np.argsort(value, kind="stable")
    return order[first_of_each(table.take(order), ("tp", "cp", "pp", "vpp"))]
