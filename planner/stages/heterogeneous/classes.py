"""Classes of policies of layouts in node groups that may fit and win; as `search.memory_bounds`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from trainplan.costmodel.layouts.rules import Rule
from trainplan.costmodel.layouts.table import FULL, LayoutTable
from trainplan.planner.search.memory_bounds import ends, most_offload
from trainplan.planner.search.pool import Pool
from trainplan.planner.space.grid import Space
from trainplan.planner.stages.heterogeneous.bounds import InGroups, steady_bound
from trainplan.planner.stages.heterogeneous.windows import Below, path_bound, window_bound
from trainplan.planner.work.budget import Deadline

ROWS_AT_ONCE = 2_048
"""Skeletons priced together: as many as `planner.work.partition.CHUNK_ROWS`, in several classes."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a class must do to hold an answer, and how it is priced."""

    space: Space
    rules: Sequence[Rule]
    priced: Callable[[LayoutTable], InGroups]
    margin: float
    """Share of device memory that must stay free."""
    best_s: float
    """Step time to beat."""
    budget: Deadline

    @property
    def below(self) -> Below:
        """What it must do, as bounds are asked."""
        return Below(self.margin, self.best_s)

    @property
    def late(self) -> bool:
        """Is there no time left? What is not looked at then keeps its bound in the proof."""
        return self.budget.seconds_left() <= 0


def by_order(
    bound: Callable[[Asked, Pool, Sequence[int]], Pool],
    asked: Asked,
    pool: Pool,
    orders: Sequence[Sequence[int]],
) -> Pool:
    """What a bound leaves of a pool that can still win; `family` is the order of the groups."""
    pool = pool.below(asked.best_s)
    parts = [pool.take(np.arange(0))]
    for family in np.unique(pool.family).tolist():
        own = np.flatnonzero(pool.family == family)
        for start in range(0, len(own), ROWS_AT_ONCE):
            some = pool.take(own[start : start + ROWS_AT_ONCE])
            parts.append(some if asked.late else bound(asked, some, orders[family]))
    return Pool.concat(parts)


def classes_in_groups(asked: Asked, skeletons: Pool, order: Sequence[int]) -> Pool:
    """The classes of some skeletons, each as a row of its own; the groups in an order.

    Source: as `planner.search.memory_bounds.ends`.
    """
    table = skeletons.table
    offload = most_offload(asked.space, asked.rules, table)
    fast, lean = ends(asked.space, table.replaced(offload_optimizer=offload))
    times = len(lean) // len(table)
    bound, family = np.tile(skeletons.bound, times), np.tile(skeletons.family, times)
    one = asked.priced(fast)
    bound = np.maximum(bound, steady_bound(one, order, one.again(asked.best_s)))
    rows = np.flatnonzero(bound < asked.best_s)
    if not len(rows):
        return skeletons.take(rows)
    both = _as_lean(asked.priced(fast.take(rows)), asked.priced(lean.take(rows)))
    again = one.again(asked.best_s)[rows]
    bound = np.maximum(bound[rows], window_bound(both, order, again, asked.below, updates=False))
    return Pool(lean.take(rows), bound, family[rows]).below(asked.best_s)


def along_paths(asked: Asked, some: Pool, order: Sequence[int]) -> Pool:
    """Classes with the bound of their fastest policy along paths; those that may still win."""
    full = some.table.recompute == FULL
    fast = some.table.replaced(
        recompute=np.where(full, FULL, 0),
        recompute_modules=np.zeros(len(full), dtype=np.int64),
        recompute_num_layers=full.astype(np.int64),
        offload_modules=np.zeros(len(full), dtype=np.int64),
    )
    priced = asked.priced(fast)
    again, both = priced.again(asked.best_s), _as_lean(priced, asked.priced(some.table))
    closer = path_bound(both, order, again, asked.below, updates=False)
    return Pool(some.table, np.maximum(some.bound, closer), some.family).below(asked.best_s)


def _as_lean(fast: InGroups, lean: InGroups) -> InGroups:
    """Layouts that take no longer than the ones and keep no more than the others."""
    priced = tuple(
        replace(one, table=other.table) for one, other in zip(fast.priced, lean.priced, strict=True)
    )
    costs = tuple(
        replace(one, kept_bytes=other.kept_bytes)
        for one, other in zip(fast.costs, lean.costs, strict=True)
    )
    return replace(fast, table=lean.table, priced=priced, costs=costs)
