"""Splits under several combinations of settings together against all splits under each of them."""

from dataclasses import replace

import numpy as np
import pytest

from tests.grids import some_cases
from tests.properties.every_split import chunks_alike, every_layout_and_split
from trainplan.costmodel.calibration import NOTHING
from trainplan.costmodel.layouts import legal_rows
from trainplan.costmodel.step import price
from trainplan.costmodel.step.simulate import step_seconds
from trainplan.planner.goals.context import SearchContext
from trainplan.planner.goals.uneven import Limits, Splits, splits_below
from trainplan.planner.plan.options import SearchOptions
from trainplan.planner.settings.combinations import combinations
from trainplan.planner.space import parse_choice
from trainplan.planner.stages.search import UnevenSearch
from trainplan.planner.tree import Pool
from trainplan.planner.tree.groups import groups_of
from trainplan.planner.work.budget import Unlimited

pytestmark = pytest.mark.usefixtures("quarters")

ROUNDING = 1 + 1e-9
HELD = tuple(
    parse_choice(text, excluded=False) for text in ("pp=2", "cp=1", "vpp=1", "micro_batch_size=1")
)


@pytest.fixture(name="job")
def _job(make_job):
    job = make_job("small-moe", "1x8:h100-sxm", 16)
    return job.model_copy(update={"model": job.model.model_copy(update={"num_hidden_layers": 5})})


@pytest.fixture(name="context")
def _context(job):
    return SearchContext.of(job, SearchOptions(fix=HELD), NOTHING, Unlimited())


@pytest.fixture(name="groups")
def _groups(context):
    every = [one for one in combinations(context, "safe") if not one.covered]
    groups = groups_of([context.member(one) for one in every], context)
    assert max(len(group.members) for group in groups) > 1
    return groups


def fastest(context, member, memory_bytes):
    """Step time of the best split of any layout under one combination of settings."""
    table = every_layout_and_split(member.job, member.rules)
    table = table.take(chunks_alike(member.job, table))
    if not len(table):
        return np.inf
    rows = member.context.with_table(table)
    priced = price(rows)
    seconds, fits = priced.step_seconds, priced.memory.used <= memory_bytes
    order, best = np.flatnonzero(fits), np.inf
    order = order[np.argsort(seconds[order], kind="stable")]
    for start in range(0, len(order), 500):
        some = order[start : start + 500]
        if seconds[some[0]] >= best:
            break
        best = min(best, step_seconds(rows.with_table(table.take(some))).min())
    return best


@pytest.mark.parametrize("memory_gib", some_cases([3, 80], 1))
def test_the_best_split_of_all_combinations_is_found_and_proved(context, groups, memory_gib):
    memory = min(memory_gib * 2.0**30, context.usable_of(groups[0].members[0].context.machine))
    limits = Limits(memory_bytes=memory)
    splits = Splits([splits_below(context, one, limits) for one in groups], np.inf, context.budget)
    splits.open(np.inf)
    found = splits.result()
    members = [one for group in groups for one in group.members]
    truth = min(fastest(context, one, memory) for one in members)
    assert found.step_time_s == found.lower_bound_s == pytest.approx(truth, rel=1e-9)
    own = next(one for one in members if one.job == found.job)
    assert legal_rows(own.context.job, own.rules, found.table).all()


def test_layouts_that_wait_for_all_combinations_are_not_split(context, groups, monkeypatch):
    """Only under one combination: rules of its own may forbid what the group allows."""
    split, seen = UnevenSearch._split, []
    monkeypatch.setattr("trainplan.planner.stages.search.LAYOUTS_AT_ONCE", 1)

    def recorded(self, batch, rows, target_bound_s):
        seen.append(batch)
        return split(self, batch, rows, target_bound_s)

    monkeypatch.setattr(UnevenSearch, "_split", recorded)
    graphed = next(one for one in groups if one.members[0].job.options.cuda_graph == "partial")
    search = splits_below(context, graphed, Limits())
    while not len(search.layouts.bound):
        search.open_branches()
    # loose: what waits has smaller bounds than what was opened under each combination
    loose = np.full(len(search.layouts.bound), search.layouts.smallest / 2)
    search.layouts = replace(search.layouts, bound=loose)
    for _ in range(100):  # until layouts come that both combinations allow
        search._expand_layouts(families_too=False)
        if 1 in search.layouts.member:
            break
    assert {-1, 0, 1} <= set(search.layouts.member.tolist())
    assert (Pool.concat(seen).member >= 0).all()
