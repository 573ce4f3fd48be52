"""Layouts whose pipeline ranks live in node groups: the search of clusters with unlike groups.

    class      every degree with whole pipeline ranks in every group, under every order of groups,
               and a class of policies; bounded by `steady_bound`, then by `path_bound`
    layout     bounded by the same
    split      layers of every stage: a master problem and a judge, as in `planner.split`

Best first, as in `planner.search`; nothing is dropped but what a bound shows to be no faster.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from costmodel.block_costs import layer_counts
from costmodel.estimate import with_overhead, without_overhead
from costmodel.groups import rank_groups
from costmodel.machine import Machine
from costmodel.mixed import price_mixed
from costmodel.proof import EQUALS
from costmodel.rules import Rule
from costmodel.schedules.program import IntMatrix
from costmodel.spec.job import Job
from costmodel.table import BoolColumn, LayoutTable, objects
from planner.budget import Budget
from planner.free_splits import may_split
from planner.lean import policies_of
from planner.mixed_bounds import (
    InGroups,
    likely_seconds,
    may_fit,
    path_bound,
    room,
    steady_bound,
)
from planner.mixed_classes import Asked, along_paths, by_order, classes_in_groups
from planner.mixed_pools import first_of_each, joined, orders_of, parts_of, uneven
from planner.mixed_problem import MixedRow, mixed_rows
from planner.path_pool import PathPool
from planner.pool import Pool
from planner.solvers.filling import Counts
from planner.solvers.milp import solve
from planner.space import Sieve, Space, nodes, policies, skeletons

SKELETONS_AT_ONCE = 16
TRIES = 4
"""Splits of one layout that the master proposes; beyond them its bound stays in the proof."""

DIVE_SKELETONS, DIVE_LAYOUTS, DIVE_BALANCED, DIVE_RUNS = 2, 2, 64, 8
"""To begin with: skeletons and layouts of each tp, cp, pp and vpp, layouts that get a balanced
split, and layouts on the clock.
Source: assumed; they only choose the first answer."""
MOST_STEPS, WITH_LIMIT = 30, 1 << 30
"""Batches opened without and with a time limit. Source: assumed; some seconds for 64 GPUs."""
CLOSE = 1e-4
"""Share of a step below which a better split is not looked for; it stays in the proof. Source:
assumed; far less than the model knows of a step."""


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


class MixedSearch:
    """One run; `run` returns what it found."""

    def __init__(
        self, job: Job, machine: Machine, rules: Sequence[Rule], margin: float, best_s: float
    ) -> None:
        self.job, self.machine, self.rules, self.margin = job, machine, rules, margin
        self.grid_rules = [rule for rule in rules if "stages" not in rule.columns]
        self.best_s, self.left, self.judged = best_s, np.inf, 0
        self.space, self.paths = Space(job), PathPool()
        self.found: dict[tuple[int, ...], tuple[float, LayoutTable]] = {}
        self.orders = orders_of(len(job.cluster.groups))
        self.skeletons = self._roots()
        self.layouts = self.classes = self.skeletons.take(np.arange(0))

    def run(self, budget: Budget, top: int) -> MixedFound:
        """Open layouts until none can win or the budget is spent."""
        complete, self.budget = True, budget
        self._dive()
        self._polish(budget)
        self.classes = by_order(classes_in_groups, self._asked, self.skeletons, self.orders)
        self.skeletons = self.skeletons.take(np.arange(0))
        steps = MOST_STEPS if np.isinf(budget.seconds_left()) else WITH_LIMIT
        for _ in range(steps):
            if (smallest := self._smallest()) >= self.best_s:
                break
            if budget.spent():
                complete = False
                break
            if self.layouts.smallest == smallest:
                batch, self.layouts = self.layouts.split(1)
                self._split(batch, budget)
            elif self.skeletons.smallest == smallest:
                batch, self.skeletons = self.skeletons.split(SKELETONS_AT_ONCE)
                self._open(batch.below(self.best_s))
            else:
                batch, self.classes = self.classes.split(SKELETONS_AT_ONCE)
                closer = by_order(along_paths, self._asked, batch, self.orders)
                self.skeletons = self.skeletons.joined(closer)
            budget.report(0.0, self._smallest())
        ranked = sorted(self.found.values(), key=lambda pair: pair[0])[:top]
        bound = min(self._smallest(), self.left, self.best_s)
        return MixedFound(tuple(ranked), bound, self.judged, complete)

    def _smallest(self) -> float:
        return min(self.classes.smallest, self.skeletons.smallest, self.layouts.smallest)

    def _roots(self) -> Pool:
        """Skeletons with whole ranks in every group, under every order; `family` is the order."""
        sieve = Sieve(self.job, self.rules)
        table = nodes(self.space, sieve).table
        gpus = table.tp * table.cp * table.dp
        whole = [group.num_gpus % gpus == 0 for group in self.job.cluster.groups]
        table = skeletons(self.space, sieve, table.take(np.all(whole, axis=0))).table
        parts = [Pool(table.take(np.arange(0)), np.zeros(0), np.zeros(0, dtype=np.int64))]
        for some in parts_of(table):
            for family, order in enumerate(self.orders):
                priced = self._priced(some)
                bound = steady_bound(priced, order, priced.again(np.inf))
                parts.append(Pool(some, bound, np.full(len(some), family)).below(self.best_s))
        return joined(parts)

    @property
    def _asked(self) -> Asked:
        best_s, budget = self.best_s, self.budget
        return Asked(self.space, self.rules, self._priced, self.margin, best_s, budget)

    def _open(self, batch: Pool) -> None:
        """Every recomputation and offload of skeletons that may still win."""
        for family in np.unique(batch.family).tolist():
            own = batch.take(batch.family == family)
            plain, _ = policies_of(self.space, own.table)
            for fraction in self.space.traits.offload_fractions:
                if self._asked.late:
                    self.left = min(self.left, own.smallest)
                    break
                some = plain.replaced(offload_optimizer=np.full(len(plain), fraction))
                for rule in self.grid_rules:
                    some = some.take(~rule.broken(self.job, some))
                pools = [Pool(p, np.zeros(len(p)), np.full(len(p), family)) for p in parts_of(some)]
                closer = [self._closer(one, family, fitting=True) for one in pools]
                self.layouts = joined([self.layouts, *closer])

    def _dive(self) -> None:
        """A good answer to begin with: balanced splits of the layouts that look fastest."""
        for family, order in enumerate(self.orders):
            own = self.skeletons.take(self.skeletons.family == family)
            if not len(own.bound) or (self.found and self._asked.late):
                continue
            priced = self._priced(own.table)
            looks = likely_seconds(priced, order, priced.again(np.inf))
            plain = np.flatnonzero(may_fit(priced, order, self.margin, np.inf))
            lean = plain[first_of_each(own.table.take(plain), looks[plain], DIVE_SKELETONS)]
            fast = first_of_each(own.table, looks, 1)
            some = own.table.take(np.union1d(lean, fast))
            every, _ = policies(self.space, some)
            for rule in self.grid_rules:
                every = every.take(~rule.broken(self.job, every))
            chosen = [every.take(np.arange(0))]
            for part in parts_of(every):
                if self._asked.late and len(chosen) > 1:
                    break
                priced = self._priced(part)
                keep = np.flatnonzero(may_fit(priced, order, self.margin, np.inf))
                mean = np.ceil(self.job.model.num_hidden_layers / (part.pp * part.vpp))
                looks = likely_seconds(priced, order, priced.again_of(mean))[keep]
                first = keep[first_of_each(part.take(keep), looks, DIVE_LAYOUTS)]
                chosen.append(part.take(first))
            self._try_balanced(LayoutTable.concat(chosen), order)

    def _try_balanced(self, table: LayoutTable, order: Sequence[int]) -> None:
        """Run the schedules of the fastest of some layouts that fit with a balanced split."""
        if not len(table):
            return
        priced = self._priced(table)
        mean = np.ceil(self.job.model.num_hidden_layers / (table.pp * table.vpp))
        looks = likely_seconds(priced, order, priced.again_of(mean))
        some = np.argsort(looks, kind="stable")[:DIVE_BALANCED]
        rows = self._rows(table.take(some), order)
        splits = (self._balanced(row, order)[0].tolist() for row in rows)
        stages = objects(row.stages(tuple(one)) for row, one in zip(rows, splits, strict=True))
        table = table.take(some).replaced(stages=stages)
        mixed = price_mixed(self.job, self.machine, self.space.traits, table)
        fits = np.flatnonzero(mixed.fits(self.machine, self.margin))
        looks = np.maximum(looks[some], mixed.whole.step_seconds)[fits]
        first = fits[np.argsort(looks, kind="stable")[:DIVE_RUNS]]
        for one in (one for one in first.tolist() if not (self.found and self._asked.late)):
            row = self._rows(table.take(np.array([one])), order)[0]
            self._try(row, np.array([[stage.layers for stage in table.stages[one]]]))

    def _closer(self, pool: Pool, family: int, *, fitting: bool = False) -> Pool:
        """Rows that may still win, with the larger of all bounds."""
        order, priced = self.orders[family], self._priced(pool.table)
        bound = np.maximum(pool.bound, steady_bound(priced, order, priced.again(self.best_s)))
        keep = bound < self.best_s
        if fitting:
            keep &= may_fit(priced, order, self.margin, self.best_s)
        if not keep.any():
            return pool.take(keep)
        pool = Pool(pool.table, bound, pool.family).take(keep)
        priced = self._priced(pool.table)
        closer = path_bound(priced, order, priced.again(self.best_s))
        return Pool(pool.table, np.maximum(pool.bound, closer), pool.family).below(self.best_s)

    def _priced(self, table: LayoutTable) -> InGroups:
        return InGroups.of(self.job, self.machine, self.space.traits, table)

    def _split(self, batch: Pool, budget: Budget) -> None:
        """The best split of one layout."""
        order, table = self.orders[int(batch.family[0])], batch.table
        row = self._rows(table, order)[0]
        free = self._free(row)
        self._try(row, self._balanced(row, order))
        bound = float(batch.bound[0])
        if not free:
            bound = np.inf
        elif may_split(self.space.traits, table)[0]:  # else no paths bound all splits
            bound = max(bound, self._solve(row, budget))
        if bound * EQUALS < self.best_s:
            self.left = min(self.left, bound)

    def _polish(self, budget: Budget) -> None:
        """Other splits of the best layout found so far."""
        if not self.found or self._asked.late:
            return
        table = min(self.found.values(), key=lambda pair: pair[0])[1]
        ranks = rank_groups(table.stages[0], int(table.schedule[0]), int(table.pp[0])).tolist()
        row = self._rows(table, tuple(dict.fromkeys(ranks)))[0]
        if self._free(row) and may_split(self.space.traits, table)[0]:
            self._solve(row, budget)

    def _balanced(self, row: MixedRow, order: Sequence[int]) -> IntMatrix:
        """A split that uses the ranks alike, or the even one where that is asked; (1, stage)."""
        if not self._free(row):
            return np.array([row.even])
        priced, one = self._priced(row.one.table), np.array([0])
        usual = max(layer_counts(self.job), key=lambda pair: pair[1])[0]
        most = room(priced, order, self.margin, np.inf, rows=one, kind=usual)
        return row.balanced(most[:, 0])

    def _free(self, row: MixedRow) -> bool:
        """May the layers of a layout be split unevenly?"""
        return bool(self._allowed(row, np.array([uneven(row.even)]))[0])

    def _rows(self, table: LayoutTable, order: Sequence[int]) -> list[MixedRow]:
        """The layouts of a table, without their stages, the groups in an order."""
        traits = self.space.traits
        return mixed_rows(self.job, self.machine, traits, table, order, margin=self.margin)

    def _solve(self, row: MixedRow, budget: Budget) -> float:
        """Seconds that no split of a layout is below; the best one is found on the way."""
        bound, refused = 0.0, list[Counts]()
        for _ in range(TRIES):
            if budget.seconds_left() <= 0:
                return bound
            problem = replace(row.filling(self.paths.of(row.one.pipeline)), refused=tuple(refused))
            filled = solve(problem, budget, without_overhead(self.machine, self.best_s))
            seconds = with_overhead(self.machine, np.array([filled.lower_bound]))
            bound = max(bound, float(seconds[0]))
            if filled.counts is None or bound * (1 + CLOSE) >= self.best_s:
                return bound
            refused.append(filled.counts)
            self._try(row, filled.counts.sum(axis=1)[None])
        return bound

    def _try(self, row: MixedRow, layers: IntMatrix) -> None:
        """Run the schedule of a split, and note its path and whether it is the best one."""
        judged = row.judge(layers)
        self.paths.add(row.one.pipeline, judged.paths)
        self.judged += len(layers)
        seconds = float(judged.step_time_s[0])
        key = tuple(int(getattr(row.one.table, name)[0]) for name in ("tp", "cp", "pp", "ep"))
        known = self.found.get(key, (np.inf, None))[0]
        if judged.fits[0] and seconds < known and self._allowed(row, layers)[0]:
            stages = objects([row.stages(tuple(layers[0].tolist()))])
            self.found[key] = seconds, row.one.table.replaced(stages=stages)
            self.best_s = min(self.best_s, seconds)

    def _allowed(self, row: MixedRow, layers: IntMatrix) -> BoolColumn:
        """Does a split break no rule?"""
        stages = objects([row.stages(tuple(split)) for split in layers.tolist()])
        table = row.one.table.replaced(stages=stages)
        return np.asarray(~np.any([rule.broken(self.job, table) for rule in self.rules], axis=0))
