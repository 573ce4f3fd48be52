"""Layouts whose pipeline ranks live in node groups: the search of clusters with unlike groups.

    node       degrees with whole pipeline ranks in every group; bounded by `throughput_bound`
    skeleton   with stages and ZeRO, under every order of groups; bounded by `steady_bound`
    class      of policies; bounded by `window_bound`, then by `path_bound`
    layout     bounded by the same
    split      layers of every stage: a master problem and a simulation, as in `solve.best_split`

Best first, as in `planner.tree`; nothing is dropped but what a bound shows to be no faster.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np

from trainplan.costmodel.axes.pp import stages_hold_layers
from trainplan.costmodel.layouts import LayoutTable, Rule
from trainplan.costmodel.machine import Machine
from trainplan.costmodel.schedules.timeline.lower_bounds import EQUALS
from trainplan.costmodel.spec import Job
from trainplan.planner.space import Space
from trainplan.planner.space.grid import nodes, skeletons
from trainplan.planner.space.offload import with_least_offload
from trainplan.planner.space.policies import recompute_allows_any_split
from trainplan.planner.stages.heterogeneous.bounds import steady_bound, throughput_bound
from trainplan.planner.stages.heterogeneous.classes import (
    BoundingContext,
    along_paths,
    by_order,
    classes_in_groups,
)
from trainplan.planner.stages.heterogeneous.primal_heuristic import PrimalHeuristic
from trainplan.planner.stages.heterogeneous.splits import HeterogeneousSplits
from trainplan.planner.stages.heterogeneous.windows import path_bound, window_bound
from trainplan.planner.tree import Pool
from trainplan.planner.tree.memory_bounds import MemoryFilter, policies_of
from trainplan.planner.work import Budget
from trainplan.planner.work.partition import parts_of

NODES_AT_ONCE, SKELETONS_AT_ONCE, CLASSES_AT_ONCE, EXPANDED_AT_ONCE = 256, 512, 128, 64
TRIED = 1
"""Layouts of a batch that run at once: a better answer leaves fewer branches. Source: assumed."""
MOST_STEPS, WITH_LIMIT = 80, 1 << 30
"""Batches opened without and with a time limit. Source: assumed; some seconds for 64 GPUs."""
LARGEST = 4
"""Groups whose orders are all tried; of more only the order of the file and its reverse."""


@dataclass(frozen=True, slots=True)
class HeterogeneousResult:
    """What is known when the search ends."""

    layouts: tuple[tuple[float, LayoutTable], ...]
    """Layouts faster than the best known before, with their step times, fastest first."""
    lower_bound_s: float
    """No layout of whole ranks in groups is faster."""
    num_simulated: int
    """Splits whose schedule was run."""
    complete: bool


def orders_of(groups: int) -> tuple[tuple[int, ...], ...]:
    """The orders in which node groups may follow one another in a pipeline."""
    given = tuple(range(groups))
    return tuple(permutations(given)) if groups <= LARGEST else (given, given[::-1])


class HeterogeneousSearch:
    """One run; `run` returns what it found."""

    def __init__(
        self, job: Job, machine: Machine, rules: Sequence[Rule], margin: float, incumbent_s: float
    ) -> None:
        self.job, self.machine, self.rules = job, machine, rules
        self.grid_rules = [rule for rule in rules if "stages" not in rule.columns]
        self.space, self.left = Space(job), np.inf
        self.splits = HeterogeneousSplits(self.space, machine, rules, margin, incumbent_s)
        self.orders = orders_of(len(job.cluster.groups))
        most = max(one.memory_bytes for one in machine.groups) * (1 - margin)
        self.rule_filter = MemoryFilter(self.space, machine, rules, most)
        self.nodes = self._roots()
        self.skeletons = self.classes = self.closer = self.layouts = self.nodes.take(np.arange(0))

    @property
    def incumbent_s(self) -> float:
        """Step time to beat."""
        return self.splits.incumbent_s

    def run(self, budget: Budget, top: int) -> HeterogeneousResult:
        """Open layouts until none can win or the budget is spent."""
        complete, self.budget = True, budget
        PrimalHeuristic(self.splits, self.grid_rules, self.rule_filter, self.orders).run(
            self.nodes.table, budget
        )
        if not self._context.out_of_time:
            self.splits.polish(budget)
        steps = MOST_STEPS if np.isinf(budget.seconds_left()) else WITH_LIMIT
        while steps and self._smallest() < self.incumbent_s:
            if budget.spent():
                complete = False
                break
            self._step()
            steps -= 1
            budget.report(0.0, self._smallest())
        found = self.splits.found
        ranked = sorted(found.values(), key=lambda pair: pair[0])[:top]
        bound = min(self._smallest(), self.left, self.incumbent_s)
        return HeterogeneousResult(tuple(ranked), bound, self.splits.num_simulated, complete)

    def _step(self) -> None:
        """Open some of the pool with the smallest bound."""
        smallest = self._smallest()
        if self.layouts.smallest == smallest:
            batch, self.layouts = self.layouts.pop_smallest(1)
            self._split(batch)
        elif self.closer.smallest == smallest:
            batch, self.closer = self.closer.pop_smallest(EXPANDED_AT_ONCE)
            self._expand(batch.prune(self.incumbent_s))
        elif self.classes.smallest == smallest:
            batch, self.classes = self.classes.pop_smallest(CLASSES_AT_ONCE)
            some = by_order(along_paths, self._context, batch, self.orders)
            self.closer = self.closer.joined(some)
        elif self.skeletons.smallest == smallest:
            batch, self.skeletons = self.skeletons.pop_smallest(SKELETONS_AT_ONCE)
            some = by_order(classes_in_groups, self._context, batch, self.orders)
            self.classes = self.classes.joined(some)
        else:
            batch, self.nodes = self.nodes.pop_smallest(NODES_AT_ONCE)
            self._staged(batch.prune(self.incumbent_s))

    def _smallest(self) -> float:
        pools = self.nodes, self.skeletons, self.classes, self.closer, self.layouts
        return min(pool.smallest for pool in pools)

    def _roots(self) -> Pool:
        """Nodes with whole ranks in every group, the fastest at most first."""
        table = nodes(self.space, self.rule_filter).table
        gpus = table.tp * table.cp * table.dp
        whole = [group.num_gpus % gpus == 0 for group in self.job.cluster.groups]
        table = table.take(np.all(whole, axis=0) & ~stages_hold_layers.broken(self.job, table))
        bound = throughput_bound(self.splits.priced(table)) if len(table) else np.zeros(0)
        return Pool.of(table, bound).pop_smallest(len(table))[0]

    @property
    def _context(self) -> BoundingContext:
        splits = self.splits
        return BoundingContext(
            self.space, self.rules, splits.priced, splits.margin, self.incumbent_s, self.budget
        )

    def _staged(self, batch: Pool) -> None:
        """Skeletons of nodes, under every order; `branch` is the order."""
        parts = [self.skeletons]
        for some in parts_of(skeletons(self.space, self.rule_filter, batch.table).table):
            priced = self.splits.priced(some)
            for order_index, order in enumerate(self.orders):
                bound = steady_bound(priced, order, priced.recomputed_share(np.inf))
                parts.append(
                    Pool(some, bound, np.full(len(some), order_index)).prune(self.incumbent_s)
                )
        self.skeletons = Pool.concat(parts)

    def _expand(self, batch: Pool) -> None:
        """Every recomputation and offload of skeletons that may still win."""
        for order_index in np.unique(batch.branch).tolist():
            own = batch.take(batch.branch == order_index)
            plain, _ = policies_of(self.space, own.table)
            every = with_least_offload(plain, self.splits.ranges)
            for rule in self.grid_rules:
                every = every.take(~rule.broken(self.job, every))
            every = every.take(recompute_allows_any_split(self.space.traits, every))
            for some in parts_of(every):
                if self._context.out_of_time:
                    self.left = min(self.left, own.smallest)
                    break
                size = len(some)
                pool = Pool(some, np.full(size, own.smallest), np.full(size, order_index))
                closer = self._closer(pool, order_index)
                self.splits.try_balanced(
                    closer.pop_smallest(TRIED)[0].table, self.orders[order_index]
                )
                self.layouts = self.layouts.joined(closer)

    def _closer(self, pool: Pool, order_index: int) -> Pool:
        """Layouts that may still win, with the larger of all bounds."""
        order = self.orders[order_index]
        for bounded in (window_bound, path_bound):
            priced = self.splits.priced(pool.table)
            recomputed, split_limits = (
                priced.recomputed_share(self.incumbent_s),
                self._context.split_limits,
            )
            bound = np.maximum(pool.bound, steady_bound(priced, order, recomputed))
            bound = np.maximum(
                bound, bounded(priced, order, recomputed, split_limits, updates=True)
            )
            pool = Pool(pool.table, bound, pool.branch).prune(self.incumbent_s)
            if not len(pool.bound):
                break
        return pool

    def _split(self, batch: Pool) -> None:
        """The best split of one layout."""
        order = self.orders[int(batch.branch[0])]
        bound = self.splits.split(batch.table, order, self.budget)
        bound = max(float(batch.bound[0]), bound)
        if bound * EQUALS < self.incumbent_s:
            self.left = min(self.left, bound)
