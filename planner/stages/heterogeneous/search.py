"""Layouts whose pipeline ranks live in node groups: the search of clusters with unlike groups.

    node       degrees with whole pipeline ranks in every group; bounded by `throughput_bound`
    skeleton   with stages and ZeRO, under every order of groups; bounded by `steady_bound`
    class      of policies; bounded by `window_bound`, then by `path_bound`
    layout     bounded by the same
    split      layers of every stage: a master problem and a judge, as in `stages.solve.best_split`

Best first, as in `planner.search.tree`; nothing is dropped but what a bound shows to be no faster.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np

from trainplan.costmodel.axes.pp import stages_hold_layers
from trainplan.costmodel.layouts.rules import Rule
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.machine.constants import Machine
from trainplan.costmodel.schedules.timeline.lower_bounds import EQUALS
from trainplan.costmodel.spec.job import Job
from trainplan.planner.search.memory_bounds import LeanSieve, policies_of
from trainplan.planner.search.pool import Pool
from trainplan.planner.space.grid import Space, nodes, skeletons
from trainplan.planner.space.policies import with_offload
from trainplan.planner.space.uneven import any_split
from trainplan.planner.stages.heterogeneous.bounds import steady_bound, throughput_bound
from trainplan.planner.stages.heterogeneous.classes import (
    Asked,
    along_paths,
    by_order,
    classes_in_groups,
)
from trainplan.planner.stages.heterogeneous.primal_heuristic import Dive
from trainplan.planner.stages.heterogeneous.splits import Splits
from trainplan.planner.stages.heterogeneous.windows import path_bound, window_bound
from trainplan.planner.work.budget import Budget
from trainplan.planner.work.partition import parts_of

NODES_AT_ONCE, SKELETONS_AT_ONCE, CLASSES_AT_ONCE, OPENED_AT_ONCE = 256, 512, 128, 64
TRIED = 1
"""Layouts of a batch that run at once: a better answer leaves fewer branches. Source: assumed."""
MOST_STEPS, WITH_LIMIT = 80, 1 << 30
"""Batches opened without and with a time limit. Source: assumed; some seconds for 64 GPUs."""
LARGEST = 4
"""Groups whose orders are all tried; of more only the order of the file and its reverse."""


@dataclass(frozen=True, slots=True)
class MixedFound:
    """What is known when the search ends."""

    layouts: tuple[tuple[float, LayoutTable], ...]
    """Layouts faster than the best known before, with their step times, fastest first."""
    lower_bound_s: float
    """No layout of whole ranks in groups is faster."""
    judged: int
    """Splits whose schedule was run."""
    complete: bool


def orders_of(groups: int) -> tuple[tuple[int, ...], ...]:
    """The orders in which node groups may follow one another in a pipeline."""
    given = tuple(range(groups))
    return tuple(permutations(given)) if groups <= LARGEST else (given, given[::-1])


class MixedSearch:
    """One run; `run` returns what it found."""

    def __init__(
        self, job: Job, machine: Machine, rules: Sequence[Rule], margin: float, best_s: float
    ) -> None:
        self.job, self.machine, self.rules = job, machine, rules
        self.grid_rules = [rule for rule in rules if "stages" not in rule.columns]
        self.space, self.left = Space(job), np.inf
        self.splits = Splits(self.space, machine, rules, margin, best_s)
        self.orders = orders_of(len(job.cluster.groups))
        most = max(one.memory_bytes for one in machine.groups) * (1 - margin)
        self.sieve = LeanSieve(self.space, machine, rules, most)
        self.nodes = self._roots()
        self.skeletons = self.classes = self.closer = self.layouts = self.nodes.take(np.arange(0))

    @property
    def best_s(self) -> float:
        """Step time to beat."""
        return self.splits.best_s

    def run(self, budget: Budget, top: int) -> MixedFound:
        """Open layouts until none can win or the budget is spent."""
        complete, self.budget = True, budget
        Dive(self.splits, self.grid_rules, self.sieve, self.orders).run(self.nodes.table, budget)
        if not self._asked.late:
            self.splits.polish(budget)
        steps = MOST_STEPS if np.isinf(budget.seconds_left()) else WITH_LIMIT
        while steps and self._smallest() < self.best_s:
            if budget.spent():
                complete = False
                break
            self._step()
            steps -= 1
            budget.report(0.0, self._smallest())
        found = self.splits.found
        ranked = sorted(found.values(), key=lambda pair: pair[0])[:top]
        bound = min(self._smallest(), self.left, self.best_s)
        return MixedFound(tuple(ranked), bound, self.splits.judged, complete)

    def _step(self) -> None:
        """Open some of the pool with the smallest bound."""
        smallest = self._smallest()
        if self.layouts.smallest == smallest:
            batch, self.layouts = self.layouts.split(1)
            self._split(batch)
        elif self.closer.smallest == smallest:
            batch, self.closer = self.closer.split(OPENED_AT_ONCE)
            self._open(batch.below(self.best_s))
        elif self.classes.smallest == smallest:
            batch, self.classes = self.classes.split(CLASSES_AT_ONCE)
            some = by_order(along_paths, self._asked, batch, self.orders)
            self.closer = self.closer.joined(some)
        elif self.skeletons.smallest == smallest:
            batch, self.skeletons = self.skeletons.split(SKELETONS_AT_ONCE)
            some = by_order(classes_in_groups, self._asked, batch, self.orders)
            self.classes = self.classes.joined(some)
        else:
            batch, self.nodes = self.nodes.split(NODES_AT_ONCE)
            self._staged(batch.below(self.best_s))

    def _smallest(self) -> float:
        pools = self.nodes, self.skeletons, self.classes, self.closer, self.layouts
        return min(pool.smallest for pool in pools)

    def _roots(self) -> Pool:
        """Nodes with whole ranks in every group, the fastest at most first."""
        table = nodes(self.space, self.sieve).table
        gpus = table.tp * table.cp * table.dp
        whole = [group.num_gpus % gpus == 0 for group in self.job.cluster.groups]
        table = table.take(np.all(whole, axis=0) & ~stages_hold_layers.broken(self.job, table))
        bound = throughput_bound(self.splits.priced(table)) if len(table) else np.zeros(0)
        return Pool.of(table, bound).split(len(table))[0]

    @property
    def _asked(self) -> Asked:
        splits = self.splits
        return Asked(self.space, self.rules, splits.priced, splits.margin, self.best_s, self.budget)

    def _staged(self, batch: Pool) -> None:
        """Skeletons of nodes, under every order; `family` is the order."""
        parts = [self.skeletons]
        for some in parts_of(skeletons(self.space, self.sieve, batch.table).table):
            priced = self.splits.priced(some)
            for family, order in enumerate(self.orders):
                bound = steady_bound(priced, order, priced.again(np.inf))
                parts.append(Pool(some, bound, np.full(len(some), family)).below(self.best_s))
        self.skeletons = Pool.concat(parts)

    def _open(self, batch: Pool) -> None:
        """Every recomputation and offload of skeletons that may still win."""
        for family in np.unique(batch.family).tolist():
            own = batch.take(batch.family == family)
            plain, _ = policies_of(self.space, own.table)
            every = with_offload(plain, self.space.traits.offloading.optimizer_fractions)
            for rule in self.grid_rules:
                every = every.take(~rule.broken(self.job, every))
            every = every.take(any_split(self.space.traits, every))
            for some in parts_of(every):
                if self._asked.late:
                    self.left = min(self.left, own.smallest)
                    break
                size = len(some)
                pool = Pool(some, np.full(size, own.smallest), np.full(size, family))
                closer = self._closer(pool, family)
                self.splits.try_balanced(closer.split(TRIED)[0].table, self.orders[family])
                self.layouts = self.layouts.joined(closer)

    def _closer(self, pool: Pool, family: int) -> Pool:
        """Layouts that may still win, with the larger of all bounds."""
        order = self.orders[family]
        for bounded in (window_bound, path_bound):
            priced = self.splits.priced(pool.table)
            again, below = priced.again(self.best_s), self._asked.below
            bound = np.maximum(pool.bound, steady_bound(priced, order, again))
            bound = np.maximum(bound, bounded(priced, order, again, below, updates=True))
            pool = Pool(pool.table, bound, pool.family).below(self.best_s)
            if not len(pool.bound):
                break
        return pool

    def _split(self, batch: Pool) -> None:
        """The best split of one layout."""
        order = self.orders[int(batch.family[0])]
        bound = self.splits.split(batch.table, order, self.budget)
        bound = max(float(batch.bound[0]), bound)
        if bound * EQUALS < self.best_s:
            self.left = min(self.left, bound)
