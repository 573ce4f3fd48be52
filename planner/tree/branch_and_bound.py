"""Best-first branch and bound over the grid: the fastest layouts that fit, and a proof.

    node        bounded by `node_bound_seconds`: no choice below it is faster
    skeleton    bounded by `price` without recomputation and offload: both only add time
    layout      bounded by `price`: a proven lower bound of its simulated step
    finalist    simulated

The branch with the smallest bound is opened next, and none whose bound is not below the slowest
finalist wanted, so nothing that could win is dropped. That each bound holds is a property of the
cost model, tested in tests/properties.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from trainplan.costmodel.layouts import BoolColumn, LayoutTable, Rule
from trainplan.costmodel.machine import Machine
from trainplan.costmodel.schedules.timeline.lower_bounds import settled
from trainplan.costmodel.spec import Job
from trainplan.costmodel.step import Priced
from trainplan.costmodel.step.node_bound import node_bound_seconds
from trainplan.planner.space import Space
from trainplan.planner.space.choices import MEMORY
from trainplan.planner.space.grid import Rows, RuleFilter, nodes, skeletons, stagings_of
from trainplan.planner.space.offload import fractions_of, legal_offloads, with_fraction
from trainplan.planner.space.policies import allows_any_split
from trainplan.planner.tree.memory_bounds import (
    KNOWN_COLUMNS,
    MemoryFilter,
    class_extremes,
    least_memory_layout,
    most_offload,
    policies_of,
)
from trainplan.planner.tree.objective import Objective, StepTime
from trainplan.planner.tree.pool import Pool
from trainplan.planner.tree.result import SearchLimits, SearchResult
from trainplan.planner.tree.tasks import (
    FEWEST_ROWS,
    PriceClasses,
    PricePolicies,
    PriceSkeletons,
    PricingContext,
    Simulate,
)
from trainplan.planner.work import ALONE, Budget, Workers
from trainplan.planner.work.budget import Unlimited
from trainplan.planner.work.partition import AffinityPartition

NODES_AT_ONCE, MOST_NODES = 256, 4096
CLASSES_AT_ONCE, MOST_CLASSES = 128, 512
"""Of each opened first, and at most: twice as many each time, for pricing few rows costs much."""
LEAST_MEMORY_SKELETONS = 64
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
        limits: SearchLimits,
        objective: Objective | None = None,
        *,
        workers: Workers = ALONE,
        exhaustive: bool = False,
    ) -> None:
        self.job, self.machine, self.limits = job, machine, limits
        self.objective = objective or StepTime()
        self.workers, self.partition = workers, AffinityPartition(workers.parts)
        self.space = Space(job)
        self.context = PricingContext(
            job, machine, self.space.traits, self.objective, limits.memory_bytes
        )
        self.rules, self.exhaustive = rules, exhaustive
        min_memory = MemoryFilter(self.space, machine, rules, limits.memory_bytes)
        self.rule_filter = RuleFilter(job, rules) if exhaustive else min_memory
        self.policy_rules = [rule for rule in rules if not rule.columns <= KNOWN_COLUMNS]
        self.ranges = fractions_of(self.space.traits, self.policy_rules)
        roots = nodes(self.space, self.rule_filter)
        seconds = node_bound_seconds(self.context.with_table(roots.table), workers.each)
        self.step_bound_s = float(seconds.min(initial=np.inf))
        node_bound = self.objective.node_bound(roots.table, seconds)
        self.nodes = Pool(roots.table, node_bound, self.space.variants(roots.table))
        # smallest first: what is not opened then has no smaller bound, which is the proof
        self.order = np.argsort(node_bound, kind="stable")
        self.next_node, self.nodes_at_once = 0, NODES_AT_ONCE
        self.classes_at_once = CLASSES_AT_ONCE
        self.skeletons = self.classes = self.layouts = self.nodes.take(self.order[:0])
        self.best: dict[int, tuple[float, LayoutTable]] = {}
        self.priced = self.evaluated = 0
        self.cutoff = np.inf
        self.budget: Budget = Unlimited()
        self.least_memory = self.layouts
        self.least_host = np.inf

    def run(self, budget: Budget, cutoff: float = np.inf) -> SearchResult:
        """Open branches until none can win or the budget is spent.

        Only answers whose objective is less than `prune` are looked for. Run again, it goes on.
        """
        self.cutoff, self.budget = cutoff, budget
        total, complete = max(1, len(self.nodes.bound)), True
        while self._smallest() < self._cutoff():
            if budget.spent():
                complete = False
                break
            self._expand_smallest()
            budget.report(self.next_node / total, self._smallest())
        if not complete and not self.best:
            self._primal_heuristic()
        if complete and not self.best and np.isinf(cutoff) and not self.exhaustive:
            context = self.job, self.machine, self.rules, self.limits, self.objective
            again = Search(*context, workers=self.workers, exhaustive=True)
            return again.run(budget)  # tells of every layout why
        ranked = sorted(self.best.values(), key=lambda pair: pair[0])[: self.limits.top]
        incumbent = ranked[0][0] if ranked else np.inf
        return SearchResult(
            finalists=LayoutTable.concat([row for _, row in ranked]) if ranked else None,
            lower_bound_s=settled(incumbent, self._smallest()),
            relaxed_bound_s=self.nodes.smallest,
            step_bound_s=self.step_bound_s,
            value=incumbent,
            space=self.space,
            roots=self.nodes,
            refused=dict(self.rule_filter.refused),
            priced=self.priced,
            evaluated=self.evaluated,
            complete=complete,
            least_host_bytes=self.least_host if np.isfinite(self.least_host) else None,
            least_memory=None if ranked or np.isfinite(cutoff) else self._least_memory(),
        )

    def incumbent_proved(self) -> bool:
        """Is the best answer proved, and one of the answers a pipeline that may be split freely?"""
        values = [value for value, _ in self.best.values()]
        proved = min(values, default=np.inf) <= self._smallest()
        traits = self.space.traits
        return proved and any(allows_any_split(traits, row)[0] for _, row in self.best.values())

    def _node_bound(self) -> float:
        """Bound of the next node, smallest of all unopened ones."""
        left = self.nodes.bound[self.order[self.next_node : self.next_node + 1]]
        return float(left.min(initial=np.inf))

    def _smallest(self) -> float:
        pools = self.skeletons, self.classes, self.layouts
        return min(self._node_bound(), *(pool.smallest for pool in pools))

    def _cutoff(self) -> float:
        """Objective a branch must beat to be among the answers."""
        values = sorted(value for value, _ in self.best.values())
        last = values[self.limits.top - 1] if len(values) >= self.limits.top else np.inf
        return min(self.cutoff, last)

    def _expand_smallest(self) -> None:
        """Of equal bounds what is nearest to an answer goes first: an answer drops branches."""
        smallest = self._smallest()
        if self.layouts.smallest == smallest:
            batch, self.layouts = self.layouts.pop_smallest(SIMULATED_AT_ONCE)
            self._simulate(batch)
        elif self.classes.smallest == smallest:
            batch, self.classes = self.classes.pop_smallest(self.classes_at_once)
            self.classes_at_once = min(2 * self.classes_at_once, MOST_CLASSES)
            self._expand_classes(batch)
        elif self.skeletons.smallest == smallest:
            batch, self.skeletons = self.skeletons.pop_smallest(SKELETONS_AT_ONCE)
            self.classes = self.classes.joined(self._classes(batch))
        else:
            end = min(self.next_node + self.nodes_at_once, len(self.nodes.bound))
            self.nodes_at_once = min(2 * self.nodes_at_once, MOST_NODES)
            batch = self.nodes.take(self.order[self.next_node : end])
            self.next_node = end
            self._expand_nodes(batch.prune(self._cutoff()))

    def _expand_nodes(self, batch: Pool) -> None:
        """Price the skeletons below nodes; those that fit as they are need no policy.

        Where one fits that moves nothing off the GPUs, none is priced that does: moving takes time.
        """
        rows = skeletons(self.space, self.rule_filter, batch.table)
        if len(self.space.placements) == 1:
            self._price_skeletons(rows)
            return
        staging, unmoved = stagings_of(self.space, rows.table)
        enough = np.zeros(int(staging.max(initial=-1)) + 1, dtype=bool)
        enough[staging[unmoved]] = self._price_skeletons(rows.take(unmoved))
        self._price_skeletons(rows.take(~unmoved & ~enough[staging]))

    def _price_skeletons(self, rows: Rows) -> BoolColumn:
        """Keep those that may win; which of all are layouts that fit as they are?"""
        table, fits = rows.table, np.zeros(len(rows), dtype=bool)
        bound, least = np.zeros((2, len(rows)))
        most = most_offload(self.space, self.policy_rules, table)
        parts = self.partition.by_worker(table, FEWEST_ROWS)
        tasks = [PriceSkeletons(self.context, table.take(part), most[part]) for part in parts]
        for part, found in zip(parts, self.workers.run(tasks, self.budget), strict=True):
            bound[part], least[part], fits[part] = found.bound, found.least, found.fits
        pool = Pool(table, bound, self.space.variants(table))
        self.priced += len(rows)
        hopeless = least > self.limits.memory_bytes
        self.least_memory = self.least_memory.joined(replace(pool, bound=least)).pop_smallest(
            LEAST_MEMORY_SKELETONS
        )[0]
        self.rule_filter.refused[MEMORY] += int(rows.weight[hopeless].sum())
        wins = ~hopeless & (bound < self._cutoff())
        plain = fits & self._allowed(table)
        self.layouts = self.layouts.joined(pool.take(wins & plain))
        self.skeletons = self.skeletons.joined(pool.take(wins & ~plain))
        return plain

    def _expand_classes(self, batch: Pool) -> None:
        """Price every recomputation of skeletons, with the least offload that makes it fit."""
        table, owner = policies_of(self.space, batch.table)
        offload, bound = np.zeros((2, len(table)))
        legal, lost = legal_offloads(self.job, self.policy_rules, table, self.ranges)
        self.rule_filter.refused += lost
        parts = self.partition.by_worker(table, FEWEST_ROWS)
        tasks = [
            PricePolicies(
                self.context, table.take(part), self.ranges, legal[:, part], self._cutoff()
            )
            for part in parts
        ]
        for part, found in zip(parts, self.workers.run(tasks, self.budget), strict=True):
            offload[part], bound[part] = found.offload, found.bound
            self.priced += found.priced
            self.rule_filter.refused += Counter(found.refused)
            self.least_host = min(self.least_host, found.least_host)
        pool = Pool(with_fraction(table, offload), bound, batch.branch[owner])
        self.layouts = self.layouts.joined(pool.prune(self._cutoff()))

    def _classes(self, skeletons: Pool) -> Pool:
        """Classes of policies of skeletons that may win; where all is counted, every policy."""
        if self.exhaustive or not len(skeletons.bound):
            return skeletons
        fast, min_memory = class_extremes(self.space, skeletons.table)
        times, bound = len(min_memory) // len(skeletons.bound), np.zeros(len(min_memory))
        most = np.tile(most_offload(self.space, self.policy_rules, skeletons.table), times)
        parts = self.partition.by_worker(min_memory, FEWEST_ROWS)
        tasks = [
            PriceClasses(self.context, fast.take(part), min_memory.take(part), most[part])
            for part in parts
        ]
        for part, found in zip(parts, self.workers.run(tasks, self.budget), strict=True):
            bound[part] = found
        self.priced += 2 * len(min_memory)
        return Pool(min_memory, bound, np.tile(skeletons.branch, times)).prune(self._cutoff())

    def _simulate(self, batch: Pool) -> None:
        """Run the schedules of layouts; drop their slower siblings."""
        parts = np.array_split(np.arange(len(batch.bound)), self.workers.parts)
        tasks = [Simulate(self.context, batch.table.take(part)) for part in parts if len(part)]
        seconds = np.concatenate(list(self.workers.run(tasks, self.budget)))
        self.evaluated += len(seconds)
        for i, value in enumerate(self.objective.value(batch.table, seconds).tolist()):
            name = int(batch.branch[i])
            if value < self.best.get(name, (self.cutoff, None))[0]:
                self.best[name] = (value, batch.table.take(np.array([i])))
        times = np.full(len(self.layouts.bound), self._cutoff())
        for name in set(batch.branch.tolist()) & self.best.keys():
            times[self.layouts.branch == name] = self.best[name][0]
        self.layouts = self.layouts.take(self.layouts.bound < times)
        self.skeletons = self.skeletons.prune(self._cutoff())
        self.classes = self.classes.prune(self._cutoff())

    def _primal_heuristic(self) -> None:
        """Find some incumbent at once: the fastest layout of the skeletons of least memory.

        Their branches stay where they are, so the bound of the search still holds.
        """
        refused = self.rule_filter.refused.copy()
        if self.least_memory.smallest > self.limits.memory_bytes and len(self.nodes.bound):
            table = self.nodes.table
            cut = table.tp * table.pp * table.ep * table.etp
            # most cut first: a rank holds least of the model there, so something fits soonest
            first = self.order[np.argsort(-cut[self.order], kind="stable")[:NODES_AT_ONCE]]
            self._expand_nodes(self.nodes.take(first))
        min_memory = self.least_memory.take(self.least_memory.bound <= self.limits.memory_bytes)
        if len(min_memory.bound) and not len(self.layouts.bound):  # else some are run twice
            self._expand_classes(min_memory)
        batch, self.layouts = self.layouts.pop_smallest(SIMULATED_AT_ONCE)
        if len(batch.bound):
            self._simulate(batch)
        self.rule_filter.refused = refused

    def _least_memory(self) -> tuple[float, LayoutTable] | None:
        return least_memory_layout(
            self.space, self._price, self._allowed, self.ranges, self.least_memory.table
        )

    def _price(self, table: LayoutTable) -> Priced:
        self.priced += len(table)
        return self.context.price(table)

    def _allowed(self, table: LayoutTable) -> BoolColumn:
        """Which rows break no rule on recomputation and offload."""
        allowed = np.ones(len(table), dtype=bool)
        for rule in self.policy_rules:
            allowed &= ~rule.broken(self.job, table)
        return allowed
