"""Which products tell most about all others."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainplan.costmodel.residuals.kriging import NUGGET, covariance
from trainplan.profiler.bench.inputs.shapes import (
    SPREAD_OCTAVES,
    candidates,
    caps,
    most_telling,
    places,
    spread_shapes,
)

NONE = np.empty((0, 3))
CUBE = np.array([(m, n, k) for m in range(5) for n in range(5) for k in range(5)], dtype=float)


def unknown(places, measured):
    """Sum of the variances of all places once some are measured."""
    own = covariance(measured, measured, SPREAD_OCTAVES) + NUGGET * np.eye(len(measured))
    across = covariance(measured, places, SPREAD_OCTAVES)
    return len(places) - (across * np.linalg.solve(own, across)).sum()


def test_one_place_alone_is_the_middle():
    assert CUBE[most_telling(CUBE, NONE, 1)].tolist() == [[2, 2, 2]]


def test_the_second_place_is_the_one_that_leaves_least_unknown():
    first, second = most_telling(CUBE, NONE, 2)
    left = [unknown(CUBE, CUBE[[first, row]]) for row in range(len(CUBE)) if row != first]
    assert unknown(CUBE, CUBE[[first, second]]) == pytest.approx(min(left))


def far_off(count):
    """Rows of the cube, each as far as can be from those before it."""
    chosen = [0]
    while len(chosen) < count:
        apart = np.linalg.norm(CUBE[:, None] - CUBE[None, chosen], axis=-1).min(axis=1)
        chosen.append(int(apart.argmax()))
    return chosen


@pytest.mark.parametrize("count", [6, 12])
def test_the_places_leave_less_unknown_than_random_ones_or_those_far_apart(count):
    found = unknown(CUBE, CUBE[most_telling(CUBE, NONE, count)])
    draw = np.random.default_rng(0)
    random = [unknown(CUBE, CUBE[draw.permutation(125)[:count]]) for _ in range(200)]
    assert found < np.quantile(random, 0.05)
    assert found < unknown(CUBE, CUBE[far_off(count)])


def test_what_is_measured_anyway_is_not_asked_for_again():
    known = CUBE[most_telling(CUBE, NONE, 6)]
    alongside = CUBE[most_telling(CUBE, known, 6)]
    assert not {tuple(place) for place in alongside} & {tuple(place) for place in known}
    both = np.concatenate([known, alongside])
    again = np.concatenate([known, known])
    assert unknown(CUBE, both) < unknown(CUBE, again)


@settings(max_examples=20)
@given(count=st.sampled_from([0, 1, 7, 125, 200]), known=st.integers(0, 20))
def test_no_place_is_taken_twice_and_there_are_no_more_than_there_are(count, known):
    found = most_telling(CUBE, CUBE[:known], count)
    assert len(found) == len(set(found)) == min(count, len(CUBE))
    assert found == most_telling(CUBE, CUBE[:known], count)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_spread_shapes_are_candidates_and_leave_less_unknown_than_random_ones(device):
    limit = caps(device, quick=False)
    every = [shape for shape in candidates(device) if shape.fits(limit)]
    found = spread_shapes(device, (), limit, 12)
    assert set(found) <= set(every)
    all_places, draw = places(every), np.random.default_rng(0)
    least = min(unknown(all_places, draw.permutation(all_places)[:12]) for _ in range(100))
    assert unknown(all_places, places(found)) < least
