"""Mixers of a layer: their sizes are asked for, and what they count is what is written down."""

from typing import get_args

import pytest

from tests.conftest import SMALL_DENSE
from trainplan.costmodel.architecture.layers import (
    SIZES,
    IndexerSpec,
    LinearAttentionSpec,
    Mixer,
    SsmSpec,
)
from trainplan.costmodel.architecture.model import ModelSpec
from trainplan.costmodel.mixers.attended_tokens import attention_span, chunk_span
from trainplan.costmodel.model.flops import mixer_flop_per_token
from trainplan.costmodel.model.params import MIXER_COUNTS, mixer_params

LINEAR = {"num_key_heads": 2, "num_value_heads": 4, "key_head_dim": 8, "value_head_dim": 16}


def model(**fields):
    return ModelSpec(**(SMALL_DENSE.model_dump() | fields))


@pytest.mark.parametrize("mixer", get_args(Mixer))
def test_every_mixer_counts_its_parameters(mixer):
    assert mixer in MIXER_COUNTS


@pytest.mark.parametrize("mixer", SIZES)
def test_a_layer_without_the_sizes_of_its_mixer_is_refused_by_their_field(mixer):
    with pytest.raises(ValueError, match=f"mixer {mixer} but {SIZES[mixer]} is null"):
        model(mixer=mixer)


def test_sizes_that_no_layer_has_are_refused():
    with pytest.raises(ValueError, match="ssm is given but no layer has mixer mamba or"):
        model(ssm=SsmSpec(num_heads=8, head_dim=16, state_size=8))


@pytest.mark.parametrize(
    ("kind", "wrong", "written"),
    [
        (SsmSpec, {"num_heads": 8, "state_size": 4, "num_groups": 3}, "num_groups = 3"),
        (SsmSpec, {"num_heads": 8, "state_size": 4, "num_groups": 2, "time_step_rank": 2}, "leave"),
        (LinearAttentionSpec, LINEAR | {"num_key_heads": 3}, "num_key_heads = 3"),
        (LinearAttentionSpec, LINEAR | {"rule": "kda"}, "gate_rank"),
        (LinearAttentionSpec, LINEAR | {"rule": "lightning"}, "conv_kernel is null"),
    ],
)
def test_sizes_that_contradict_each_other_are_refused(kind, wrong, written):
    with pytest.raises(ValueError, match=written):
        kind(**wrong)


def test_a_token_sees_its_chunk_alone():
    # positions 1..4 of two chunks, then 1, 2: (2 x 16 + 4) / 2 pairs of 10 tokens
    assert chunk_span(4, 10) == 1.8
    assert chunk_span(64, 10) == 5
    chunked = model(mixer="chunked_attention", attention_chunk_size=4)
    assert attention_span(chunked, 10) == 1.8


def test_sparse_attention_compares_as_many_keys_as_are_picked():
    sparse = {"mixer": "sparse_attention", "indexer": IndexerSpec(num_heads=2, head_dim=8, top_k=4)}
    assert attention_span(model(**sparse), 8) == 3  # (1 + 2 + 3 + 4 + 4 x 4) / 8, less a half
    core = 2 * 3 * 2 * 1024
    indexer = 8 * 2 * (8 + 1)  # half of 8 keys, two heads, products and their sum
    assert mixer_flop_per_token(model(**sparse), 8) == 6 * (core + indexer)
    shared = model(**sparse, shares_index=True)
    assert mixer_flop_per_token(shared, 8) == 6 * core


def test_attention_and_mamba_side_by_side_are_the_sum_of_both():
    ssm = SsmSpec(num_heads=8, head_dim=16, state_size=8)
    one, two = model(mixer="mamba", ssm=ssm), model(mixer="attention_and_mamba", ssm=ssm)
    norms = 2 * 1024
    assert mixer_params(two) == mixer_params(one) + mixer_params(model()) - norms
    flops = [mixer_flop_per_token(each, 512) for each in (one, two, model())]
    assert flops[1] == flops[0] + flops[2]


def test_a_gate_of_each_head_is_one_row_a_head():
    gated = model(attention_output_gate="head")
    assert mixer_params(gated) - mixer_params(model()) == 16 * 1024
