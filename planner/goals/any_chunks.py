"""The last part of a search: the virtual stages of a rank may hold any numbers of layers.

Splits whose chunks of a rank differ by one layer at most are searched first: there are few, and
what memory refuses of them is known well. Then the answer is polished by moving layers, and the
layouts with virtual stages are bounded over all their splits; some are opened.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from trainplan.costmodel.layouts import LayoutTable, layers_per_stage
from trainplan.costmodel.layouts.table import objects
from trainplan.planner.space.policies import allows_any_split
from trainplan.planner.stages.search import UnevenSearch
from trainplan.planner.stages.solve.polish import polished
from trainplan.planner.tree.result import UnevenResult
from trainplan.planner.work import Budget
from trainplan.planner.work.budget import part_of

EXPANDED = 60
"""Layouts opened where no time limit says when to stop. Source: measured; as long as the splits
with chunks alike take, and the bounds of most jobs are closed by then or hardly ever."""
SHARE = 0.15
"""Of a time limit kept for splits with any chunks. Source: assumed."""


def run_with_any_chunks(
    splits: UnevenSearch, at_last: Callable[[UnevenSearch], None]
) -> UnevenResult:
    """What a search of splits with chunks alike finds, and then any."""
    whole = splits.budget
    splits.budget = alike_budget(whole)
    alike = splits.run(at_last=at_last)
    splits.budget = whole
    return any_chunks(splits, alike, None)


def alike_budget(whole: Budget) -> Budget:
    """What splits with chunks alike may take of a budget: of a time limit some is kept."""
    return part_of(whole, 1 - SHARE)


def any_chunks(
    splits: UnevenSearch,
    alike: UnevenResult,
    even: LayoutTable | None,
    opened: int = EXPANDED,
    near: LayoutTable | None = None,
) -> UnevenResult:
    """An answer of splits with chunks alike, or a faster one, and a bound of all splits.

    Where no layout is to be opened the answer is polished only. `near` is a layout tried beside it.
    """
    free, answer = _beyond(splits), even if alike.table is None else alike.table
    if answer is not None and not splits.budget.spent():
        _polish(free, answer.take(np.array([0])))
    if near is not None and free.legal(near)[0]:
        _polish(free, near)
    if opened and not splits.budget.spent():
        free.expand(opened if splits.budget.seconds_left() == np.inf else None, any_answer=False)
    found = free.known()
    return replace(
        alike,
        table=alike.table if found.table is None else found.table,
        step_time_s=found.step_time_s,
        lower_bound_s=min(found.step_time_s, alike.lower_bound_s),
        any_split_lower_bound_s=min(found.lower_bound_s, alike.lower_bound_s) if opened else None,
        num_simulated=alike.num_simulated + found.num_simulated,
    )


def _beyond(splits: UnevenSearch) -> UnevenSearch:
    """A search beyond another: virtual stages of a rank may hold any numbers of layers."""
    of = replace(splits.of, alike=False)
    known = splits.incumbent_s, splits.budget, splits.workers
    return type(splits)(of, splits.rules, *known, roots=splits.roots)


def _polish(splits: UnevenSearch, answer: LayoutTable) -> None:
    """Move layers of an answer for as long as that makes it faster, and split it anew."""
    if not allows_any_split(splits.of.traits, answer)[0]:
        return
    plain = answer.replaced(stages=objects([None]))
    row, stages = splits.rows(plain)[0], answer.stages[0]
    layers = tuple(stage.layers for stage in stages or ())
    if sum(layers) != splits.of.job.model.num_hidden_layers:  # even, or of another model
        layers = layers_per_stage(splits.of.job.model.num_hidden_layers, row.num_stages)
    splits.update_incumbent(polished(row, splits.pool, np.array([layers]), splits.budget), row)
    if row.shape[1] > 1:
        splits.try_first(plain)
