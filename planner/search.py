"""Best-first branch and bound over the grid: the fastest layouts that fit, and a proof.

    node        bounded by `floor_seconds`: no choice below it is faster
    skeleton    bounded by `price` without recomputation and offload: both only add time
    layout      bounded by `price`: a proven lower bound of its simulated step
    finalist    simulated

The branch with the smallest bound is opened next, and none whose bound is not below the slowest
finalist wanted, so nothing that could win is dropped. That each bound holds is a property of the
cost model, tested in tests/properties.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from costmodel.estimate import Priced, price
from costmodel.explicit import step_seconds
from costmodel.floor import floor_seconds
from costmodel.machine import Machine
from costmodel.rules import Rule
from costmodel.spec.job import Job
from costmodel.table import BoolColumn, FloatColumn, IntColumn, LayoutTable
from planner.budget import Budget
from planner.constraints import MEMORY
from planner.found import Found, Limits
from planner.lean import (
    KNOWN_COLUMNS,
    LeanSieve,
    Wanted,
    classes,
    leanest_layout,
    most_offload,
    policies_of,
)
from planner.objectives import Objective, StepTime
from planner.pool import Pool
from planner.space import Sieve, Space, nodes, skeletons

CHUNK_ROWS = 8_192
"""Rows priced at once: columns of this length stay in the processor's cache."""
NODES_AT_ONCE, MOST_NODES = 256, 4096
"""Nodes opened first, and at most: twice as many each time, for pricing few rows costs much."""
LEANEST = 64
"""Skeletons kept for when nothing fits or time runs out."""
SKELETONS_AT_ONCE = 1024
CLASSES_AT_ONCE = 128
SIMULATED_AT_ONCE = 4


class Search:
    """One run of the branch and bound; `run` returns what it found."""

    def __init__(
        self,
        job: Job,
        machine: Machine,
        rules: Sequence[Rule],
        limits: Limits,
        objective: Objective | None = None,
        *,
        thorough: bool = False,
    ) -> None:
        self.job, self.machine, self.limits = job, machine, limits
        self.objective = objective or StepTime()
        self.space = Space(job)
        self.rules, self.thorough = rules, thorough
        lean = LeanSieve(self.space, machine, rules, limits.memory_bytes)
        self.sieve = Sieve(job, rules) if thorough else lean
        self.policy_rules = [rule for rule in rules if not rule.columns <= KNOWN_COLUMNS]
        roots = nodes(self.space, self.sieve)
        seconds = floor_seconds(job, machine, self.space.traits, roots.table)
        self.floor_s = float(seconds.min(initial=np.inf))
        floor = self.objective.floor(roots.table, seconds)
        order = np.argsort(floor, kind="stable")
        self.nodes = Pool(roots.table, floor, self.space.families(roots.table)).take(order)
        self.next_node, self.nodes_at_once = 0, NODES_AT_ONCE
        self.skeletons = self.classes = self.layouts = self.nodes.take(order[:0])
        self.best: dict[int, tuple[float, LayoutTable]] = {}
        self.priced = self.evaluated = 0
        self.below = np.inf
        self.leanest = self.layouts

    def run(self, budget: Budget, below: float = np.inf) -> Found:
        """Open branches until none can win or the budget is spent.

        Only answers whose objective is less than `below` are looked for.
        """
        self.below = below
        relaxed, total = self._node_bound(), max(1, len(self.nodes.bound))
        complete = True
        while self._smallest() < self._threshold():
            if budget.spent():
                complete = False
                break
            self._open_smallest()
            budget.report(self.next_node / total, self._smallest())
        if not complete and not self.best:
            self._dive()
        if complete and not self.best and np.isinf(below) and not self.thorough:
            asked = self.job, self.machine, self.rules, self.limits, self.objective
            return Search(*asked, thorough=True).run(budget)  # tells of every layout why
        ranked = sorted(self.best.values(), key=lambda pair: pair[0])[: self.limits.top]
        incumbent = ranked[0][0] if ranked else np.inf
        return Found(
            finalists=LayoutTable.concat([row for _, row in ranked]) if ranked else None,
            lower_bound_s=min(self._smallest(), incumbent),
            relaxed_bound_s=relaxed,
            floor_s=self.floor_s,
            value=incumbent,
            space=self.space,
            roots=self.nodes,
            refused=dict(self.sieve.refused),
            priced=self.priced,
            evaluated=self.evaluated,
            complete=complete,
            leanest=None if ranked or np.isfinite(below) else self._leanest(),
        )

    def _node_bound(self) -> float:
        """Bound of the next node, smallest of all unopened ones."""
        left = self.nodes.bound[self.next_node : self.next_node + 1]
        return float(left.min(initial=np.inf))

    def _smallest(self) -> float:
        pools = self.skeletons, self.classes, self.layouts
        return min(self._node_bound(), *(pool.smallest for pool in pools))

    def _threshold(self) -> float:
        """Objective a branch must beat to be among the answers."""
        values = sorted(value for value, _ in self.best.values())
        last = values[self.limits.top - 1] if len(values) >= self.limits.top else np.inf
        return min(self.below, last)

    def _open_smallest(self) -> None:
        smallest = self._smallest()
        if self.layouts.smallest == smallest:
            batch, self.layouts = self.layouts.split(SIMULATED_AT_ONCE)
            self._simulate(batch)
        elif self.classes.smallest == smallest:
            batch, self.classes = self.classes.split(CLASSES_AT_ONCE)
            self._open_classes(batch)
        elif self.skeletons.smallest == smallest:
            batch, self.skeletons = self.skeletons.split(SKELETONS_AT_ONCE)
            self.classes = self.classes.joined(self._classes(batch))
        else:
            end = min(self.next_node + self.nodes_at_once, len(self.nodes.bound))
            self.nodes_at_once = min(2 * self.nodes_at_once, MOST_NODES)
            batch = self.nodes.take(np.arange(self.next_node, end))
            self.next_node = end
            self._open_nodes(batch.below(self._threshold()))

    def _open_nodes(self, batch: Pool) -> None:
        """Price the skeletons below nodes; those that fit as they are need no policy."""
        rows = skeletons(self.space, self.sieve, batch.table)
        for start in range(0, len(rows), CHUNK_ROWS):
            part = rows.take(np.arange(start, min(start + CHUNK_ROWS, len(rows))))
            priced = self._price(part.table)
            bound = self.objective.bound(priced)
            pool = Pool(part.table, bound, self.space.families(part.table))
            least = priced.memory.least_used(
                most_offload(self.space, self.policy_rules, part.table)
            )
            hopeless = least > self.limits.memory_bytes
            lean = Pool(part.table, least, pool.family)
            self.leanest = self.leanest.joined(lean.split(LEANEST)[0]).split(LEANEST)[0]
            self.sieve.refused[MEMORY] += int(part.weight[hopeless].sum())
            wins = ~hopeless & (bound < self._threshold())
            plain = priced.memory.used <= self.limits.memory_bytes
            plain &= self._allowed(part.table)
            self.layouts = self.layouts.joined(pool.take(wins & plain))
            self.skeletons = self.skeletons.joined(pool.take(wins & ~plain))

    def _open_classes(self, batch: Pool) -> None:
        """Price every recomputation of skeletons, with the least offload that makes it fit.

        More offload than that only adds time, less does not fit.
        """
        table, owner = policies_of(self.space, batch.table)
        for start in range(0, len(table), CHUNK_ROWS):
            pick = np.arange(start, min(start + CHUNK_ROWS, len(table)))
            plain = self._price(table.take(pick))
            chosen = self._least_offload(plain)
            fits = np.flatnonzero(chosen >= 0)
            without = self.objective.bound(plain)
            fits = fits[without[fits] < self._threshold()]
            rows = plain.table.take(fits).replaced(offload_optimizer=chosen[fits])
            offloads = chosen[fits].any()
            bound = self.objective.bound(self._price(rows)) if offloads else without[fits]
            pool = Pool(rows, bound, batch.family[owner[pick[fits]]])
            self.layouts = self.layouts.joined(pool.below(self._threshold()))

    def _classes(self, skeletons: Pool) -> Pool:
        """Classes of policies of skeletons that may win; where all is counted, every policy."""
        if self.thorough or not len(skeletons.bound):
            return skeletons
        wanted = Wanted(self.limits.memory_bytes, self._threshold(), self.objective.bound)
        most = most_offload(self.space, self.policy_rules, skeletons.table)
        return classes(self.space, self._price, skeletons, most, wanted)

    def _least_offload(self, plain: Priced) -> FloatColumn:
        """Smallest legal offload fraction with which each row fits; -1 where none does.

        Counts what the rules and the memory refuse.
        """
        chosen = np.full(len(plain.table), -1.0)
        for fraction in self.space.traits.offload_fractions:
            rows = plain.table.replaced(offload_optimizer=np.full(len(chosen), fraction))
            legal = self._allowed(rows, np.ones(len(chosen), dtype=np.int64))
            fits = plain.memory.used_with_offload(fraction) <= self.limits.memory_bytes
            self.sieve.refused[MEMORY] += int((legal & ~fits).sum())
            chosen = np.where((chosen < 0) & legal & fits, fraction, chosen)
        return chosen

    def _simulate(self, batch: Pool) -> None:
        """Run the schedules of layouts; drop their slower siblings."""
        seconds = step_seconds(self.job, self.machine, self.space.traits, batch.table)
        self.evaluated += len(seconds)
        for i, value in enumerate(self.objective.value(batch.table, seconds).tolist()):
            name = int(batch.family[i])
            if value < self.best.get(name, (self.below, None))[0]:
                self.best[name] = (value, batch.table.take(np.array([i])))
        times = np.full(len(self.layouts.bound), self._threshold())
        for name in set(batch.family.tolist()) & self.best.keys():
            times[self.layouts.family == name] = self.best[name][0]
        self.layouts = self.layouts.take(self.layouts.bound < times)
        self.skeletons = self.skeletons.below(self._threshold())
        self.classes = self.classes.below(self._threshold())

    def _dive(self) -> None:
        """Find some answer in no time: the fastest layout of the leanest skeletons seen.

        Their branches stay where they are, so the bound of the search still holds.
        """
        refused = self.sieve.refused.copy()
        if self.leanest.smallest > self.limits.memory_bytes and len(self.nodes.bound):
            table = self.nodes.table
            cut = table.tp * table.pp * table.ep * table.etp
            self._open_nodes(self.nodes.take(np.argsort(-cut, kind="stable")[:NODES_AT_ONCE]))
        lean = self.leanest.take(self.leanest.bound <= self.limits.memory_bytes)
        if len(lean.bound) and not len(self.layouts.bound):  # else some are run twice
            self._open_classes(lean)
        batch, self.layouts = self.layouts.split(SIMULATED_AT_ONCE)
        if len(batch.bound):
            self._simulate(batch)
        self.sieve.refused = refused

    def _leanest(self) -> tuple[float, LayoutTable] | None:
        return leanest_layout(self.space, self._price, self._allowed, self.leanest.table)

    def _price(self, table: LayoutTable) -> Priced:
        self.priced += len(table)
        return price(self.job, self.machine, self.space.traits, table)

    def _allowed(self, table: LayoutTable, weight: IntColumn | None = None) -> BoolColumn:
        """Which rows break no rule on recomputation and offload; counts the others if weighed."""
        allowed = np.ones(len(table), dtype=bool)
        for rule in self.policy_rules:
            broken = rule.broken(self.job, table) & allowed
            if weight is not None and broken.any():
                self.sieve.refused[rule.name] += int(weight[broken].sum())
            allowed &= ~broken
        return allowed
