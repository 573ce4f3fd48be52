"""Layers of virtual stages."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainplan.costmodel.base.errors import SpecError
from trainplan.costmodel.layouts.table import layers_per_stage


def test_layers_split_evenly_where_the_stages_divide_them():
    assert layers_per_stage(32, 8) == (4,) * 8


def test_extra_layers_go_to_inner_stages_from_the_front_then_to_the_first():
    assert layers_per_stage(9, 4) == (2, 3, 2, 2)
    assert layers_per_stage(10, 4) == (2, 3, 3, 2)
    assert layers_per_stage(11, 4) == (3, 3, 3, 2)


def test_the_ends_alone_may_be_empty():
    assert layers_per_stage(3, 4) == (1, 1, 1, 0)
    assert layers_per_stage(3, 5) == (0, 1, 1, 1, 0)


def test_of_two_stages_the_one_without_the_head_is_longer():
    assert layers_per_stage(5, 2) == (3, 2)


@given(st.integers(1, 200), st.data())
def test_every_layer_is_placed_once_and_the_last_stage_is_never_longer(num_layers, data):
    stages = data.draw(st.integers(1, num_layers + 2))
    layers = layers_per_stage(num_layers, stages)
    assert len(layers) == stages
    assert sum(layers) == num_layers
    assert max(layers) - min(layers) <= 1
    assert layers[-1] == min(layers)


@pytest.mark.parametrize(("num_layers", "num_stages"), [(3, 6), (3, 0)])
def test_stages_that_cannot_be_filled_are_refused(num_layers, num_stages):
    with pytest.raises(SpecError, match="cannot fill"):
        layers_per_stage(num_layers, num_stages)
