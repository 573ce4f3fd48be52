"""Layouts that look fast, split before their turn: at first, and of unlike node groups.

At first, siblings of the first answer, layouts with its degrees; and the answer of a similar job,
with siblings of its own. On unlike node groups, where bounds may be far too low, some layouts of
all degrees that wait are priced with balanced stages, and those that look fastest are split; then
siblings of the answer, until none of them is faster. Nothing is dropped here, so every bound of the
search stays what it was.
"""

from collections.abc import Sequence

import numpy as np

from trainplan.costmodel.columns import objects
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.layouts import LayoutTable
from trainplan.planner.policies import POLICY_COLUMNS, least_offload, with_fraction
from trainplan.planner.space import VARIANT_DEGREES, memory_policies, skeletons
from trainplan.planner.stages.search import TRIED_FIRST, UnevenSearch
from trainplan.planner.tree import Pool, class_extremes, first_of_each, time_minimal

MOST_SKELETONS = 1024
"""Skeletons that are priced with balanced stages, those with the smallest bounds.
Source: assumed, as below; they only choose what is tried."""
AT_ONCE = 512
"""Layouts priced between two looks at the clock: unlike groups take a second for 2,048."""
MOST_TRIED = 60
"""Layouts split before no other round is begun, however many workers there are."""
SIBLINGS, SIBLING_SHAPE = 8, ("micro_batch_size", "vpp")
"""Of the first answer, split before the work begins: of those alike in these columns one, for what
balanced stages say of the others is as far off. Source: measured; any number gives the same proved
answer."""
SIBLING_COLUMNS = ("micro_batch_size", "vpp", "schedule", *POLICY_COLUMNS)
"""Siblings that differ in these are tried beside each other, each with the least offload."""


def try_promising(splits: UnevenSearch) -> None:
    """Split what looks fast of all that waits, and siblings of the answer, while that helps."""
    leaders, tried, helps = _leaders(splits), set[Layout](), True
    while helps and len(tried) < MOST_TRIED:
        before = splits.incumbent_s
        _try(splits, leaders.prune(before), tried)
        if splits.budget.spent():
            break
        if splits.table is not None:
            _try(splits, _siblings(splits, splits.table.take(np.array([0]))), tried)
        helps = splits.incumbent_s < before and not splits.budget.spent()


def try_siblings(splits: UnevenSearch, answer: LayoutTable | None) -> None:
    """Split those siblings of an answer that look fastest, if there is one."""
    if answer is not None:
        siblings = _siblings(splits, answer.take(np.array([0])))
        some = siblings.pop_kinds(SIBLING_SHAPE, SIBLINGS)[0].table
        splits.try_first(some, exact=False)


def try_near(splits: UnevenSearch, near: LayoutTable | None) -> None:
    """Split the answer of a similar job, where it is legal here, and its siblings."""
    if near is not None:
        splits.try_first(near.take(splits.legal(near)))
        try_siblings(splits, near)


def _try(splits: UnevenSearch, promising: Pool, tried: set[Layout]) -> None:
    """Split the first few of some layouts that were not tried before."""
    rows = [row for row in range(len(promising.bound)) if promising.table.row(row) not in tried]
    some = promising.table.take(np.array(rows[:TRIED_FIRST], dtype=np.int64))
    tried.update(some.row(row) for row in range(len(some)))
    splits.try_first(some)


def _leaders(splits: UnevenSearch) -> Pool:
    """Layouts that wait and look fast, one of each degrees and number of virtual stages.

    As skeletons, each of those of layouts with the bound of its layout.
    """
    layouts = splits.layouts
    columns = dict.fromkeys(POLICY_COLUMNS, np.zeros(len(layouts.bound), dtype=np.int64))
    table = with_fraction(layouts.table.replaced(**columns), 0.0)
    waiting = splits.skeletons.joined(Pool.of(table, layouts.bound))
    waiting = waiting.take(np.lexsort((waiting.bound, -waiting.table.zero_stage)))
    waiting = waiting.take(
        first_of_each(waiting.table, (*VARIANT_DEGREES, "vpp", "micro_batch_size"))
    )
    table = waiting.pop_smallest(MOST_SKELETONS)[0].table
    min_memory = class_extremes(splits.space, table)[1]
    every = LayoutTable.concat([time_minimal(min_memory), min_memory])
    return _promising(splits, every, (*VARIANT_DEGREES, "vpp"))


def _siblings(splits: UnevenSearch, answer: LayoutTable) -> Pool:
    """Layouts of the degrees of an answer that look fastest, of each kind one."""
    space = splits.space
    if not splits.of.searched(answer)[0]:
        return splits.layouts.take(np.arange(0))
    whole = splits.of.job.training.global_batch_size // int(answer.dp[0])
    divisors = [size for size in space.micro_batches if whole % size == 0]
    sizes, parallel = np.meshgrid(divisors, (0, 1))
    nodes = answer.take(np.zeros(sizes.size, dtype=np.int64)).replaced(
        micro_batch_size=sizes.ravel(),
        sequence_parallel=parallel.ravel(),
        stages=objects([None] * sizes.size),
    )
    legal = skeletons(space, splits.rule_filter, nodes).table
    if not len(legal):
        return splits.layouts.take(np.arange(0))
    return _promising(splits, memory_policies(space, legal)[0], SIBLING_COLUMNS)


def _promising(splits: UnevenSearch, table: LayoutTable, names: Sequence[str]) -> Pool:
    """Of some layouts with the least offload those that look fast, the fastest of each kind."""
    table = table.take(splits.of.searched(table))
    stages = splits.of.balanced(table)
    chosen, estimates = np.full(len(table), -1.0), np.full(len(table), np.inf)
    for start in range(0, len(table), AT_ONCE):
        if start and splits.budget.spent():
            break
        pick = np.arange(start, min(start + AT_ONCE, len(table)))
        some, ranges = table.take(pick), splits.of.ranges
        priced, memory_bytes = splits.of.split(some.replaced(stages=stages[pick]))
        legal = np.array([splits.legal(with_fraction(some, one.least)) for one in ranges])
        chosen[pick] = least_offload(priced.memory, memory_bytes, ranges, legal)
        fits = pick[chosen[pick] >= 0]
        if not len(fits):
            continue
        rows = with_fraction(table.take(fits), chosen[fits])
        rows = rows.replaced(stages=stages[fits])
        estimates[fits] = splits.of.split(rows)[0].step_seconds
    every = with_fraction(table, np.maximum(chosen, 0))
    pool = Pool.of(every, estimates).prune(splits.incumbent_s)
    pool = pool.pop_smallest(len(pool.bound))[0]
    return pool.take(first_of_each(pool.table, names))
