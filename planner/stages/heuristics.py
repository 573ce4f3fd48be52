"""Layouts that look fast, split before their turn: at first, and where a proof is not reached.

At first, two siblings of the first answer, layouts with its degrees; and the answer of a similar
job, with two siblings of its own. At last, bounds of what waits may be far too low, and then the
best first was not soon a good answer: some layouts of all degrees that wait are priced with
balanced stages, and those that look fastest are split; then siblings of the answer, until none of
them is faster. Nothing is dropped here, so every bound of the search stays what it was.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trainplan.costmodel.layouts.table import (
    FloatColumn,
    LayoutTable,
    ObjectColumn,
    distinct,
    objects,
)
from trainplan.costmodel.spec.layout import Layout, split
from trainplan.costmodel.step.estimate import Priced, price
from trainplan.planner.search.memory_bounds import ends, fastest
from trainplan.planner.search.pool import Pool, first_of_each
from trainplan.planner.space.grid import FAMILY, policies, skeletons
from trainplan.planner.space.policies import POLICY_COLUMNS
from trainplan.planner.space.uneven import may_split
from trainplan.planner.stages.search import TRIED_FIRST, FreeSplits
from trainplan.planner.stages.solve.windows import balanced, stages_of
from trainplan.planner.work.partition import CHUNK_ROWS

MOST_SKELETONS = 1024
"""Skeletons that are priced with balanced stages, those with the smallest bounds.
Source: assumed, as below; they only choose what is tried."""
MOST_TRIED = 60
"""Layouts split before no other round is begun, however many workers there are."""
SIBLINGS = 2
"""Of the first answer, split before the work begins. Source: measured; any number gives the same
proved answer."""
KIND = ("micro_batch_size", "vpp", "schedule", *POLICY_COLUMNS)
"""Siblings that differ in these are tried beside each other, each with the least offload."""


def try_likely(splits: FreeSplits, answer: LayoutTable | None = None) -> None:
    """Split what looks fast of all that waits, and siblings of the answer, while that helps.

    The answer is the first row of a table where the search has found no better one.
    """
    leaders, before, tried = _leaders(splits), np.inf, set[Layout]()
    while splits.best_s < before and not splits.budget.spent():
        before = splits.best_s
        _try(splits, leaders.below(before), tried)
        answer = answer if splits.table is None else splits.table
        if answer is not None:
            _try(splits, _siblings(splits, answer.take(np.array([0]))), tried)
        if len(tried) >= MOST_TRIED:
            break


def try_siblings(splits: FreeSplits, answer: LayoutTable | None) -> None:
    """Split those siblings of an answer that look fastest, if there is one."""
    if answer is not None:
        siblings = _siblings(splits, answer.take(np.array([0])))
        splits.try_first(siblings.split(SIBLINGS)[0].table)


def try_near(splits: FreeSplits, near: LayoutTable | None) -> None:
    """Split the answer of a similar job, where it is legal here, and its siblings."""
    if near is not None:
        splits.try_first(near.take(splits.legal(near)))
        try_siblings(splits, near)


def _try(splits: FreeSplits, likely: Pool, tried: set[Layout]) -> None:
    """Split the first few of some layouts that were not tried before."""
    rows = [row for row in range(len(likely.bound)) if likely.table.row(row) not in tried]
    some = likely.table.take(np.array(rows[:TRIED_FIRST], dtype=np.int64))
    tried.update(some.row(row) for row in range(len(some)))
    splits.try_first(some)


def _leaders(splits: FreeSplits) -> Pool:
    """Layouts that wait and look fast, one of each degrees and number of virtual stages."""
    waiting = splits.skeletons.joined(_skeletons_of(splits.layouts))
    waiting = waiting.take(np.lexsort((waiting.bound, -waiting.table.zero_stage)))
    waiting = waiting.take(first_of_each(waiting.table, (*FAMILY, "vpp", "micro_batch_size")))
    table = waiting.split(MOST_SKELETONS)[0].table
    lean = ends(splits.space, table)[1]
    every = LayoutTable.concat([fastest(lean), lean])
    return _likely(splits, every, (*FAMILY, "vpp"))


def _skeletons_of(layouts: Pool) -> Pool:
    """Skeletons of some layouts, each with the bound of its layout."""
    none = np.zeros(len(layouts.bound), dtype=np.int64)
    columns = dict.fromkeys(POLICY_COLUMNS, none)
    table = layouts.table.replaced(**columns, offload_optimizer=np.zeros(len(none)))
    return Pool.of(table, layouts.bound)


def _siblings(splits: FreeSplits, answer: LayoutTable) -> Pool:
    """Layouts of the degrees of an answer that look fastest, of each kind one."""
    space = splits.space
    if not may_split(splits.of.traits, answer)[0]:
        return splits.layouts.take(np.arange(0))
    sizes, parallel = np.meshgrid(space.micro_batches, (0, 1))
    nodes = answer.take(np.zeros(sizes.size, dtype=np.int64)).replaced(
        micro_batch_size=sizes.ravel(),
        sequence_parallel=parallel.ravel(),
        stages=objects([None] * sizes.size),
    )
    legal = skeletons(space, splits.sieve, nodes).table
    if not len(legal):
        return splits.layouts.take(np.arange(0))
    return _likely(splits, policies(space, legal)[0], KIND)


def _likely(splits: FreeSplits, table: LayoutTable, names: Sequence[str]) -> Pool:
    """Of some layouts with the least offload those that look fast, the fastest of each kind."""
    table = table.take(may_split(splits.of.traits, table))
    stages = _balanced(splits, table)
    chosen, looks = np.full(len(table), -1.0), np.full(len(table), np.inf)
    for start in range(0, len(table), CHUNK_ROWS):
        pick = np.arange(start, min(start + CHUNK_ROWS, len(table)))
        chosen[pick] = _least_offload(splits, table.take(pick), stages[pick])
        fits = pick[chosen[pick] >= 0]
        if not len(fits):
            continue
        rows = table.take(fits).replaced(offload_optimizer=chosen[fits])
        looks[fits] = _priced(splits, rows, stages[fits]).step_seconds
    every = table.replaced(offload_optimizer=np.maximum(chosen, 0))
    pool = Pool.of(every, looks).below(splits.best_s)
    pool = pool.split(len(pool.bound))[0]
    return pool.take(first_of_each(pool.table, names))


def _balanced(splits: FreeSplits, table: LayoutTable) -> ObjectColumn:
    """Balanced stages of every row, by its pipeline alone."""
    first, kind = distinct(table.pp, table.vpp, table.schedule)
    rows = splits.rows(table.take(first))
    stages = [split(stages_of(row, balanced(row))[0].tolist()) for row in rows]
    return objects([stages[number] for number in kind.tolist()])


def _least_offload(splits: FreeSplits, table: LayoutTable, stages: ObjectColumn) -> FloatColumn:
    """Smallest legal fraction of the optimizer with which rows with stages fit; -1 for none."""
    chosen, memory = np.full(len(table), -1.0), _priced(splits, table, stages).memory
    for fraction in splits.of.traits.offloading.optimizer_fractions:
        legal = splits.legal(table.replaced(offload_optimizer=np.full(len(table), fraction)))
        fits = memory.used_with_offload(fraction) <= splits.of.memory_bytes
        chosen = np.where((chosen < 0) & legal & fits, fraction, chosen)
    return chosen


def _priced(splits: FreeSplits, table: LayoutTable, stages: ObjectColumn) -> Priced:
    of = splits.of
    return price(of.job, of.machine, of.traits, table.replaced(stages=stages))
