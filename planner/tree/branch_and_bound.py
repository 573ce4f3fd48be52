"""Best-first branch and bound over the grid: the fastest layouts that fit, and a proof.

    node        bounded by `node_bound_seconds`: no choice below it is faster
    skeleton    bounded by `price` without recomputation and offload: both only add time
    layout      bounded by `price`: a proven lower bound of its simulated step
    finalist    simulated

The branch with the smallest bound is opened next, and none whose bound is not below the slowest
finalist wanted, so nothing that could win is dropped. That each bound holds is a property of the
cost model, tested in tests/properties. Combinations of settings share all branches down to the
layout, bounded under the fastest of them (`groups`); a layout is opened under each by itself.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from trainplan.costmodel.candidates import Context
from trainplan.costmodel.columns import BoolColumn
from trainplan.costmodel.layouts import LayoutTable, Rule, legal_rows
from trainplan.costmodel.step import Priced, node_bound_seconds
from trainplan.costmodel.timeline import settled
from trainplan.planner.policies import fractions_of, legal_offloads, with_fraction
from trainplan.planner.space import (
    MEMORY,
    VARIANT_DEGREES,
    Rows,
    RuleFilter,
    Space,
    nodes,
    skeletons,
    stagings_of,
)
from trainplan.planner.tree.groups import Group
from trainplan.planner.tree.memory_bounds import (
    KNOWN_COLUMNS,
    MemoryFilter,
    class_extremes,
    least_memory_layout,
    most_offload,
    policies_of,
)
from trainplan.planner.tree.pool import WHOLE_GROUP, Pool
from trainplan.planner.tree.result import Answer, Objective, SearchLimits, SearchResult, StepTime
from trainplan.planner.tree.tasks import PricePolicies, PricingContext, SharedPricing, Simulate
from trainplan.planner.work import ALONE, AffinityPartition, Budget, Unlimited, Workers

NODES_AT_ONCE, MOST_NODES = 256, 4096
CLASSES_AT_ONCE, MOST_CLASSES = 128, 512
"""Of each opened first, and at most: twice as many each time, for pricing few rows costs much."""
LEAST_MEMORY_SKELETONS = 64
"""Skeletons kept for when nothing fits or time runs out."""
SKELETONS_AT_ONCE = 1024
SIMULATED_AT_ONCE = 4
LAYOUTS_AT_ONCE = 64
"""Layouts of a group opened under each of its members."""
PLAIN = -2
"""Number of the member of a layout of a group that needs no policy to fit under its top."""
SMALL_MICRO_BATCH, NODES_BEGUN, SKELETONS_BEGUN = 2, 512, 2048
"""Micro batches of the nodes that are opened before others, and how many nodes and skeletons.
Source: measured; any values give the same proved answer."""
DEGREES_AND_SIZE = (*VARIANT_DEGREES, "micro_batch_size")
CLASSES_DIVED = 256
"""Classes followed at once, one of each degrees and micro batch. Source: measured, as above."""
DIVES_EVERY = 12
"""Turns after which the fastest class is followed down to a simulation, though others have smaller
bounds: an answer drops branches. Source: measured; any value gives the same proved answer."""


class Search:
    """One run of the branch and bound; `run` returns what it found."""

    def __init__(
        self,
        context: Context,
        rules: Sequence[Rule],
        limits: SearchLimits,
        objective: Objective | None = None,
        *,
        group: Group | None = None,
        workers: Workers = ALONE,
        exhaustive: bool = False,
    ) -> None:
        self.job, self.limits = context.job, limits
        self.objective = objective or StepTime()
        members = () if group is None or len(group.members) == 1 else group.members
        self.space, self.workers = Space(context), workers
        self.context = PricingContext(*context.shared, self.objective, limits.memory_bytes)
        self.pricing = SharedPricing(self.context, workers, AffinityPartition(workers.parts))
        self.rules, self.exhaustive = rules, exhaustive
        self.members = tuple(
            PricingContext(*one.context.shared, self.objective, limits.memory_bytes)
            for one in members
        )
        self.rules_of = [[*one.rules] for one in members]
        min_memory = MemoryFilter(self.space, rules, limits.memory_bytes)
        self.rule_filter = RuleFilter(context.job, rules) if exhaustive else min_memory
        self.policy_rules = [rule for rule in rules if not rule.columns <= KNOWN_COLUMNS]
        self.ranges = fractions_of(self.space.traits, self.policy_rules)
        roots = nodes(self.space, self.rule_filter)
        seconds = node_bound_seconds(self.context.with_table(roots.table), workers.each)
        self.step_bound_s = float(seconds.min(initial=np.inf))
        node_bound = self.objective.node_bound(roots.table, seconds)
        self.nodes = Pool.of(roots.table, node_bound, self.space.variants(roots.table))
        # smallest first: what is not opened then has no smaller bound, which is the proof
        self.order = np.argsort(node_bound, kind="stable")
        self.next_node, self.nodes_at_once = 0, NODES_AT_ONCE
        self.classes_at_once = CLASSES_AT_ONCE
        self.skeletons = self.classes = self.layouts = self.nodes.take(self.order[:0])
        self.best: dict[int, Answer] = {}
        self.turn = self.next_dive = self.priced = self.evaluated = 0
        self.cutoff = np.inf
        self.budget: Budget = Unlimited()
        self.least_memory = self.layouts
        self.least_host = np.inf

    def run(self, budget: Budget, cutoff: float = np.inf) -> SearchResult:
        """Open branches until none can win or the budget is spent.

        Only answers whose objective is less than `prune` are looked for. Run again, it goes on.
        """
        self.cutoff, self.budget, complete = cutoff, budget, True
        while self.smallest < self._cutoff():
            if budget.spent():
                complete = False
                break
            self.step()
            timed = isinstance(self.objective, StepTime)
            known = (self.smallest, self.value) if timed else (0.0, np.inf)
            budget.report(self.done, *known)
        if not complete and not self.best:
            self.primal_heuristic()
        if complete and not self.best and np.isinf(cutoff) and not self.exhaustive:
            context = self.space.context, self.rules, self.limits, self.objective
            again = Search(*context, workers=self.workers, exhaustive=True)
            return again.run(budget)  # tells of every layout why
        return self.result(complete=complete)

    def result(self, *, complete: bool) -> SearchResult:
        """What is known so far."""
        ranked = sorted(self.best.values(), key=lambda one: one.value)[: self.limits.top]
        incumbent = ranked[0].value if ranked else np.inf
        open_ended = np.isinf(self.cutoff)
        return SearchResult(
            finalists=LayoutTable.concat([one.layout for one in ranked]) if ranked else None,
            lower_bound_s=settled(incumbent, self.smallest),
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
            least_memory=self._least_memory() if open_ended and not ranked else None,
        )

    @property
    def incumbent(self) -> Answer | None:
        """The best answer so far."""
        return min(self.best.values(), key=lambda one: one.value, default=None)

    @property
    def value(self) -> float:
        """Objective of the incumbent; infinite where there is none."""
        return self.incumbent.value if self.incumbent else np.inf

    @property
    def done(self) -> float:
        """Share of the nodes that were opened."""
        return self.next_node / max(1, len(self.nodes.bound))

    def lower(self, cutoff: float) -> None:
        """An answer with this objective is known: look for better ones alone."""
        if cutoff < self.cutoff:
            self.cutoff = cutoff
            self.skeletons, self.classes, self.layouts = (
                pool.prune(cutoff) for pool in (self.skeletons, self.classes, self.layouts)
            )

    @property
    def smallest(self) -> float:
        """Smallest bound of what waits, the next node first of all unopened ones."""
        pools = self.skeletons, self.classes, self.layouts
        node = self.nodes.bound[self.order[self.next_node : self.next_node + 1]]
        return min(float(node.min(initial=np.inf)), *(pool.smallest for pool in pools))

    def _cutoff(self) -> float:
        """Objective a branch must beat to be among the answers."""
        values = sorted(one.value for one in self.best.values())
        last = values[self.limits.top - 1] if len(values) >= self.limits.top else np.inf
        return min(self.cutoff, last)

    def step(self) -> None:
        """Of equal bounds what is nearest to an answer goes first: an answer drops branches."""
        self.turn += 1
        smallest = self.smallest
        if self.turn == 1 and not self.exhaustive:
            self._begin()
        elif self.turn >= self.next_dive and len(self.classes.bound):
            self.next_dive = self.turn + DIVES_EVERY
            self.dive()
        elif self.layouts.smallest == smallest:
            self._open_layouts()
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

    def _begin(self) -> None:
        """Open what people run before the rest: small micro batches, of the fastest degrees."""
        known = self.nodes.take(self.order)
        small = known.table.micro_batch_size <= SMALL_MICRO_BATCH
        begun = small & (np.cumsum(small) <= NODES_BEGUN)
        begun[0] = True
        self.order = np.concatenate([self.order[begun], self.order[~begun]])
        self.next_node = int(begun.sum())
        self._expand_nodes(known.take(begun).prune(self._cutoff()))
        batch, self.skeletons = self.skeletons.pop_smallest(SKELETONS_BEGUN)
        self.classes = self._classes(batch)
        self.dive()

    def dive(self) -> None:
        """Follow the fastest classes that wait, of each degrees one, down to simulations."""
        batch, self.classes = self.classes.pop_kinds(DEGREES_AND_SIZE, CLASSES_DIVED)
        self._expand_classes(batch)
        for _ in range(2):  # of a group, layouts are opened under its members first
            self._open_layouts()

    def _open_layouts(self) -> None:
        """Simulate the fastest layouts, or open them under the members of the group."""
        first = self.layouts.pop_smallest(1)[0]
        if not len(first.bound):
            return
        if self.members and first.member[0] < 0:
            batch, self.layouts = self.layouts.pop_smallest(LAYOUTS_AT_ONCE)
            waits = batch.member >= 0
            self.layouts = self.layouts.joined(batch.take(waits))
            self._open_members(batch.take(~waits))
            return
        own = self.layouts.member == first.member[0]
        batch, rest = self.layouts.take(own).pop_smallest(SIMULATED_AT_ONCE)
        self.layouts = self.layouts.take(~own).joined(rest)
        self._simulate(batch)

    def _open_members(self, batch: Pool) -> None:
        """Layouts under each combination of settings that allows them, with its least offload.

        One without a policy stays a skeleton where it does not fit as it is under some member, or
        breaks a rule of it: another policy may then be what the member takes.
        """
        table = with_fraction(batch.table, 0.0)
        again = np.zeros(len(table), dtype=bool)
        for number, (context, rules) in enumerate(zip(self.members, self.rules_of, strict=True)):
            ranges = fractions_of(context.traits, rules)
            legal, _ = legal_offloads(context, rules, table, ranges)
            found = PricePolicies(context, table, ranges, legal, self._cutoff())(self.budget)
            self.priced += found.priced
            again |= found.offload != 0
            pool = Pool.of(
                with_fraction(table, found.offload), found.bound, batch.branch, number
            ).prune(self._cutoff())
            self.layouts = self.layouts.joined(pool)
        again &= batch.member == PLAIN
        back = batch.take(again)
        whole = np.full(len(back.bound), WHOLE_GROUP)
        self.skeletons = self.skeletons.joined(replace(back, member=whole))

    def _expand_nodes(self, batch: Pool) -> None:
        """Price the skeletons below nodes; those that fit as they are need no policy.

        Where one fits that moves nothing off the GPUs, none is priced that does: moving takes time.
        Of a group it may still not fit under some member, so all are.
        """
        rows = skeletons(self.space, self.rule_filter, batch.table)
        if self.space.moves_nothing or self.members:
            self._price_skeletons(rows)
            return
        staging, unmoved = stagings_of(self.space, rows.table)
        enough = np.zeros(int(staging.max(initial=-1)) + 1, dtype=bool)
        enough[staging[unmoved]] = self._price_skeletons(rows.take(unmoved))
        self._price_skeletons(rows.take(~unmoved & ~enough[staging]))

    def _price_skeletons(self, rows: Rows) -> BoolColumn:
        """Keep those that may win; which of all are layouts that fit as they are?"""
        table = rows.table
        most = most_offload(self.space, self.policy_rules, table)
        found = self.pricing.skeletons(table, most, self.budget)
        pool = Pool.of(table, found.bound, self.space.variants(table))
        self.priced += len(rows)
        hopeless = found.least > self.limits.memory_bytes
        known = self.least_memory.joined(replace(pool, bound=found.least))
        self.least_memory = known.pop_smallest(LEAST_MEMORY_SKELETONS)[0]
        self.rule_filter.refused[MEMORY] += int(rows.weight[hopeless].sum())
        wins = ~hopeless & (found.bound < self._cutoff())
        plain = found.fits & self._allowed(table)
        whole = pool.take(wins & plain)
        whole = replace(whole, member=np.full(len(whole.bound), PLAIN if self.members else 0))
        self.layouts = self.layouts.joined(whole)
        self.skeletons = self.skeletons.joined(pool.take(wins & ~plain))
        return plain

    def _expand_classes(self, batch: Pool) -> None:
        """Price every recomputation of skeletons, with the least offload that makes it fit."""
        table, owner = policies_of(self.space, batch.table)
        legal, lost = legal_offloads(self.context, self.policy_rules, table, self.ranges)
        whole = PricePolicies(self.context, table, self.ranges, legal, self._cutoff())
        found = self.pricing.policies(whole, self.budget)
        self.priced += found.priced
        self.rule_filter.refused += lost + Counter(found.refused)
        self.least_host = min(self.least_host, found.least_host)
        member, table = WHOLE_GROUP if self.members else 0, with_fraction(table, found.offload)
        pool = Pool.of(table, found.bound, batch.branch[owner], member)
        self.layouts = self.layouts.joined(pool.prune(self._cutoff()))

    def _classes(self, skeletons: Pool) -> Pool:
        """Classes of policies of skeletons that may win; where all is counted, every policy."""
        if self.exhaustive or not len(skeletons.bound):
            return skeletons
        fast, min_memory = class_extremes(self.space, skeletons.table)
        times = len(min_memory) // len(skeletons.bound)
        most = np.tile(most_offload(self.space, self.policy_rules, skeletons.table), times)
        bound = self.pricing.classes(fast, min_memory, most, self.budget)
        self.priced += 2 * len(min_memory)
        pool = Pool.of(min_memory, bound, np.tile(skeletons.branch, times))
        return pool.prune(self._cutoff())

    def _simulate(self, batch: Pool) -> None:
        """Run the schedules of layouts of one member; drop their slower siblings.

        Those that no time was left for wait again.
        """
        number = int(batch.member[0])
        context = self.members[number] if self.members else self.context
        parts = np.array_split(np.arange(len(batch.bound)), self.workers.parts)
        tasks = [Simulate(context, batch.table.take(part)) for part in parts if len(part)]
        seconds = np.concatenate(list(self.workers.run(tasks, self.budget)))
        late = np.isnan(seconds)
        self.layouts = self.layouts.joined(batch.take(late))
        batch, seconds = batch.take(~late), seconds[~late]
        self.evaluated += len(seconds)
        for i, value in enumerate(self.objective.value(batch.table, seconds).tolist()):
            name = int(batch.branch[i])
            known = self.best.get(name)
            if value < (self.cutoff if known is None else known.value):
                self.best[name] = Answer(value, batch.table.take(np.array([i])), number)
        times = np.full(len(self.layouts.bound), self._cutoff())
        for name in set(batch.branch.tolist()) & self.best.keys():
            times[self.layouts.branch == name] = self.best[name].value
        self.layouts = self.layouts.take(self.layouts.bound < times)
        self.skeletons = self.skeletons.prune(self._cutoff())
        self.classes = self.classes.prune(self._cutoff())

    def primal_heuristic(self) -> None:
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
        for _ in range(2):
            self._open_layouts()
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
        return legal_rows(self.job, self.policy_rules, table)
