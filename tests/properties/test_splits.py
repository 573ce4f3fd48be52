"""The best split of a layout, and every bound on the way to it, against all splits on the clock."""

from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.grids import examples, number
from tests.properties.every_split import memory_of, on_the_clock, random_splits, with_memory
from trainplan.costmodel.calibration import context_for
from trainplan.costmodel.candidates.context import Candidates
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.layouts.table import FULL, UNIFORM, LayoutTable
from trainplan.costmodel.step.estimate import with_overhead, without_overhead
from trainplan.costmodel.timeline.lower_bounds import EQUALS
from trainplan.planner.policies.recompute import (
    POLICY_COLUMNS,
    has_longer_passes,
    names_modules,
    takes_longer,
)
from trainplan.planner.space import Space
from trainplan.planner.stages.bounds.layer_capacity import (
    layer_capacities,
    may_fit,
    states_may_fit,
)
from trainplan.planner.stages.bounds.mean_paths import PathPool, seed_paths
from trainplan.planner.stages.bounds.priced_groups import PricedGroups
from trainplan.planner.stages.bounds.shapes import split_bound
from trainplan.planner.stages.contexts import SplitContext
from trainplan.planner.stages.solve import best_split as split
from trainplan.planner.stages.solve.batch import ManySplits, simulate_splits
from trainplan.planner.stages.solve.best_split import BoundFamily, best_split, families
from trainplan.planner.stages.solve.enumeration import shorter_splits
from trainplan.planner.stages.solve.listed import moved_once, polished
from trainplan.planner.stages.solve.windows import bounds_of_stages, windows
from trainplan.planner.tree.memory_bounds import class_extremes, policies_of
from trainplan.planner.work.budget import Unlimited

pytestmark = pytest.mark.usefixtures("quarters")

ROUNDING = 1 + 1e-12
LAYOUTS = number(2, by_night=3)
"""Of one job."""
seeds = st.integers(0, 2**32 - 1)
exhaustive = examples(2, by_night=4)


@pytest.fixture(
    scope="module", params=["small-dense", "small-moe", "small-seeing", "frozen-eyes"], name="base"
)
def _base(request, make_job):
    return make_job(request.param, "1x8:h100-sxm")


def cutoffs(one):
    """Step times to beat: any, those of some splits, and one that only the best one beats."""
    times = np.quantile(one.seconds, [0.3, 0.8]).tolist()
    return [np.inf, one.incumbent_s * (1 + 1e-6), *times]


@exhaustive
@given(seeds)
def test_a_judged_split_costs_what_an_estimate_says(base, seed):
    for one in random_splits(base, LAYOUTS, seed):
        simulated = simulate_splits(one.row, one.layers)
        np.testing.assert_allclose(simulated.step_time_s, one.seconds, rtol=1e-12)
        assert (simulated.fits == one.fits).all(), one


@exhaustive
@given(seeds)
def test_the_critical_path_is_as_long_as_the_step(base, seed):
    for one in random_splits(base, LAYOUTS, seed):
        splits, paths = ManySplits(one.row, one.layers), simulate_splits(one.row, one.layers).paths
        lengths = paths.seconds(splits.seconds, np.tile(one.row.p2p, (len(splits), 1)))
        own = np.diag(lengths + splits.traffic[:, paths.rank]) + splits.update
        np.testing.assert_allclose(with_overhead(one.row.machine, own), one.seconds, rtol=1e-9)


@exhaustive
@given(seeds)
def test_no_known_path_is_longer_than_the_step(base, seed):
    for one in random_splits(base, LAYOUTS, seed):
        splits = ManySplits(one.row, one.layers)
        known = seed_paths(one.row.pipeline)
        few = known.joined(simulate_splits(one.row, one.layers[::7]).paths)
        assert (splits.bound(few) <= one.seconds * ROUNDING).all(), one
        every = known.joined(simulate_splits(one.row, one.layers).paths)
        np.testing.assert_allclose(splits.bound(every), one.seconds, rtol=1e-9)


@exhaustive
@given(seeds)
def test_a_split_that_fits_is_not_refused_by_its_memory(base, seed):
    for one in random_splits(base, LAYOUTS, seed):
        assert ManySplits(one.row, one.layers).may_fit()[one.fits].all(), one


def sorted_pairs(*wanted):
    """Splits listed as where there are many beginnings, however few there are."""
    with patch("trainplan.planner.stages.solve.enumeration.MOST_UNSORTED", 0):
        return shorter_splits(*wanted).tolist()


@exhaustive
@given(seeds)
def test_windows_hold_every_split_that_fits_and_is_faster(base, seed):
    for one in random_splits(base, LAYOUTS, seed):
        paths = seed_paths(one.row.pipeline)
        more = paths.joined(simulate_splits(one.row, one.layers[::5]).paths)
        for cutoff in cutoffs(one):
            value = without_overhead(one.row.machine, cutoff)
            for known, memory in ((paths, True), (more, True), (more, False)):
                window = windows(one.row, known, value, memory=memory)
                wins = (one.seconds * EQUALS < cutoff) & (one.fits | (not memory))
                if window is None:
                    assert not wins.any(), (one, cutoff)
                    continue
                inside = (window.least <= one.totals) & (one.totals <= window.most)
                inside = inside.all(axis=1)
                assert inside[wins].all(), (one, cutoff)
                totals = set(map(tuple, one.totals[inside].tolist()))
                assert len(totals) == window.count(one.row.job.model.num_hidden_layers)
                every, shorter = (
                    set(map(tuple, shorter_splits(one.row, known, most, window).tolist()))
                    for most in (np.inf, value)
                )
                assert every == set(map(tuple, one.layers[inside].tolist()))
                assert shorter == set(map(tuple, sorted_pairs(one.row, known, value, window)))
                assert set(map(tuple, one.layers[wins].tolist())) <= shorter <= every


@exhaustive
@given(seeds)
def test_no_split_is_faster_than_the_bound_for_all_of_them(base, seed):
    for one in random_splits(base, LAYOUTS, seed):
        plain = one.row.table.replaced(
            recompute=np.array([0]),
            recompute_modules=np.array([0]),
            recompute_method=np.array([0]),
            recompute_num_layers=np.array([0]),
            offload_optimizer=np.array([0.0]),
        )
        job, machine, traits = one.row.job, one.row.machine, one.row.traits
        for table in (one.row.table, plain):
            of = PricedGroups.of(Candidates(job, machine, traits, table), [np.inf])
            for cutoff in cutoffs(one):
                faster = one.seconds[one.seconds * EQUALS < cutoff].min(initial=np.inf)
                end = without_overhead(machine, cutoff)
                bound = split_bound(of, end, PathPool(alike=one.row.alike))[0]
                assert bound <= faster * ROUNDING, (one, cutoff)


@exhaustive
@given(seeds)
def test_no_split_is_faster_than_the_bound_of_its_class_of_policies(base, seed):
    for one in random_splits(base, LAYOUTS, seed):
        row, space = one.row, Space(context_for(one.row.job))
        min_memory = class_extremes(
            space, row.table.replaced(**dict.fromkeys(POLICY_COLUMNS, np.zeros(1, np.int64)))
        )[1]
        policies, classes = policies_of(space, min_memory)
        same = [getattr(policies, name) == getattr(row.table, name) for name in POLICY_COLUMNS]
        own = classes[np.all(same, axis=0)]
        assert len(own) == 1, one
        wanted = SplitContext(row.job, row.machine, row.traits, memory_of(row), alike=row.alike)
        for cutoff in cutoffs(one):
            wins = one.fits & (one.seconds * EQUALS < cutoff)
            for bounds in (wanted.classes, wanted.policies, wanted.layouts):
                table = min_memory.take(own) if bounds == wanted.classes else row.table
                bound = bounds(table, cutoff, PathPool(alike=row.alike))
                assert bound <= one.seconds[wins].min(initial=np.inf) * ROUNDING, (one, cutoff)


@exhaustive
@given(seeds)
def test_no_layout_is_refused_that_some_fast_split_fits(base, seed):
    for one in random_splits(base, LAYOUTS, seed):
        job, machine, traits = one.row.job, one.row.machine, one.row.traits
        candidates = Candidates(job, machine, traits, one.row.table)
        every = PricedGroups.of(candidates, [memory_of(one.row)])
        for cutoff in cutoffs(one):
            if not (one.fits & (one.seconds * EQUALS < cutoff)).any():
                continue
            wanted = np.array([0]), without_overhead(machine, cutoff)
            for of in every.bounding:
                room = layer_capacities(of, *wanted, alike=one.row.alike)
                assert states_may_fit(of, *wanted)[0], (one, cutoff)
                assert may_fit(of.kinds, room)[0], (one, cutoff)


def test_a_heavy_head_is_not_recomputed_with_the_layers(make_job):
    job = make_job("small-dense", "1x2:l4", 128)
    model = job.model.model_copy(update={"num_hidden_layers": 7, "vocab_size": 256_000})
    job = job.model_copy(update={"model": model})
    layout = {"pp": 2, "recompute": "full", "recompute_method": "uniform"}
    table = LayoutTable.of([Layout(**layout, recompute_num_layers=1)])
    one = on_the_clock(job, table)
    machine, traits = one.row.machine, one.row.traits
    of = PricedGroups.of(Candidates(job, machine, traits, table), [np.inf])
    bound = split_bound(of, np.inf, PathPool(alike=one.row.alike))
    assert bound[0] <= one.seconds.min() * ROUNDING


def test_a_rank_that_may_be_empty_is_not_refused_without_layers(make_job):
    layout = Layout(pp=2, vpp=2, schedule="zb-v")
    one = on_the_clock(make_job("small-dense", "1x2:l4"), LayoutTable.of([layout]))
    needs = with_memory(one, 0.0).row.memory_needs.constants
    both_ends, inner = np.split(needs, 2)  # the first rank holds both
    assert (both_ends == 0).all()
    assert (inner > 0).all()


@exhaustive
@given(seeds)
def test_the_best_split_is_what_brute_force_finds(base, seed):
    pool = PathPool()
    for one in random_splits(base, LAYOUTS, seed):
        for cutoff in cutoffs(one):
            found = best_split(one.row, pool, cutoff, Unlimited())
            best = pytest.approx(min(one.incumbent_s, cutoff), rel=1e-9)
            assert min(found.step_time_s, cutoff) == best == found.lower_bound_s, (one, cutoff)
            if found.layers is None:
                assert found.step_time_s == np.inf
                continue
            same = (one.layers == found.layers).all(axis=1)
            assert one.fits[same].all()
            assert one.seconds[same] == pytest.approx(found.step_time_s, rel=1e-12)
            layout = found.of(one.row).row(0)
            assert tuple(stage.layers for stage in layout.stages) == found.layers


@exhaustive
@given(seeds)
def test_a_split_looked_for_near_its_bound_is_bounded_by_what_brute_force_finds(base, seed):
    for one in random_splits(base, LAYOUTS, seed):
        slowest = float(one.seconds.max())
        for share in (0.9, 0.999, 1.001, 1.2):
            enough = min(share * float(one.seconds.min()), slowest)
            with patch.object(split, "FEW", 0):
                found = best_split(one.row, PathPool(), 2 * slowest, Unlimited(), enough)
            assert found.lower_bound_s <= one.incumbent_s * ROUNDING, one
            assert found.lower_bound_s >= min(one.incumbent_s, enough) / ROUNDING, one
            if found.step_time_s < np.inf:
                assert found.step_time_s >= one.incumbent_s / ROUNDING, one


@exhaustive
@given(seeds)
def test_layers_are_moved_for_as_long_as_that_helps(base, seed):
    for one in random_splits(base, LAYOUTS, seed):
        known = dict(zip(map(tuple, one.layers.tolist()), one.seconds, strict=True))
        if one.row.alike or not one.fits.any():
            continue
        start = one.layers[one.fits][:1]
        found = polished(one.row, PathPool(), start, Unlimited())
        assert found.step_time_s == pytest.approx(known[found.layers], rel=1e-9)
        fits = dict(zip(map(tuple, one.layers.tolist()), one.fits, strict=True))
        least = bounds_of_stages(one.row)[0]
        for near in map(tuple, moved_once(np.array(found.layers), least).tolist()):
            assert not fits[near] or known[near] >= found.step_time_s / EQUALS, one


@exhaustive
@given(seeds)
def test_a_layout_that_recomputes_more_is_faster_by_hidden_traffic_at_most(base, seed):
    for one in random_splits(base, LAYOUTS, seed):
        row = one.row
        columns = {"recompute": FULL, "recompute_method": UNIFORM, "recompute_num_layers": 1}
        more = row.table.replaced(
            **{name: np.array([value]) for name, value in columns.items()},
            recompute_modules=np.array([0]),
        )
        if takes_longer(more, row.table)[0]:
            slower = on_the_clock(row.job, more, alike=row.alike).seconds
            assert (slower * ROUNDING >= one.seconds - row.may_hide_s).all(), one


@exhaustive
@given(seeds)
def test_a_layout_that_only_offloads_more_of_the_optimizer_is_never_faster(base, seed):
    for one in random_splits(base, LAYOUTS, seed):
        row = one.row
        more = row.table.replaced(offload_optimizer=row.table.offload_optimizer.clip(0.5))
        assert takes_longer(more, row.table)[0]
        assert not has_longer_passes(more, row.table)[0]
        slower = on_the_clock(row.job, more, alike=row.alike).seconds
        assert (slower * ROUNDING >= one.seconds).all(), one


@exhaustive
@given(seeds)
def test_no_member_of_a_family_is_faster_than_its_bound(base, seed):
    for one in random_splits(base, LAYOUTS, seed):
        row, nothing = one.row, dict.fromkeys(POLICY_COLUMNS, np.array([0]))
        table = policies_of(Space(context_for(row.job)), row.table.replaced(**nothing))[0]
        alike = families(table, np.zeros(len(table), dtype=np.int64))
        members = np.flatnonzero((alike >= 0) & names_modules(table))[::13]
        every = [
            with_memory(on_the_clock(row.job, some, alike=row.alike), memory_of(row))
            for some in map(table.take, members[:, None])
        ]
        for limit in (one.seconds.min() * 1.05, float(np.median(one.seconds)), 1e3):
            problems = tuple(member.row for member in every)
            bound = BoundFamily(problems, PathPool(alike=row.alike), (limit,))(Unlimited())
            truth = np.array([min(limit, member.incumbent_s) for member in every])
            assert (bound <= truth * ROUNDING).all(), one
            assert (bound > 0).any() or limit > one.seconds.min() * 1.05, one
