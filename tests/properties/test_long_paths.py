"""Paths of long pipelines that a short run shows, against the long run on the clock."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainplan.costmodel.timeline.clock import StageSeconds, op_ends
from trainplan.costmodel.timeline.critical_path import (
    LONG,
    Run,
    critical_paths,
    long_paths,
    run_of,
)
from trainplan.costmodel.timeline.cycles import rank_end_seconds, waves
from trainplan.planner.stages.bounds.mean_paths import PathPool, seed_paths

ROUNDING = 1 + 1e-12
SHAPES = [(1, 1), (2, 1), (3, 1), (5, 1), (8, 1), (2, 2), (3, 2), (4, 3)]


def passes(rng, candidates, stages):
    forward, backward = (rng.uniform(0.05, most, (candidates, stages)) for most in (1, 2))
    return StageSeconds(forward, backward, np.zeros_like(forward))


def schedule_of(vpp):
    return "1f1b" if vpp == 1 else "interleaved"


@pytest.mark.parametrize(("pp", "vpp"), SHAPES)
@settings(max_examples=6)
@given(seed=st.integers(0, 2**32 - 1))
def test_no_path_is_longer_than_the_long_run(pp, vpp, seed):
    rng = np.random.default_rng(seed)
    groups = int(rng.integers(LONG + 1, 3 * LONG))
    rest = int(rng.integers(pp)) if vpp == 1 else 0
    shape = pp, vpp, groups * pp + rest
    found = long_paths(schedule_of(vpp), shape, passes(rng, 4, pp * vpp), np.zeros(4))
    for paths in (found, seed_paths((schedule_of(vpp), *shape))):
        seconds, p2p = passes(rng, 6, pp * vpp), rng.uniform(0, 0.3, 6)
        ends = op_ends(waves(schedule_of(vpp), *shape), seconds, p2p).max(axis=1)
        assert len(paths.rank)
        assert (paths.seconds(seconds, p2p).max(axis=1) <= ends * ROUNDING).all()


def test_a_run_whose_paths_stay_nowhere_tells_nothing_of_longer_ones():
    paths = run_of("1f1b", (4, 1, 12), passes(np.random.default_rng(0), 2, 4), np.zeros(2)).paths
    nowhere = Run(paths, np.zeros((len(paths.rank), 4), dtype=bool))
    assert not len(nowhere.longer(4).rank)
    assert len(nowhere.longer(0).rank)


@pytest.mark.parametrize(("pp", "vpp", "microbatches"), [(8, 2, 63), (8, 3, 63), (16, 2, 255)])
def test_no_path_is_longer_where_groups_hold_more_than_pp_micro_batches(pp, vpp, microbatches):
    """63 micro batches on 8 ranks make 7 groups of 9; a shorter run has groups of another size."""
    rng, shape = np.random.default_rng(0), (pp, vpp, microbatches)
    every = np.arange(pp * vpp)
    seconds, p2p = passes(rng, pp * vpp, pp * vpp), np.zeros(pp * vpp)
    for kind in (seconds.forward, seconds.backward):
        kind[every, every] *= 9
    ends = op_ends(waves("interleaved", *shape), seconds, p2p).max(axis=1)
    paths = seed_paths(("interleaved", *shape))
    assert (paths.seconds(seconds, p2p).max(axis=1) <= ends * ROUNDING).all()


@pytest.mark.parametrize(("pp", "groups"), [(4, 8), (8, 20), (16, 7)])
def test_the_mean_path_of_a_long_1f1b_crosses_every_rank_alike_and_misses_nothing(pp, groups):
    microbatches = groups * pp
    mean = PathPool().mean(("1f1b", pp, 1, microbatches), 40)
    each = (mean.forward + 2 * mean.backward)[:, 0] / 3
    np.testing.assert_allclose(each, (microbatches + pp - 1) / pp)


@pytest.mark.parametrize("vpp", [1, 4])
def test_a_step_of_millions_of_micro_batches_is_bounded_without_its_graph(vpp):
    rng, shape = np.random.default_rng(0), (8, vpp, 2_000_000)
    seconds, p2p = passes(rng, 4, 8 * vpp), rng.uniform(0, 0.3, 4)
    found = critical_paths(schedule_of(vpp), shape, seconds, p2p, np.zeros((4, 8)))
    ends = rank_end_seconds(schedule_of(vpp), shape[:2], shape[2], seconds, p2p=p2p).max(axis=1)
    bound = found.seconds(seconds, p2p).max(axis=1, initial=0)
    assert (bound <= ends * ROUNDING).all()
    assert vpp > 1 or (bound > 0.9 * ends).all()


def test_of_a_long_step_whose_groups_differ_in_size_no_path_is_known():
    seconds = passes(np.random.default_rng(0), 2, 8)
    shape = 4, 2, 1_000_001
    assert not len(
        critical_paths("interleaved", shape, seconds, np.zeros(2), np.zeros((2, 4))).rank
    )
