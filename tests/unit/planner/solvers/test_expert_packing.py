"""Experts into packs by a whole program, against all ways tried."""

from itertools import permutations

import numpy as np
import pytest

from trainplan.costmodel.routing.packing import Packing, fullest, packed
from trainplan.planner.solvers.expert_packing import pack_experts


def best_of_all(weights, packs, copies, aim):
    """The smallest value of all ways to copy and to pack."""
    experts = weights.shape[1]
    extra = (
        {()}
        if not copies
        else {tuple(sorted((i, j))) for i in range(experts) for j in range(experts)}
    )
    where = np.arange(experts + copies) * packs // (experts + copies)
    return min(
        fullest(weights, Packing(np.array(order), where).shares(experts, packs), aim)
        for more in extra
        for order in set(permutations((*range(experts), *more)))
    )


@pytest.mark.parametrize("aim", ["mean", "worst"])
@pytest.mark.parametrize(
    ("experts", "packs", "copies"), [(6, 2, 0), (6, 3, 0), (4, 3, 2), (4, 2, 2)]
)
def test_the_best_packing_is_that_of_all_ways_tried(experts, packs, copies, aim):
    weights = np.random.default_rng(experts + packs).pareto(1.0, (2, experts)) + 0.1
    found = pack_experts(weights, packs, copies, 100.0, 30.0, worst=aim == "worst")
    shares = Packing(found.experts, found.packs).shares(experts, packs)
    value = fullest(weights, shares, aim)
    assert value == pytest.approx(best_of_all(weights, packs, copies, aim), rel=1e-5)
    assert found.bound <= value * (1 + 1e-5)


def test_what_swaps_leave_is_made_better_or_is_proved_the_best():
    """Three of three: swaps of two end where an exchange of three would go on, in some."""
    better = 0
    for seed in range(12):
        weights = np.random.default_rng(seed).integers(1, 60, (1, 9)).astype(float)
        own = fullest(weights, packed(weights, 3).shares(9, 3))
        found = pack_experts(weights, 3, 0, own - 1e-4, 30.0, worst=False)
        better += found.experts is not None
        assert found.experts is not None or found.bound > own - 2e-4
    assert 0 < better < 12


def test_too_many_columns_are_not_tried():
    found = pack_experts(np.ones((1, 512)), 64, 0, 2.0, 30.0, worst=False)
    assert (found.experts, found.bound) == (None, 1.0)
