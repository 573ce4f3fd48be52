"""Distinct rows of columns, whatever is counted in them."""

import tracemalloc

import numpy as np
import pytest

from trainplan.costmodel.columns import LARGEST_LOOKED_UP, distinct


@pytest.mark.parametrize("scale", [1, LARGEST_LOOKED_UP, 1 << 29])
def test_large_counts_have_the_places_that_small_ones_have(scale: int):
    some = np.array([3, 1, 3, 2, 1, 0])
    other = np.array([0, 1, 0, 0, 1, 2])
    tracemalloc.start()
    first, place = distinct(some * scale, other)
    _, most_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert place.tolist() == distinct(some, other)[1].tolist() == [3, 1, 3, 2, 1, 0]
    assert [some[one] for one in first] == [0, 1, 2, 3]
    assert most_bytes < 20 * LARGEST_LOOKED_UP
