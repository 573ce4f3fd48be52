"""The layouts that may be the fastest on a machine not quite like the one that is priced.

    node        kept while its bound is below WINDOW times the fastest step that fits
    skeleton    as it is, and where that is near the limit of memory, under every policy
    layout      the fastest few: those of a plan first, then the grid by priced seconds

A layout over the limit of memory stays a contender: the memory model is a few per cent off, too.
What cannot be started is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from trainplan.costmodel.base import PlanError
from trainplan.costmodel.calibration import NOTHING, Measured, context_for, machine_for
from trainplan.costmodel.candidates import Context, context_of
from trainplan.costmodel.columns import BoolColumn, FloatColumn, IntColumn
from trainplan.costmodel.job import Job, RuntimeOptions
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.layouts import LayoutTable, Rule, legal_rows
from trainplan.costmodel.step import node_bound_seconds, price
from trainplan.planner.plan import SearchOptions
from trainplan.planner.policies import names_modules
from trainplan.planner.runtimes import EXPORTERS
from trainplan.planner.settings import Combination
from trainplan.planner.space import (
    RuleFilter,
    Space,
    legality_rules,
    memory_policies,
    nodes,
    skeletons,
)

MOST = 300
"""Contenders that are kept.

Source: measured; on 12 simulated machines (examples/tuning/results.json) the fastest of them is
within 0.1 % of the fastest of the whole grid on 11, and within 1.3 % on one.
"""
WINDOW = 1.5
"""Of the fastest priced step: slower ones are no contenders.

Source: the ratio of two step times, even of the most different layouts, is within exp(0.23) of the
priced one in four cases of five (`costmodel.uncertainty`); 1.5 is 2.3 standard deviations.
"""
NEAR_FULL, OVER_FULL = 0.9, 1.1
"""Shares of device memory between which the memory model may be wrong about what fits.

Source: `catalog/spreads.toml`; between them lie four cases of five of a peak that is priced full.
"""
FEW = 256
"""Skeletons of a grid that are all contenders, whatever their price. Source: assumed; they are
priced in a moment."""
NODES_AT_ONCE = 256
LEAN, MOST_LEAN = (0.8, 0.65), 20
"""Shares of device memory of which the fastest layouts are contenders in any case, and how many.

Source: the peaks of two groups of published runs in 15 are 25 to 35 % off in their median.
"""
MOST_VARIED = 20
"""Of the fastest, that are contenders with other settings, too. Source: assumed."""
SAME = 1e-6
"""Relative difference of prices that is no more than rounding."""
MOST_SKELETONS = 1500
"""Whose policies are priced. Source: assumed; a second of work."""


@dataclass(frozen=True, slots=True)
class Group:
    """Contenders of one job: settings of a runtime are fields of the job."""

    job: Job
    table: LayoutTable
    memory_bytes: float
    """Of a GPU, without what is reserved."""


@dataclass(frozen=True, slots=True)
class Contenders:
    """All contenders, group after group."""

    groups: tuple[Group, ...]

    def __len__(self) -> int:
        return sum(len(group.table) for group in self.groups)

    def __iter__(self) -> Iterator[tuple[Job, Layout]]:
        for group in self.groups:
            for row in range(len(group.table)):
                yield group.job, group.table.row(row)

    def at(self, index: int) -> tuple[Job, Layout]:
        """Job and layout of one of them."""
        for group in self.groups:
            if index < len(group.table):
                return group.job, group.table.row(index)
            index -= len(group.table)
        raise IndexError(index)

    @property
    def memory_bytes(self) -> FloatColumn:
        """Of the GPU that each runs on."""
        parts = [np.full(len(group.table), group.memory_bytes) for group in self.groups]
        return np.concatenate(parts)


@dataclass(frozen=True, slots=True)
class _Priced:
    """Rows with their price."""

    table: LayoutTable
    seconds: FloatColumn
    filled: FloatColumn
    """Share of device memory that the fullest rank takes."""

    def take(self, rows: BoolColumn | IntColumn) -> _Priced:
        """Some of the rows."""
        return _Priced(self.table.take(rows), self.seconds[rows], self.filled[rows])

    def and_more(self, other: _Priced) -> _Priced:
        """The rows of both."""
        return _Priced(
            LayoutTable.concat((self.table, other.table)),
            np.concatenate((self.seconds, other.seconds)),
            np.concatenate((self.filled, other.filled)),
        )

    def fastest(self, most: int) -> LayoutTable:
        """So many rows, the fastest first, then some that fit if all take more than priced."""
        order = np.argsort(self.seconds, kind="stable")
        lean = [order[self.filled[order] <= limit][:MOST_LEAN] for limit in LEAN]
        rows = np.concatenate([order[:most], *lean])
        _, first = np.unique(rows, return_index=True)
        return self.table.take(rows[np.sort(first)])


def exports(job: Job, layout: Layout) -> bool:
    """Can a launch be written? A layout that nothing can start is no trial."""
    if job.runtime not in EXPORTERS:
        return False
    try:
        EXPORTERS[job.runtime](job, layout)
    except PlanError:
        return False
    return True


def contenders(
    job: Job,
    options: SearchOptions | None = None,
    measured: Measured = NOTHING,
    also: Sequence[Layout] = (),
    *,
    chosen: Job | None = None,
    tried: Sequence[tuple[Job, Layout]] = (),
    can_start: Callable[[Job, Layout], bool] = exports,
    most: int = MOST,
) -> Contenders:
    """The contenders of a job, with those of `also`, a plan's, and those that were `tried` before.

    `chosen` is the job with the settings of its plan. Of settings that the job does not state, one
    is changed at a time. What `can_start` refuses is left out: by default what no launch is
    written for.

    Raises:
        PlanError: The job names something unknown.
    """
    options, chosen = options or SearchOptions(), chosen or job
    grid = _grid(chosen, options, measured)
    found = _near_the_fastest(grid).fastest(most)
    rows = (found.row(i) for i in range(len(found)))
    own = [layout for layout in dict.fromkeys((*also, *rows)) if can_start(chosen, layout)]
    pairs = [*tried, *((chosen, layout) for layout in own)]
    for variant in _variants(context_for(job, measured), chosen, options) if own else ():
        some = _varied(grid, variant, own[:MOST_VARIED])
        pairs += [(variant.job, layout) for layout in some if can_start(variant.job, layout)]
    return _grouped(pairs, measured)


def _grouped(pairs: Sequence[tuple[Job, Layout]], measured: Measured) -> Contenders:
    """Each pair once, by jobs."""
    layouts: dict[RuntimeOptions, tuple[Job, dict[Layout, None]]] = {}
    for job, layout in pairs:  # the jobs of a run differ in their settings alone
        layouts.setdefault(job.options, (job, {}))[1][layout] = None
    groups = (
        Group(job, LayoutTable.of(some), machine_for(job, measured).memory_bytes)
        for job, some in layouts.values()
    )
    return Contenders(tuple(groups))


def _variants(on: Context, chosen: Job, options: SearchOptions) -> list[Combination]:
    """Settings that differ from the chosen ones in one."""
    own = chosen.options
    every = options.combinations(on)
    return [
        one for one in every if sum(a != b for a, b in zip(own, one.job.options, strict=True)) == 1
    ]


def _varied(grid: _Grid, variant: Combination, layouts: Sequence[Layout]) -> list[Layout]:
    """Layouts that run otherwise with other settings: another time or another memory."""
    job, table = variant.job, LayoutTable.of(layouts)
    on = context_of(job, grid.context.machine)
    other = _Grid(on, grid.space, grid.rules)
    own_rules = [rule for value in variant.settings for rule in value.rules(job)]
    legal = legal_rows(job, (*legality_rules(on.traits), *own_rules), table)
    pairs = zip(grid.price(table), other.price(table), strict=True)
    unlike = [~np.isclose(one, another, rtol=SAME) for one, another in pairs]
    rows = np.flatnonzero(legal & np.any(unlike, axis=0)).tolist()
    return [layouts[row] for row in rows]


@dataclass(frozen=True, slots=True)
class _Grid:
    """The grid of one job."""

    context: Context
    space: Space
    rules: tuple[Rule, ...]

    def price(self, table: LayoutTable) -> tuple[FloatColumn, FloatColumn]:
        """Seconds at least, and the share of device memory that the fullest rank takes."""
        priced = price(self.context.with_table(table))
        full = priced.memory.used / self.context.machine.memory_bytes
        held = priced.memory.off_device.fits()
        return priced.step_seconds, np.where(held, full, np.inf)

    def legal(self, table: LayoutTable) -> BoolColumn:
        """Which rows are layouts that break no rule?"""
        return names_modules(table) & legal_rows(self.space.job, self.rules, table)


def _grid(job: Job, options: SearchOptions, measured: Measured) -> _Grid:
    on = context_for(job, measured)
    rules = (*options.rules_of_grid(on), *legality_rules(on.traits))
    return _Grid(on, Space(on), rules)


def _near_the_fastest(grid: _Grid) -> _Priced:
    """Rows within `WINDOW` of the fastest that may fit; of a small grid all that may fit."""
    kept = RuleFilter(grid.space.job, grid.rules)
    roots = nodes(grid.space, kept).table
    found = _Priced(roots.take(np.arange(0)), np.zeros(0), np.zeros(0))
    if not len(roots):
        return found
    if len(roots) <= FEW and len(few := skeletons(grid.space, kept, roots).table) <= FEW:
        found = _of_skeletons(grid, few)
        return found.take(found.filled <= OVER_FULL)
    bounds = node_bound_seconds(grid.context.with_table(roots))
    order, best = np.argsort(bounds, kind="stable"), np.inf
    for start in range(0, len(order), NODES_AT_ONCE):
        some = order[start : start + NODES_AT_ONCE]
        if bounds[some[0]] > WINDOW * best:
            break
        found = found.and_more(
            _of_skeletons(grid, skeletons(grid.space, kept, roots.take(some)).table)
        )
        best = float(found.seconds[found.filled <= 1].min(initial=np.inf))
        found = found.take((found.seconds <= WINDOW * best) & (found.filled <= OVER_FULL))
    return found


def _of_skeletons(grid: _Grid, table: LayoutTable) -> _Priced:
    """Skeletons as they are, and the fastest policies of those that are nearly full."""
    if not len(table):
        return _Priced(table, np.zeros(0), np.zeros(0))
    seconds, filled = grid.price(table)
    plain = _Priced(table, seconds, filled).take(grid.legal(table))
    tight = np.flatnonzero(filled > NEAR_FULL)
    tight = tight[np.argsort(seconds[tight], kind="stable")][:MOST_SKELETONS]
    if not len(tight):
        return plain
    rows, owner = memory_policies(grid.space, table.take(tight))
    legal = grid.legal(rows)
    rows, owner = rows.take(legal), owner[legal]
    if not len(rows):
        return plain
    seconds, filled = grid.price(rows)
    keep = np.zeros(len(rows), dtype=bool)
    for limit in (OVER_FULL, 1.0, NEAR_FULL, *LEAN):
        keep[_first_of_each(owner, np.where(filled <= limit, seconds, np.inf))] = True
    return plain.and_more(_Priced(rows, seconds, filled).take(keep & (filled <= OVER_FULL)))


def _first_of_each(owner: IntColumn, seconds: FloatColumn) -> IntColumn:
    """The row of every owner with fewest seconds."""
    order = np.lexsort((seconds, owner))
    _, first = np.unique(owner[order], return_index=True)
    return np.asarray(order[first])
