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
from dataclasses import replace

import numpy as np

from trainplan.costmodel.layouts.rules import Rule
from trainplan.costmodel.layouts.table import BoolColumn, IntColumn, LayoutTable
from trainplan.costmodel.machine.constants import Machine
from trainplan.costmodel.spec.job import Job
from trainplan.costmodel.step.estimate import Priced
from trainplan.costmodel.step.node_bound import floor_seconds
from trainplan.planner.search.memory_bounds import (
    KNOWN_COLUMNS,
    LeanSieve,
    ends,
    leanest_layout,
    most_offload,
    policies_of,
)
from trainplan.planner.search.objective import Objective, StepTime
from trainplan.planner.search.pool import Pool
from trainplan.planner.search.result import Found, Limits
from trainplan.planner.search.tasks import (
    FEWEST_ROWS,
    Asked,
    BoolMatrix,
    PriceClasses,
    PricePolicies,
    PriceSkeletons,
    Simulate,
)
from trainplan.planner.space.choices import MEMORY
from trainplan.planner.space.grid import Sieve, Space, nodes, skeletons
from trainplan.planner.space.uneven import may_split
from trainplan.planner.work.budget import Budget, Unlimited
from trainplan.planner.work.partition import Dealer
from trainplan.planner.work.workers import ALONE, Workers

NODES_AT_ONCE, MOST_NODES = 256, 4096
CLASSES_AT_ONCE, MOST_CLASSES = 128, 512
"""Of each opened first, and at most: twice as many each time, for pricing few rows costs much."""
LEANEST = 64
"""Skeletons kept for when nothing fits or time runs out."""
SKELETONS_AT_ONCE = 1024
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
        workers: Workers = ALONE,
        thorough: bool = False,
    ) -> None:
        self.job, self.machine, self.limits = job, machine, limits
        self.objective = objective or StepTime()
        self.workers, self.dealer = workers, Dealer(workers.parts)
        self.space = Space(job)
        self.asked = Asked(job, machine, self.space.traits, self.objective, limits.memory_bytes)
        self.rules, self.thorough = rules, thorough
        lean = LeanSieve(self.space, machine, rules, limits.memory_bytes)
        self.sieve = Sieve(job, rules) if thorough else lean
        self.policy_rules = [rule for rule in rules if not rule.columns <= KNOWN_COLUMNS]
        roots = nodes(self.space, self.sieve)
        traits = self.space.traits
        seconds = floor_seconds(job, machine, traits, roots.table, workers.each)
        self.floor_s = float(seconds.min(initial=np.inf))
        floor = self.objective.floor(roots.table, seconds)
        self.nodes = Pool(roots.table, floor, self.space.families(roots.table))
        # smallest first: what is not opened then has no smaller bound, which is the proof
        self.order = np.argsort(floor, kind="stable")
        self.next_node, self.nodes_at_once = 0, NODES_AT_ONCE
        self.classes_at_once = CLASSES_AT_ONCE
        self.skeletons = self.classes = self.layouts = self.nodes.take(self.order[:0])
        self.best: dict[int, tuple[float, LayoutTable]] = {}
        self.priced = self.evaluated = 0
        self.below = np.inf
        self.budget: Budget = Unlimited()
        self.leanest = self.layouts

    def run(self, budget: Budget, below: float = np.inf) -> Found:
        """Open branches until none can win or the budget is spent.

        Only answers whose objective is less than `below` are looked for. Run again, it goes on.
        """
        self.below, self.budget = below, budget
        total, complete = max(1, len(self.nodes.bound)), True
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
            again = Search(*asked, workers=self.workers, thorough=True)
            return again.run(budget)  # tells of every layout why
        ranked = sorted(self.best.values(), key=lambda pair: pair[0])[: self.limits.top]
        incumbent = ranked[0][0] if ranked else np.inf
        return Found(
            finalists=LayoutTable.concat([row for _, row in ranked]) if ranked else None,
            lower_bound_s=min(self._smallest(), incumbent),
            relaxed_bound_s=self.nodes.smallest,
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

    def settled(self) -> bool:
        """Is the best answer proved, and one of the answers a pipeline that may be split freely?"""
        values = [value for value, _ in self.best.values()]
        proved = min(values, default=np.inf) <= self._smallest()
        traits = self.space.traits
        return proved and any(may_split(traits, row)[0] for _, row in self.best.values())

    def _node_bound(self) -> float:
        """Bound of the next node, smallest of all unopened ones."""
        left = self.nodes.bound[self.order[self.next_node : self.next_node + 1]]
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
        """Of equal bounds what is nearest to an answer goes first: an answer drops branches."""
        smallest = self._smallest()
        if self.layouts.smallest == smallest:
            batch, self.layouts = self.layouts.split(SIMULATED_AT_ONCE)
            self._simulate(batch)
        elif self.classes.smallest == smallest:
            batch, self.classes = self.classes.split(self.classes_at_once)
            self.classes_at_once = min(2 * self.classes_at_once, MOST_CLASSES)
            self._open_classes(batch)
        elif self.skeletons.smallest == smallest:
            batch, self.skeletons = self.skeletons.split(SKELETONS_AT_ONCE)
            self.classes = self.classes.joined(self._classes(batch))
        else:
            end = min(self.next_node + self.nodes_at_once, len(self.nodes.bound))
            self.nodes_at_once = min(2 * self.nodes_at_once, MOST_NODES)
            batch = self.nodes.take(self.order[self.next_node : end])
            self.next_node = end
            self._open_nodes(batch.below(self._threshold()))

    def _open_nodes(self, batch: Pool) -> None:
        """Price the skeletons below nodes; those that fit as they are need no policy."""
        rows = skeletons(self.space, self.sieve, batch.table)
        table, fits = rows.table, np.zeros(len(rows), dtype=bool)
        bound, least = np.zeros((2, len(rows)))
        most = most_offload(self.space, self.policy_rules, table)
        parts = self.dealer.dealt(table, FEWEST_ROWS)
        tasks = [PriceSkeletons(self.asked, table.take(part), most[part]) for part in parts]
        for part, found in zip(parts, self.workers.run(tasks, self.budget), strict=True):
            bound[part], least[part], fits[part] = found.bound, found.least, found.fits
        pool = Pool(table, bound, self.space.families(table))
        self.priced += len(rows)
        hopeless = least > self.limits.memory_bytes
        self.leanest = self.leanest.joined(replace(pool, bound=least)).split(LEANEST)[0]
        self.sieve.refused[MEMORY] += int(rows.weight[hopeless].sum())
        wins = ~hopeless & (bound < self._threshold())
        plain = fits & self._allowed(table)
        self.layouts = self.layouts.joined(pool.take(wins & plain))
        self.skeletons = self.skeletons.joined(pool.take(wins & ~plain))

    def _open_classes(self, batch: Pool) -> None:
        """Price every recomputation of skeletons, with the least offload that makes it fit."""
        table, owner = policies_of(self.space, batch.table)
        offload, bound = np.zeros((2, len(table)))
        parts, legal = self.dealer.dealt(table, FEWEST_ROWS), self._legal_offloads(table)
        tasks = [
            PricePolicies(self.asked, table.take(part), legal[:, part], self._threshold())
            for part in parts
        ]
        for part, found in zip(parts, self.workers.run(tasks, self.budget), strict=True):
            offload[part], bound[part] = found.offload, found.bound
            self.priced += found.priced
            self.sieve.refused[MEMORY] += found.refused
        pool = Pool(table.replaced(offload_optimizer=offload), bound, batch.family[owner])
        self.layouts = self.layouts.joined(pool.below(self._threshold()))

    def _classes(self, skeletons: Pool) -> Pool:
        """Classes of policies of skeletons that may win; where all is counted, every policy."""
        if self.thorough or not len(skeletons.bound):
            return skeletons
        fast, lean = ends(self.space, skeletons.table)
        times, bound = len(lean) // len(skeletons.bound), np.zeros(len(lean))
        most = np.tile(most_offload(self.space, self.policy_rules, skeletons.table), times)
        parts = self.dealer.dealt(lean, FEWEST_ROWS)
        tasks = [
            PriceClasses(self.asked, fast.take(part), lean.take(part), most[part]) for part in parts
        ]
        for part, found in zip(parts, self.workers.run(tasks, self.budget), strict=True):
            bound[part] = found
        self.priced += 2 * len(lean)
        return Pool(lean, bound, np.tile(skeletons.family, times)).below(self._threshold())

    def _legal_offloads(self, table: LayoutTable) -> BoolMatrix:
        """Which rows may offload each fraction; counts the others. Shape (fraction, row)."""
        size = len(table)
        return np.array(
            [
                self._allowed(
                    table.replaced(offload_optimizer=np.full(size, fraction)),
                    np.ones(size, dtype=np.int64),
                )
                for fraction in self.space.traits.offloading.optimizer_fractions
            ]
        )

    def _simulate(self, batch: Pool) -> None:
        """Run the schedules of layouts; drop their slower siblings."""
        parts = np.array_split(np.arange(len(batch.bound)), self.workers.parts)
        tasks = [Simulate(self.asked, batch.table.take(part)) for part in parts if len(part)]
        seconds = np.concatenate(list(self.workers.run(tasks, self.budget)))
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
            # most cut first: a rank holds least of the model there, so something fits soonest
            first = self.order[np.argsort(-cut[self.order], kind="stable")[:NODES_AT_ONCE]]
            self._open_nodes(self.nodes.take(first))
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
        return self.asked.price(table)

    def _allowed(self, table: LayoutTable, weight: IntColumn | None = None) -> BoolColumn:
        """Which rows break no rule on recomputation and offload; counts the others if weighed."""
        allowed = np.ones(len(table), dtype=bool)
        for rule in self.policy_rules:
            broken = rule.broken(self.job, table) & allowed
            if weight is not None and broken.any():
                self.sieve.refused[rule.name] += int(weight[broken].sum())
            allowed &= ~broken
        return allowed
