"""What a tower holds and computes, counted by hand; what contradicts itself is refused."""

import pytest
from pydantic import ValidationError

from tests.conftest import TOWER
from trainplan.costmodel.architecture.tower import LinearSpec, ProjectorSpec, TowerSpec
from trainplan.costmodel.mixers.attended_tokens import attention_span
from trainplan.costmodel.model.flops import model_flop_per_step
from trainplan.costmodel.model.params import attention_core_flop, layer_params, num_parameters
from trainplan.costmodel.shards.tower import layer_model, tower_layers
from trainplan.costmodel.towers.tower import (
    encoder_forward_flop,
    projector_forward_flop,
    tower_layer_params,
    tower_params,
)

TINY = TowerSpec(
    num_hidden_layers=3,
    hidden_size=8,
    intermediate_size=16,
    num_attention_heads=2,
    patch_size=2,
    num_channels=3,
    temporal_patch_size=2,
    position_rows=5,
    class_tokens=1,
    norms_outside=1,
    window_patches=4,
    full_attention_layers=(2,),
    merged_patches=4,
    patches_per_sample=16,
    projectors=(
        ProjectorSpec(
            linears=(
                LinearSpec(in_features=32, out_features=32),
                LinearSpec(in_features=32, out_features=10, bias=False),
            ),
            norm_size=8,
        ),
    ),
)


def test_every_part_of_a_tower_is_counted():
    layer = 4 * 8 * 8 + 4 * 8 + 2 * 8 * 16 + 16 + 8 + 2 * 2 * 8  # attention, MLP, norms
    outside = 24 * 8 + 8 + 5 * 8 + 8 + 2 * 8  # patches of 2x2x2x3, positions, class token, norm
    projector = 2 * 8 + 32 * 32 + 32 + 32 * 10
    assert tower_layer_params(TINY) == layer
    assert tower_params(TINY) == 3 * layer + outside + projector


@pytest.mark.parametrize(
    ("fields", "more"),
    [
        ({"gated_mlp": True}, 8 * 16 + 16),
        ({"norm": "rmsnorm"}, -2 * 8),
        ({"key_bias": False}, -8),
        ({"qkv_bias": False}, -3 * 8),
        ({"layer_scale": True}, 2 * 8),
        ({"qk_norm": "full"}, 2 * 8),
        ({"qk_norm": "head"}, 2 * 4),
        ({"head_dim": 6}, 4 * 8 * 4 + 3 * 4),
    ],
)
def test_what_a_layer_has_is_counted(fields, more):
    changed = TINY.model_copy(update=fields)
    assert tower_layer_params(changed) == tower_layer_params(TINY) + more


@pytest.mark.parametrize("fields", [{}, {"gated_mlp": True, "qk_norm": "head", "mlp_bias": False}])
def test_a_layer_is_priced_as_what_it_is_counted_as(fields):
    tower = TINY.model_copy(update=fields)
    assert layer_params(layer_model(tower)) == tower_layer_params(tower)


def test_products_of_a_sample_are_counted_by_hand():
    patches, tokens = 16, 17
    weights = 4 * 8 * 8 + 2 * 8 * 16
    attention = 2 * (4 * 8 * 4) + 4 * 8 * tokens  # two windowed layers, a full one; 4 s h each
    assert encoder_forward_flop(TINY) == 2 * patches * 24 * 8 + tokens * (
        3 * 2 * weights + attention
    )
    assert projector_forward_flop(TINY) == 2 * 4 * (32 * 32 + 32 * 10)


def test_a_patch_sees_all_others_where_a_token_sees_half_of_them():
    causal = layer_model(TINY).model_copy(update={"mixer": "full_attention"})
    assert attention_span(layer_model(TINY), 100) == 100
    assert attention_core_flop(layer_model(TINY), 100) == 2 * attention_core_flop(causal, 100)
    assert attention_core_flop(layer_model(TINY), 100) == 4 * 100 * 8


def test_a_window_is_a_sequence_of_its_own_and_the_last_one_is_padded():
    windowed, full = tower_layers(TINY.model_copy(update={"samples_per_sequence": 3}))
    assert (windowed.count, windowed.length, windowed.sequences) == (2, 4, 3 * 5)
    assert (full.count, full.length, full.sequences) == (1, 17, 3)


def test_a_frozen_encoder_runs_forward_alone(make_job):
    job = make_job("small-seeing", "1x8:h100-sxm", 8)
    text = job.model.model_copy(update={"tower": None})
    of_text = model_flop_per_step(job.model_copy(update={"model": text}))
    samples = 8 * TOWER.samples_per_sequence
    encoder, projector = encoder_forward_flop(TOWER), projector_forward_flop(TOWER)
    pixels = 2 * 1024 * 3 * 14 * 14 * 512  # whose gradient nobody needs
    passes = {
        "none": 3 * encoder - pixels + 3 * projector,
        "encoder": encoder + 3 * projector,
        "all": encoder + projector,
    }
    for frozen, each in passes.items():
        tower = TOWER.model_copy(update={"frozen": frozen})
        model = job.model.model_copy(update={"tower": tower})
        found = model_flop_per_step(job.model_copy(update={"model": model})) - of_text
        assert found == pytest.approx(samples * each, rel=1e-12)


def test_a_model_counts_its_tower(make_job):
    model = make_job("small-seeing", "1x8:h100-sxm").model
    text = model.model_copy(update={"tower": None})
    assert num_parameters(model) == num_parameters(text) + tower_params(TOWER)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"num_attention_heads": 3}, "not a multiple of num_attention_heads = 3"),
        ({"patches_per_sample": 18}, "not a multiple of merged_patches = 4"),
        ({"patch_size": None}, "give patch_size or embedding"),
        ({"full_attention_layers": (3,)}, "names layer 3, there are 3 from 0"),
        ({"window_patches": None}, "full_attention_layers without window_patches"),
    ],
)
def test_fields_that_contradict_each_other_are_refused(fields, says):
    with pytest.raises(ValidationError, match=says):
        TowerSpec.model_validate(TINY.model_dump() | fields)


def test_matrices_of_a_projector_follow_one_another():
    with pytest.raises(ValidationError, match="9 inputs follows one of 8 outputs"):
        ProjectorSpec.model_validate(
            {
                "linears": [
                    {"in_features": 4, "out_features": 8},
                    {"in_features": 9, "out_features": 8},
                ]
            }
        )
