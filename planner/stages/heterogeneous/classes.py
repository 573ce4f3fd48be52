"""Classes of policies of layouts in node groups that may fit and win; as `search.memory_bounds`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from trainplan.costmodel.layouts import LayoutTable, Rule
from trainplan.costmodel.layouts.table import FULL
from trainplan.planner.space import Space
from trainplan.planner.stages.heterogeneous.bounds import Grouped, steady_bound
from trainplan.planner.stages.heterogeneous.windows import SplitLimits, path_bound, window_bound
from trainplan.planner.tree import Pool
from trainplan.planner.tree.memory_bounds import class_extremes, most_offload
from trainplan.planner.work import Deadline

ROWS_AT_ONCE = 2_048
"""Skeletons priced together: as many as `work.partition.PRICED_AT_ONCE`, in several classes."""


@dataclass(frozen=True, slots=True)
class BoundingContext:
    """What a class must do to hold an answer, and how it is priced."""

    space: Space
    rules: Sequence[Rule]
    priced: Callable[[LayoutTable], Grouped]
    margin: float
    """Share of device memory that must stay free."""
    incumbent_s: float
    """Step time to beat."""
    budget: Deadline

    @property
    def split_limits(self) -> SplitLimits:
        """What it must do, as bounds are asked."""
        return SplitLimits(self.margin, self.incumbent_s)

    @property
    def out_of_time(self) -> bool:
        """Is there no time left? What is not looked at then keeps its bound in the proof."""
        return self.budget.seconds_left() <= 0


def by_order(
    bound: Callable[[BoundingContext, Pool, Sequence[int]], Pool],
    context: BoundingContext,
    pool: Pool,
    orders: Sequence[Sequence[int]],
) -> Pool:
    """What a bound leaves of a pool that can still win; `branch` is the order of the groups."""
    pool = pool.prune(context.incumbent_s)
    parts = [pool.take(np.arange(0))]
    for order_index in np.unique(pool.branch).tolist():
        own = np.flatnonzero(pool.branch == order_index)
        for start in range(0, len(own), ROWS_AT_ONCE):
            some = pool.take(own[start : start + ROWS_AT_ONCE])
            parts.append(some if context.out_of_time else bound(context, some, orders[order_index]))
    return Pool.concat(parts)


def classes_in_groups(context: BoundingContext, skeletons: Pool, order: Sequence[int]) -> Pool:
    """The classes of some skeletons, each as a row of its own; the groups in an order.

    Source: as `planner.tree.memory_bounds.class_extremes`.
    """
    table = skeletons.table
    offload = most_offload(context.space, context.rules, table)
    fast, min_memory = class_extremes(context.space, table.replaced(offload_optimizer=offload))
    times = len(min_memory) // len(table)
    bound, order_index = np.tile(skeletons.bound, times), np.tile(skeletons.branch, times)
    one = context.priced(fast)
    bound = np.maximum(bound, steady_bound(one, order, one.recomputed_share(context.incumbent_s)))
    rows = np.flatnonzero(bound < context.incumbent_s)
    if not len(rows):
        return skeletons.take(rows)
    both = _with_min_memory(context.priced(fast.take(rows)), context.priced(min_memory.take(rows)))
    recomputed = one.recomputed_share(context.incumbent_s)[rows]
    bound = np.maximum(
        bound[rows], window_bound(both, order, recomputed, context.split_limits, updates=False)
    )
    return Pool(min_memory.take(rows), bound, order_index[rows]).prune(context.incumbent_s)


def along_paths(context: BoundingContext, some: Pool, order: Sequence[int]) -> Pool:
    """Classes with the bound of their fastest policy along paths; those that may still win."""
    full = some.table.recompute == FULL
    fast = some.table.replaced(
        recompute=np.where(full, FULL, 0),
        recompute_modules=np.zeros(len(full), dtype=np.int64),
        recompute_num_layers=full.astype(np.int64),
        offload_modules=np.zeros(len(full), dtype=np.int64),
    )
    priced = context.priced(fast)
    recomputed, both = (
        priced.recomputed_share(context.incumbent_s),
        _with_min_memory(priced, context.priced(some.table)),
    )
    closer = path_bound(both, order, recomputed, context.split_limits, updates=False)
    return Pool(some.table, np.maximum(some.bound, closer), some.branch).prune(context.incumbent_s)


def _with_min_memory(fast: Grouped, min_memory: Grouped) -> Grouped:
    """Layouts that take no longer than the ones and keep no more than the others."""
    priced = tuple(
        replace(one, table=other.table)
        for one, other in zip(fast.priced, min_memory.priced, strict=True)
    )
    costs = tuple(
        replace(one, saved_bytes=other.saved_bytes)
        for one, other in zip(fast.costs, min_memory.costs, strict=True)
    )
    return replace(fast, table=min_memory.table, priced=priced, costs=costs)
