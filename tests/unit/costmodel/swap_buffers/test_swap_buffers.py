"""Buffers through which states on drives move, by hand."""

import numpy as np
import pytest

from trainplan.costmodel.presets.presets import preset
from trainplan.costmodel.swap_buffers import (
    largest_matrix_params,
    optimizer_buffer_params,
    optimizer_buffers,
    weight_buffer_params,
)


@pytest.mark.parametrize(
    ("updated", "buffers", "params"),
    [(0.5e9, 4, 2e9), (1e9, 4, 4e9), (1.5e9, 8, 8e9), (2.5e9, 12, 12e9), (175e9, 12, 12e9)],
)
def test_a_subgroup_is_read_beside_one_updated_and_one_written(updated, buffers, params):
    assert optimizer_buffers(np.array(updated)) == buffers
    assert optimizer_buffer_params(np.array(updated)) == params


def test_the_largest_weight_is_the_table_or_all_experts_of_a_layer():
    assert largest_matrix_params(preset("llama3-70b")) == 128256 * 8192
    assert largest_matrix_params(preset("mixtral-8x7b")) == 8 * 2 * 14336 * 4096


def test_a_buffer_holds_the_share_of_the_largest_weight_rounded_up():
    model = preset("llama3-70b")
    shards = np.array([1, 7, 8, 16])
    assert weight_buffer_params(model, shards).tolist() == [
        1_050_673_152, 150_096_165, 131_334_144, 1e8,
    ]  # fmt: skip
