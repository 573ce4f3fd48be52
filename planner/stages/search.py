"""The second half of a search: may another split of the layers be faster than the best even one?

    node       bounded by `node_bound_seconds`, which holds for every split
    skeleton   bounded by its states and by ranks that never wait
    class      of policies: bounded by its fastest and its memory-minimal policy
    layout     bounded by mean paths, then by the windows of its ranks
    split      simulated

Best first, as in `planner.tree`; a layout is opened only where its bound is below the best.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

import numpy as np

from trainplan.costmodel.columns import BoolColumn, FloatColumn, IntColumn
from trainplan.costmodel.layouts import LayoutTable, Rule, legal_rows
from trainplan.costmodel.timeline import EQUALS
from trainplan.planner.policies import (
    has_longer_passes,
    names_modules,
    recompute_allows_any_split,
    takes_longer,
    with_fraction,
    with_least_offload,
)
from trainplan.planner.space import RuleFilter, Space, skeletons
from trainplan.planner.stages.bounds.mean_paths import PathPool
from trainplan.planner.stages.problem.of_layouts import exactly
from trainplan.planner.stages.problem.problem import StageProblem
from trainplan.planner.stages.solve.best_split import BoundFamily, families
from trainplan.planner.stages.solve.listed import SplitResult
from trainplan.planner.stages.tasks import (
    BestSplit,
    BestSplits,
    Bounding,
    Question,
    SplitContext,
    SplitKey,
    SplitMember,
    roots_of,
)
from trainplan.planner.tree import (
    Pool,
    UnevenResult,
    class_extremes,
    classes_with_policies,
    policies_of,
)
from trainplan.planner.work import ALONE, AffinityPartition, Budget, Workers

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
        members: Sequence[SplitMember] = (),
        paths: PathPool | None = None,
    ) -> None:
        self.of, self.rules, self.incumbent_s = of, rules, incumbent_s
        self.members = members if len(members) > 1 else ()
        self.budget, self.workers = budget, workers
        self.partition = AffinityPartition(workers.parts)
        self.space = Space(of, any_vpp=not of.alike)
        self.rule_filter = RuleFilter(of.job, rules)
        self.roots = (roots or roots_of(of, rules)).prune(incumbent_s)
        self.nodes = self.roots.take(self.roots.table.pp > 1)
        self.skeletons = self.layouts = self.nodes.take(np.arange(0))
        self.pool = PathPool(alike=of.alike) if paths is None else paths
        self.num_simulated = 0
        self.results: dict[tuple[int, SplitKey], SplitResult] = {}
        """What was found of layouts: one that is tried again is not split again."""
        self.table: LayoutTable | None = None
        self.job = of.job
        """With the settings of that layout."""
        self.expanded = 0
        """Layouts opened so far, a skeleton counting as a fraction of one."""
        self.turn, self.nodes_at_once = 0, NODES_AT_ONCE
        self.num_skeletons = 0
        """Skeletons opened so far."""
        self.left = {True: np.inf, False: np.inf}
        """Smallest bound of layouts that were opened and are not settled: of those with one virtual
        stage a rank, and of others."""

    def try_first(self, table: LayoutTable, *, exact: bool = True) -> None:
        """Split some layouts before any other: a good answer soon, and fewer that may beat it.

        Splits offload exactly what the table says, or that at least.
        """
        table = table.take(np.arange(min(len(table), TRIED_FIRST)))
        table = table.take(self.of.searched(table))
        rows = [exactly(row) if exact else row for row in self.rows(table)]
        whole = Pool.of(table, np.full(len(table), np.inf))
        for row, found in self._split(whole, rows, whole.bound):
            self.update_incumbent(found, row)

    def update_incumbent(self, found: SplitResult, row: StageProblem) -> None:
        """Take note of a split, and drop what is no faster."""
        self.expanded += 1
        self.num_simulated += found.num_simulated
        if found.layers is not None and found.step_time_s * EQUALS < self.incumbent_s:
            self.table, self.job = found.of(row), row.job
            self.lower(found.step_time_s)

    def lower(self, incumbent_s: float) -> None:
        """An answer is known that takes so long: drop what is no faster."""
        self.incumbent_s = min(self.incumbent_s, incumbent_s)
        self.skeletons = self.skeletons.prune(self.incumbent_s)
        self.layouts = self.layouts.prune(self.incumbent_s)

    def known(self) -> UnevenResult:
        """What is known so far."""
        return UnevenResult(
            self.table, self.incumbent_s, self.bound, self.num_simulated, self.expanded, self.job
        )

    def under(self, number: int) -> UnevenSearch:
        """A search of one member, for layouts split before their turn; it opens nothing itself."""
        if not self.members:
            return self
        own, nothing = self.members[number], self.roots.take(np.arange(0))
        known = self.incumbent_s, self.budget, self.workers
        one = UnevenSearch(own.of, own.rules, *known, roots=nothing, paths=self.pool)
        one.skeletons, one.layouts = self.skeletons, self.layouts
        return one

    def beyond(self, paths: PathPool) -> UnevenSearch:
        """The same search of splits whose virtual stages of a rank hold any numbers of layers."""
        members = [replace(one, of=replace(one.of, alike=False)) for one in self.members]
        of, known = replace(self.of, alike=False), (self.incumbent_s, self.budget, self.workers)
        return type(self)(of, self.rules, *known, roots=self.roots, members=members, paths=paths)

    @property
    def value(self) -> float:
        """Seconds to beat."""
        return self.incumbent_s

    @property
    def done(self) -> float:
        """Nobody knows how much is left: the even stages are done."""
        return 1.0

    @property
    def bound(self) -> float:
        """No layout is faster, by what is known."""
        return min(self.bound_of(one_stage=True), self.bound_of(one_stage=False))

    def bound_of(self, *, one_stage: bool) -> float:
        """As `bound`, of layouts with one virtual stage a rank, or of those with more."""
        waiting = (self.skeletons, self.layouts)
        own = [pool.take((pool.table.vpp == 1) == one_stage).smallest for pool in waiting]
        return min(self.nodes.smallest, *own, self.left[one_stage], self.incumbent_s)

    @property
    def smallest(self) -> float:
        """Smallest bound of what waits."""
        return min(self.smallest_branch, self.layouts.smallest)

    @property
    def smallest_branch(self) -> float:
        """Of nodes and skeletons."""
        return min(self.nodes.smallest, self.skeletons.smallest)

    def step(self) -> None:
        """Open what is deepest: a better answer, found early, leaves fewer branches to open.

        Layouts wait in turns, or nothing else would be opened while there are any.
        """
        self.turn += 1
        first = self.layouts.smallest < self.smallest_branch
        if first or (self.turn % TURNS == 0 and len(self.layouts.bound)):
            self._expand_layouts(families_too=first)
        else:
            self.open_branches()

    def open_branches(self) -> None:
        """Open skeletons, or nodes where there are none."""
        if len(self.skeletons.bound):
            order = self.skeletons.by_shape
            batch = self.skeletons.take(order[:SKELETONS_AT_ONCE])
            self.skeletons = self.skeletons.take(order[SKELETONS_AT_ONCE:])
            self.expanded += 1
            self._expand_skeletons(batch.prune(self.incumbent_s))
        else:
            batch, self.nodes = self.nodes.pop_smallest(self.nodes_at_once)
            self.nodes_at_once = min(2 * self.nodes_at_once, MOST_NODES)
            self.expanded += 1
            self._expand_nodes(batch.prune(self.incumbent_s))

    def _expand_layouts(self, *, families_too: bool) -> None:
        """Split the fastest layout of some skeletons: it may settle the others of its own.

        Where there are few skeletons, some of the others too, but none that only take longer.
        """
        self._open_members()
        order = np.argsort(self.layouts.bound, kind="stable")[: 4 * LAYOUTS_AT_ONCE]
        if self.members:
            order = order[self.layouts.member[order] >= 0]
        chosen = order[self.layouts.take(order).unsettled[:LAYOUTS_AT_ONCE]]
        if families_too:
            self._bound_families(chosen)
        chosen = chosen[self.layouts.bound[chosen] < self.incumbent_s]
        batch, rest = self.layouts.take(chosen), np.ones(len(self.layouts.bound), dtype=bool)
        rest[chosen] = False
        self.layouts = self.layouts.take(rest)
        enough = (batch.bound * STEP).clip(max=self.incumbent_s)
        for i, (row, found) in enumerate(self._split(batch, self._rows(batch), enough)):
            self._record_bound(row, found, batch.take(np.array([i])), enough[i])

    def _open_members(self) -> None:
        """The fastest layouts of a group under each combination of settings that allows them."""
        order = np.argsort(self.layouts.bound, kind="stable")[: 4 * LAYOUTS_AT_ONCE]
        whole = np.zeros(len(self.layouts.bound), dtype=bool)
        whole[order] = self.layouts.member[order] < 0
        if not self.members or not whole.any():
            return
        batch, found = self.layouts.take(whole), [self.layouts.take(~whole)]
        for number, member in enumerate(self.members):
            rows = batch.take(member.legal(batch.table) & self._allows(batch.table))
            offload = self._bounded(member.of.least_offload, rows.table)
            fits = np.isfinite(offload)
            rows, table = rows.take(fits), with_fraction(rows.table, offload).take(fits)
            bound = np.maximum(rows.bound, self._bounded(member.of.layouts, table, FEWEST))
            own = Pool.of(table, bound, rows.branch + number + 1, number)
            found.append(own.prune(self.incumbent_s))
        self.layouts = Pool.concat(found)

    def _rows(self, pool: Pool) -> list[StageProblem]:
        """The layouts of some branches, one by one, each under its settings."""
        if not self.members:
            return self.rows(pool.table)
        rows: dict[int, StageProblem] = {}
        for number in np.unique(pool.member).tolist():
            own, of = np.flatnonzero(pool.member == number), self.members[number].of
            rows.update(zip(own.tolist(), of.rows(pool.table.take(own)), strict=True))
        return [rows[place] for place in range(len(pool.bound))]

    def _bound_families(self, chosen: IntColumn) -> None:
        """Raise the bounds of some layouts and of those that differ in what they recompute."""
        waiting = self.layouts
        number = families(waiting.table, waiting.branch)
        wanted = [one for one in np.unique(number[chosen]).tolist() if one >= 0]
        members = [np.flatnonzero(number == one) for one in wanted]
        members = [some for some in members if len(some) >= FEWEST_OF_FAMILY]
        if not members:
            return
        rows, tasks, start = self._rows(waiting.take(np.concatenate(members))), [], 0
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
        self, batch: Pool, rows: list[StageProblem], target_bound_s: FloatColumn
    ) -> list[tuple[StageProblem, SplitResult]]:
        """Layouts and their best splits; enough is to know that none is faster than some time."""
        tasks = [
            BestSplit(row, self.incumbent_s, self.pool.alone(row.pipeline), enough)
            for row, enough in zip(rows, target_bound_s.tolist(), strict=True)
        ]
        keys = list(zip(batch.member.tolist(), (task.key for task in tasks), strict=True))
        found = [self.results.get(key) for key in keys]
        new = np.array([i for i, known in enumerate(found) if known is None], dtype=np.int64)
        parts = self.partition.interleaved(batch.table.take(new))
        some = [BestSplits(tuple(tasks[new[i]] for i in part)) for part in parts]
        answers = chain(*self.workers.run(some, self.budget))
        for i, (result, pool) in zip(chain(*(new[part] for part in parts)), answers, strict=True):
            found[i] = self.results[keys[i]] = result
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
            one_stage = bool(one.table.vpp[0] == 1)
            self.left[one_stage] = min(self.left[one_stage], bound)
            return
        slower = np.zeros(len(self.layouts.bound), dtype=bool)
        siblings = self.layouts.branch == one.branch[0]
        if siblings.any() and not found.memory_decides:
            slower = siblings & takes_longer(self.layouts.table, one.table)
        hides = slower & has_longer_passes(self.layouts.table, one.table)
        least = np.where(hides, bound - row.may_hide_s if hides.any() else bound, bound)
        raised = np.where(slower, np.maximum(self.layouts.bound, least), self.layouts.bound)
        self.layouts = replace(self.layouts, bound=raised)
        again = replace(one, bound=np.array([bound]))
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
        number = (skeleton + self.num_skeletons) * (len(self.members) + 1)
        waiting = Pool.of(every, bound, number)
        self.num_skeletons += len(table)
        self.layouts = self.layouts.joined(waiting.prune(self.incumbent_s))

    def _bounded(
        self, ask: Question, table: LayoutTable, fewest: int = PRICED_TOGETHER
    ) -> FloatColumn:
        """The answer to a question for every row of a table, however many workers share it."""
        parts, means = self.partition.by_worker(table, fewest), self.pool.means
        pools = [PathPool(means=dict(means), alike=self.pool.alike) for _ in parts]
        pairs = zip(parts, pools, strict=True)
        tasks = [Bounding(ask, table.take(rows), self.incumbent_s, pool) for rows, pool in pairs]
        bound = np.zeros(len(table))
        for rows, (found, pool) in zip(parts, self.workers.run(tasks, self.budget), strict=True):
            bound[rows] = found
            self.pool.learn(pool)
        return bound

    def legal(self, table: LayoutTable) -> BoolColumn:
        """Which rows break no rule under any split."""
        return legal_rows(self.of.job, self.rules, table) & self._allows(table)

    def _allows(self, table: LayoutTable) -> BoolColumn:
        """Which rows have policies that are some and allow any split."""
        return recompute_allows_any_split(self.of.traits, table) & names_modules(table)

    def rows(self, table: LayoutTable) -> list[StageProblem]:
        """The layouts of a table, one by one."""
        return self.of.rows(table) if len(table) else []
