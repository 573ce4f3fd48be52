"""The best split of a layout over unlike node groups, and its bounds, against all splits."""

from functools import lru_cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.grids import examples
from tests.properties.every_split import MOST, EverySplit, branch, memory_of, within
from tests.properties.test_mixed_groups import in_groups, requested_with
from trainplan.costmodel.candidates.context import Candidates
from trainplan.costmodel.columns import objects
from trainplan.costmodel.step.estimate import without_overhead
from trainplan.costmodel.step.heterogeneous import heterogeneous_seconds, price_heterogeneous
from trainplan.costmodel.timeline.lower_bounds import EQUALS
from trainplan.planner.policies.recompute import allows_any_split
from trainplan.planner.stages.bounds.mean_paths import PathPool, seed_paths
from trainplan.planner.stages.problem.of_layouts import stage_problems
from trainplan.planner.stages.solve.batch import ManySplits, simulate_splits
from trainplan.planner.stages.solve.best_split import best_split
from trainplan.planner.stages.solve.windows import windows
from trainplan.planner.work.budget import Unlimited

ROUNDING = 1 + 1e-12


@lru_cache(maxsize=128)
def every_split_of(seed, alike):
    """A random layout on two groups with all its splits, some of which fit; None if too many."""
    question, layout, order = requested_with(seed, adapting=False)
    job, machine, traits, table = in_groups(question, layout)
    if not allows_any_split(traits, table)[0]:
        return None
    candidates = Candidates(job, machine, traits, table)
    (row,) = stage_problems(candidates, (np.inf, np.inf), order=order, alike=alike)
    layers = np.array(branch(job.model.num_hidden_layers, row.stage_of, alike=alike))
    if len(layers) > MOST:
        return None
    stages = objects([row.stages(split) for split in layers.tolist()])
    many = table.take(np.zeros(len(layers), dtype=np.int64)).replaced(stages=stages)
    mixed = price_heterogeneous(Candidates(job, machine, traits, many))
    memory = mixed.whole.memory
    used = (memory.reserved + memory.outside_bytes).max(axis=0)
    limit = np.random.default_rng(seed).choice([np.inf, *used])
    return EverySplit(within(row, float(limit)), layers, heterogeneous_seconds(mixed), used)


wanted = st.integers(0, 255), st.booleans()


def cutoffs(one):
    return [np.inf, one.incumbent_s * (1 + 1e-6), float(np.quantile(one.seconds, 0.5))]


@examples(6, by_night=30)
@given(*wanted)
def test_a_judged_split_costs_what_an_estimate_says_and_its_path_is_known(seed, alike):
    one = every_split_of(seed, alike)
    if one is None:
        return
    simulated = simulate_splits(one.row, one.layers)
    np.testing.assert_allclose(simulated.step_time_s, one.seconds, rtol=1e-12)
    assert (simulated.fits == one.fits).all(), one
    splits, known = ManySplits(one.row, one.layers), seed_paths(one.row.pipeline)
    assert (splits.bound(known) <= one.seconds * ROUNDING).all(), one
    every = known.joined(simulated.paths)
    lengths = every.seconds(splits.seconds, np.tile(one.row.p2p, (len(splits), 1)))
    home = splits.seconds.backward.sum(axis=1)  # what no bound counts where a join is slow
    free = one.row.joins_seconds(splits.seconds) + home <= lengths.max(axis=1)
    bound = splits.bound(every)
    assert (bound <= one.seconds * ROUNDING).all(), one
    np.testing.assert_allclose(bound[free], one.seconds[free], rtol=1e-9)
    assert splits.may_fit()[one.fits].all(), one


@examples(6, by_night=30)
@given(*wanted)
def test_windows_hold_every_split_that_fits_and_is_faster(seed, alike):
    one = every_split_of(seed, alike)
    if one is None:
        return
    paths = seed_paths(one.row.pipeline).joined(simulate_splits(one.row, one.layers[::3]).paths)
    for cutoff in cutoffs(one):
        window = windows(one.row, paths, without_overhead(one.row.machine, cutoff))
        wins = one.fits & (one.seconds * EQUALS < cutoff)
        if window is None:
            assert not wins.any(), (one, cutoff)
            continue
        inside = (window.least <= one.totals) & (one.totals <= window.most)
        assert inside.all(axis=1)[wins].all(), (one, cutoff)


@examples(8, by_night=40)
@given(*wanted)
def test_the_best_split_is_what_brute_force_finds(seed, alike):
    one = every_split_of(seed, alike)
    if one is None:
        return
    for cutoff in cutoffs(one):
        found = best_split(one.row, PathPool(), cutoff, Unlimited())
        best = pytest.approx(min(one.incumbent_s, cutoff), rel=1e-9)
        assert min(found.step_time_s, cutoff) == best == found.lower_bound_s, (one, cutoff)
        assert memory_of(one.row) == np.inf or found.layers is None or one.fits.any()
