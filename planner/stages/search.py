"""The second half of a search: may another split of the layers be faster than the best even one?

    node       bounded by `node_bound_seconds`, which holds for every split
    skeleton   bounded by its states and by ranks that never wait
    class      of policies: bounded by its fastest and its memory-minimal policy
    layout     bounded by mean paths, then by the windows of its ranks
    split      simulated

Best first, as in `planner.tree`; a layout is opened only where its bound is below the best.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain

import numpy as np

from trainplan.costmodel.layouts import BoolColumn, FloatColumn, IntColumn, LayoutTable, Rule
from trainplan.costmodel.schedules.timeline.lower_bounds import EQUALS
from trainplan.planner.space import Space
from trainplan.planner.space.grid import RuleFilter, skeletons
from trainplan.planner.space.offload import with_fraction, with_least_offload
from trainplan.planner.space.policies import (
    has_longer_passes,
    names_modules,
    recompute_allows_any_split,
    takes_longer,
)
from trainplan.planner.stages.bounds.mean_paths import PathPool
from trainplan.planner.stages.problem.offload import exactly
from trainplan.planner.stages.problem.problem import StageProblem
from trainplan.planner.stages.solve.families import BoundFamily, families
from trainplan.planner.stages.solve.listed import SplitResult
from trainplan.planner.stages.solve.tasks import (
    Asked,
    BestSplit,
    BestSplits,
    Question,
    SplitContext,
    bounding,
    roots_of,
)
from trainplan.planner.tree import Pool
from trainplan.planner.tree.memory_bounds import (
    class_extremes,
    classes_with_policies,
    policies_of,
)
from trainplan.planner.tree.result import UnevenResult
from trainplan.planner.work import ALONE, Budget, Workers
from trainplan.planner.work.budget import ReservingBudget
from trainplan.planner.work.partition import AffinityPartition

NODES_AT_ONCE, MOST_NODES = 1024, 4096
"""Nodes opened first, and at most: twice as many each time, so that a time limit is kept and many
are bounded together where there is time."""
SKELETONS_AT_ONCE = 2048
PRICED_TOGETHER, FEWEST = 2048, 128
"""Rows of a table worth a worker of its own: to price a few takes as long as to price hundreds; and
where more is asked of each than a price."""
LAYOUTS_AT_ONCE = 16
"""Layouts split with the same paths known: as many for any number of workers, for one answer."""
STEP = 1.06
"""Where a layout may have many splits, only those so far above its bound are looked for at first:
the best answer so far may be poor. Source: measured; any value gives the same answer."""
TRIED_FIRST = 10
"""Finalists of the even search that are split before any other layout: as many whatever number of
alternatives is listed, for one answer."""
FEWEST_OF_FAMILY = 3
"""Layouts that are worth a bound of all together. Source: assumed."""
TURNS = 3
"""Every so often the fastest layouts are split before their turn."""
SHARE_AT_LAST, LEAST_AT_LAST_S = 0.2, 1.0
"""Of a time limit kept for what is tried at last, if that is long enough to find something.
Source: measured; what is tried takes 0.3 to 3 s."""
EXPANDED_WITHOUT_LIMIT = 240
"""Layouts opened where no time limit says when to stop: some seconds, and always the same."""


class UnevenSearch:
    """One run; `run` returns what it found."""

    def __init__(
        self,
        of: SplitContext,
        rules: Sequence[Rule],
        incumbent_s: float,
        budget: Budget,
        workers: Workers = ALONE,
        *,
        roots: Pool | None = None,
    ) -> None:
        self.of, self.rules, self.incumbent_s = of, rules, incumbent_s
        self.budget, self.workers = budget, workers
        self.partition = AffinityPartition(workers.parts)
        limited = budget.seconds_left() < np.inf
        self.space = Space(of.job, any_vpp=limited and not of.alike)
        self.rule_filter = RuleFilter(of.job, rules)
        self.roots = (roots or roots_of(of, rules)).prune(incumbent_s)
        self.nodes = self.roots.take(self.roots.table.pp > 1)
        self.skeletons = self.layouts = self.nodes.take(np.arange(0))
        self.pool, self.num_simulated = PathPool(alike=of.alike), 0
        self.judged: dict[Asked, SplitResult] = {}
        """What was found of layouts: one that is tried again is not split again."""
        self.table: LayoutTable | None = None
        self.expanded = 0
        """Layouts opened so far, a skeleton counting as a fraction of one."""
        self.turn, self.nodes_at_once = 0, NODES_AT_ONCE
        self.num_skeletons = 0
        """Skeletons opened so far."""
        self.left = np.inf
        """Smallest bound of layouts that were opened and are not settled."""

    def try_first(self, table: LayoutTable) -> None:
        """Split some layouts before any other: a good answer soon, and fewer that may beat it."""
        table = table.take(np.arange(min(len(table), TRIED_FIRST)))
        table = table.take(self.of.searched(table))
        rows = [exactly(row) for row in self.rows(table)]
        for row, found in self._split(table, rows, np.full(len(table), np.inf)):
            self.update_incumbent(found, row)

    def update_incumbent(self, found: SplitResult, row: StageProblem) -> None:
        """Take note of a split, and drop what is no faster."""
        self.expanded += found.effort
        self.num_simulated += found.num_simulated
        if found.layers is not None and found.step_time_s * EQUALS < self.incumbent_s:
            self.table = found.of(row)
            self.lower(found.step_time_s)

    def lower(self, incumbent_s: float) -> None:
        """An answer is known that takes so long: drop what is no faster."""
        self.incumbent_s = min(self.incumbent_s, incumbent_s)
        self.skeletons = self.skeletons.prune(self.incumbent_s)
        self.layouts = self.layouts.prune(self.incumbent_s)

    def run(
        self,
        max_expanded: int = EXPANDED_WITHOUT_LIMIT,
        *,
        any_answer: bool = False,
        at_last: Callable[[UnevenSearch], None] | None = None,
    ) -> UnevenResult:
        """Open branches until none can win, the budget is spent, or, without one, work is done.

        Any answer may be enough. `at_last` may split some more where the work leaves a gap; with a
        time limit it comes then too, while there is time, and the rest goes to what is left.
        """
        whole, left_s = self.budget, self.budget.seconds_left()
        limited = left_s < np.inf
        if limited and at_last is not None and left_s * SHARE_AT_LAST >= LEAST_AT_LAST_S:
            self.budget = ReservingBudget(whole, left_s * SHARE_AT_LAST)
        self.expand(max_expanded, any_answer=any_answer)
        self.budget = whole
        done = self.bound == self.incumbent_s or (any_answer and self.table is not None)
        if at_last is not None and not done and not self.budget.spent():
            at_last(self)
        if limited:
            self.expand(None, any_answer=any_answer)
        return self.known()

    def known(self) -> UnevenResult:
        """What is known so far."""
        return UnevenResult(
            self.table, self.incumbent_s, self.bound, self.num_simulated, self.expanded
        )

    def expand(self, max_expanded: int | None, *, any_answer: bool) -> None:
        """Open branches until none can win, or so many layouts are opened."""
        while self.smallest < self.incumbent_s and not (any_answer and self.table is not None):
            if self.budget.spent() or (max_expanded is not None and self.expanded >= max_expanded):
                break
            self.expand_deepest()
            self.budget.report(1.0, min(self.smallest, self.incumbent_s))

    @property
    def bound(self) -> float:
        """No layout is faster, by what is known."""
        return min(self.smallest, self.left, self.incumbent_s)

    @property
    def smallest(self) -> float:
        """Smallest bound of what waits."""
        return min(self.nodes.smallest, self.skeletons.smallest, self.layouts.smallest)

    def expand_deepest(self) -> None:
        """Open what is deepest: a better answer, found early, leaves fewer branches to open.

        Layouts wait in turns, or nothing else would be opened while there are any.
        """
        self.turn += 1
        fewest = min(self.nodes.smallest, self.skeletons.smallest)
        if self.layouts.smallest < fewest or (self.turn % TURNS == 0 and len(self.layouts.bound)):
            self._expand_layouts()
        elif len(self.skeletons.bound):
            batch, self.skeletons = self.skeletons.pop_smallest(SKELETONS_AT_ONCE)
            self.expanded += 1
            self._expand_skeletons(batch.prune(self.incumbent_s))
        else:
            batch, self.nodes = self.nodes.pop_smallest(self.nodes_at_once)
            self.nodes_at_once = min(2 * self.nodes_at_once, MOST_NODES)
            self.expanded += 1
            self._expand_nodes(batch.prune(self.incumbent_s))

    def _expand_layouts(self) -> None:
        """Split the fastest layout of some skeletons: it may settle the others of its own.

        Where there are few skeletons, some of the others too, but none that only take longer.
        """
        order = np.argsort(self.layouts.bound, kind="stable")[: 4 * LAYOUTS_AT_ONCE]
        chosen = order[_unsettled(self.layouts.take(order))[:LAYOUTS_AT_ONCE]]
        if self.of.alike:
            self._bound_families(chosen)
        chosen = chosen[self.layouts.bound[chosen] < self.incumbent_s]
        batch, rest = self.layouts.take(chosen), np.ones(len(self.layouts.bound), dtype=bool)
        rest[chosen] = False
        self.layouts = self.layouts.take(rest)
        enough = (batch.bound * STEP).clip(max=self.incumbent_s)
        for i, (row, found) in enumerate(self._split(batch.table, self.rows(batch.table), enough)):
            self._record_bound(row, found, batch.take(np.array([i])), enough[i])

    def _bound_families(self, chosen: IntColumn) -> None:
        """Raise the bounds of some layouts and of those that differ in what they recompute."""
        waiting = self.layouts
        number = families(waiting.table, waiting.branch)
        asked = [one for one in np.unique(number[chosen]).tolist() if one >= 0]
        members = [np.flatnonzero(number == one) for one in asked]
        members = [some for some in members if len(some) >= FEWEST_OF_FAMILY]
        if not members:
            return
        rows, tasks, start = self.rows(waiting.table.take(np.concatenate(members))), [], 0
        for some in members:
            own = tuple(rows[start : start + len(some)])
            near = min(STEP * float(waiting.bound[some].min()), self.incumbent_s)
            limits = tuple(sorted({near, self.incumbent_s}, reverse=True))
            tasks.append(BoundFamily(own, self.pool.alone(own[0].pipeline), limits))
            start += len(some)
        bound = waiting.bound.copy()
        for some, found in zip(members, self.workers.run(tasks, self.budget), strict=True):
            bound[some] = np.maximum(bound[some], found)
        self.layouts = replace(waiting, bound=bound)

    def _split(
        self, table: LayoutTable, rows: list[StageProblem], target_bound_s: FloatColumn
    ) -> list[tuple[StageProblem, SplitResult]]:
        """Layouts and their best splits; enough is to know that none is faster than some time."""
        tasks = [
            BestSplit(row, self.incumbent_s, self.pool.alone(row.pipeline), enough)
            for row, enough in zip(rows, target_bound_s.tolist(), strict=True)
        ]
        found = [self.judged.get(task.asked) for task in tasks]
        new = np.array([i for i, known in enumerate(found) if known is None], dtype=np.int64)
        parts = self.partition.interleaved(table.take(new))
        some = [BestSplits(tuple(tasks[new[i]] for i in part)) for part in parts]
        answers = chain(*self.workers.run(some, self.budget))
        for i, (result, pool) in zip(chain(*(new[part] for part in parts)), answers, strict=True):
            found[i] = self.judged[tasks[i].asked] = result
            self.pool.learn(pool)
        return [(row, one) for row, one in zip(rows, found, strict=True) if one is not None]

    def _record_bound(
        self, row: StageProblem, found: SplitResult, one: Pool, target_bound_s: float
    ) -> None:
        """Take note of the best split of one layout, and of those that only take longer.

        Where it is only known that none is faster than the target, they wait with a higher bound.
        """
        self.update_incumbent(found, row)
        bound = max(one.smallest, found.lower_bound_s)
        if bound < min(target_bound_s, self.incumbent_s):
            self.left = min(self.left, bound)
            return
        slower = np.zeros(len(self.layouts.bound), dtype=bool)
        siblings = self.layouts.branch == one.branch[0]
        if siblings.any() and not found.memory_decides:
            slower = siblings & takes_longer(self.layouts.table, one.table)
        hides = slower & has_longer_passes(self.layouts.table, one.table)
        least = np.where(hides, bound - row.may_hide_s if hides.any() else bound, bound)
        raised = np.where(slower, np.maximum(self.layouts.bound, least), self.layouts.bound)
        self.layouts = replace(self.layouts, bound=raised)
        again = Pool(one.table, np.array([bound]), one.branch)
        self.layouts = self.layouts.joined(again).prune(self.incumbent_s)

    def _expand_nodes(self, batch: Pool) -> None:
        table = skeletons(self.space, self.rule_filter, batch.table).table
        table = table.take(self.of.searched(table))
        table = table if self.of.alike else table.take(table.vpp > 1)
        bound = self._bounded(self.of.skeletons, table)
        self.skeletons = self.skeletons.joined(Pool.of(table, bound).prune(self.incumbent_s))

    def _expand_skeletons(self, batch: Pool) -> None:
        """Bound every recomputation and offload of skeletons."""
        table = batch.table
        if not len(table):
            return
        min_memory = class_extremes(self.space, table)[1]
        held = classes_with_policies(self.space, min_memory, self.rules, self._allows)
        wins = np.flatnonzero(held)
        bound = self._bounded(self.of.classes, min_memory.take(wins), FEWEST)
        wins = wins[bound < self.incumbent_s]
        plain, owner = policies_of(self.space, min_memory.take(wins))
        skeleton = wins[owner] % len(table)
        fast = self._bounded(self.of.policies, plain) < self.incumbent_s
        plain, skeleton = plain.take(fast), skeleton[fast]
        every = with_least_offload(plain, self.of.ranges)
        legal = self.legal(every)
        every, skeleton = every.take(legal), np.tile(skeleton, len(self.of.ranges))[legal]
        every = with_fraction(every, self._bounded(self.of.least_offload, every))
        fits = np.isfinite(every.offload_optimizer)
        every, skeleton = every.take(fits), skeleton[fits]
        bound = np.maximum(batch.bound[skeleton], self._bounded(self.of.layouts, every, FEWEST))
        waiting = Pool(every, bound, skeleton + self.num_skeletons)
        self.num_skeletons += len(table)
        self.layouts = self.layouts.joined(waiting.prune(self.incumbent_s))

    def _bounded(
        self, ask: Question, table: LayoutTable, fewest: int = PRICED_TOGETHER
    ) -> FloatColumn:
        """The answer to a question for every row of a table, however many workers share it."""
        parts = self.partition.by_worker(table, fewest)
        tasks = bounding(ask, table, parts, self.incumbent_s, self.pool)
        bound = np.zeros(len(table))
        for rows, (found, pool) in zip(parts, self.workers.run(tasks, self.budget), strict=True):
            bound[rows] = found
            self.pool.learn(pool)
        return bound

    def legal(self, table: LayoutTable) -> BoolColumn:
        """Which rows break no rule under any split."""
        broken = [rule.broken(self.of.job, table) for rule in self.rules]
        return np.asarray(~np.any(broken, axis=0) & self._allows(table))

    def _allows(self, table: LayoutTable) -> BoolColumn:
        """Which rows have policies that are some and allow any split."""
        return recompute_allows_any_split(self.of.traits, table) & names_modules(table)

    def rows(self, table: LayoutTable) -> list[StageProblem]:
        """The layouts of a table, one by one."""
        return self.of.rows(table) if len(table) else []


def _unsettled(waiting: Pool) -> IntColumn:
    """Rows that no other of these may settle: the first of each family, then others of some.

    Source: `takes_longer`; what another row only adds time to waits for what is found of that one.
    """
    table, family = waiting.table, waiting.branch
    first = np.sort(np.unique(family, return_index=True)[1])
    settled, chosen = np.zeros(len(table), dtype=bool), []
    for row in dict.fromkeys([*first.tolist(), *range(len(table))]):
        if not settled[row]:
            chosen.append(row)
            one = table.take(np.array([row]))
            settled |= (family == family[row]) & takes_longer(table, one)
    return np.array(chosen)
