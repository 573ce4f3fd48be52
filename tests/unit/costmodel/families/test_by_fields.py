"""A model_type without a file of its own is read by its fields, or refused by the field."""

from itertools import chain

import pytest

from trainplan.costmodel.architecture.model import ModelSpec
from trainplan.costmodel.base.errors import SpecError, UnsupportedError
from trainplan.costmodel.families.reading import model_from_config, read_config
from trainplan.costmodel.model.params import num_parameters
from trainplan.costmodel.presets.presets import preset_config

FIELDS = {
    "model_type": "mine",
    "hidden_size": 64,
    "intermediate_size": 160,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "vocab_size": 1000,
    "max_position_embeddings": 512,
}
LAYER = 64 * (8 + 2 + 2 + 8) * 8 + 3 * 64 * 160 + 2 * 64
"""Weights of one layer by hand: projections, MLP, norms."""
ENDS = 2 * 1000 * 64 + 64


def mine(**changes: object) -> ModelSpec:
    return model_from_config({**FIELDS, **changes}, "mine")


def test_a_plain_decoder_is_read_as_a_llama_is_built_and_marked() -> None:
    model = mine()
    assert num_parameters(model) == 4 * LAYER + ENDS
    assert model.read_by_fields
    assert not model_from_config({**FIELDS, "model_type": "llama"}, "mine").read_by_fields


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("hidden_size", "n_embd"),
        ("num_hidden_layers", "n_layer"),
        ("num_attention_heads", "n_head"),
        ("intermediate_size", "ffn_hidden_size"),
        ("max_position_embeddings", "n_positions"),
        ("num_key_value_heads", "num_kv_heads"),
    ],
)
def test_other_names_of_a_field_mean_the_same(name: str, other: str) -> None:
    renamed = {other if key == name else key: value for key, value in FIELDS.items()}
    assert model_from_config(renamed, "mine") == mine()


def test_two_names_of_a_field_that_differ_are_refused() -> None:
    with pytest.raises(SpecError, match="'num_hidden_layers' = 4 and 'n_layer' = 5 contradict"):
        mine(n_layer=5)


@pytest.mark.parametrize(
    ("changes", "more"),
    [
        ({"attention_bias": True}, 4 * ((8 + 2 + 2) * 8 + 64)),
        ({"mlp_bias": True}, 4 * (2 * 160 + 64)),
        ({"qkv_bias": True}, 4 * (8 + 2 + 2) * 8),
        ({"lm_head_bias": True}, 1000),
        ({"tie_word_embeddings": True}, -1000 * 64),
        ({"head_dim": 16}, 4 * 64 * (8 + 2 + 2 + 8) * 8),
        ({"num_key_value_heads": None}, 4 * 64 * 2 * 6 * 8),
        ({"rope_theta": 5e5, "torch_dtype": "bfloat16", "attention_dropout": 0.1}, 0),
        ({"time_step_limit": [0.0, float("inf")], "bos_token_id": 1, "auto_map": {}}, 0),
    ],
)
def test_a_field_adds_exactly_its_weights(changes: dict[str, object], more: int) -> None:
    assert num_parameters(mine(**changes)) == 4 * LAYER + ENDS + more


def test_experts_take_the_place_of_the_mlp_behind_the_leading_dense_layers() -> None:
    experts = {
        "n_routed_experts": 6,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
        "n_shared_experts": 2,
        "first_k_dense_replace": 1,
    }
    one = 6 * (3 * 64 * 32) + 3 * 64 * 64 + 6 * 64
    assert num_parameters(mine(**experts)) == 4 * LAYER + ENDS + 3 * (one - 3 * 64 * 160)


def test_layer_types_say_which_layers_slide() -> None:
    types = ["sliding_attention", "full_attention"] * 2
    model = mine(layer_types=types, sliding_window=128)
    assert list(model.mixers) == types
    assert model.sliding_window == 128


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"linear_rank": 8}, "'linear_rank' = 8"),
        ({"use_gate": True}, "'use_gate' = true"),
        ({"use_qk_norm": True}, "'use_qk_norm' = true"),
        ({"num_loops": 2, "widths": [1, 2]}, "'num_loops' = 2, 'widths' = a list"),
        ({"no_bias": False}, "'no_bias' = false"),
        ({"layer_norm_eps": 1e-5}, "'layer_norm_eps' implies a LayerNorm"),
        ({"layer_types": ["mamba"] * 4}, "'layer_types' has 'mamba'"),
        ({"hidden_act": "relu2"}, "'hidden_act' = 'relu2' leaves open whether the MLP has a gate"),
        ({"hidden_act": "snake"}, "activation 'snake' in 'hidden_act'"),
    ],
)
def test_what_is_not_understood_is_refused_by_its_name(
    changes: dict[str, object], named: str
) -> None:
    with pytest.raises(UnsupportedError, match=named):
        mine(**changes)


@pytest.mark.parametrize("name", sorted(set(FIELDS) - {"model_type", "num_key_value_heads"}))
def test_a_missing_size_is_refused_by_its_name(name: str) -> None:
    kept = {key: value for key, value in FIELDS.items() if key != name}
    with pytest.raises(SpecError, match=f"lacks '{name}': add it"):
        model_from_config(kept, "mine")


@pytest.mark.parametrize("model_type", ["mine", "llama", "smollm3", "qwen3"])
def test_a_list_of_layers_of_the_wrong_length_is_refused(model_type: str) -> None:
    with pytest.raises(SpecError, match="'layer_types' has 3 entries, 'num_hidden_layers' is 4"):
        mine(model_type=model_type, head_dim=64, layer_types=["full_attention"] * 3)


def test_the_language_model_of_a_model_with_towers_is_read_from_its_section() -> None:
    section = {**FIELDS, "model_type": "llama"}
    whole = {"model_type": "seer", "text_config": section, "vision_config": {"depth": 3}}
    reading = read_config({**whole, "tie_word_embeddings": True}, "mine")
    assert num_parameters(reading.model) == 4 * LAYER + ENDS - 1000 * 64
    assert "only 'text_config' is read" in reading.notes[0]


def test_a_reading_says_what_was_read_assumed_and_left() -> None:
    reading = read_config({**FIELDS, "model_type": "llama", "extra": 1}, "mine")
    assert reading.read["hidden_size"] == 64
    assert reading.assumed["rope_theta"] == 10_000.0
    assert reading.ignored == ("extra",)
    assert not set(chain(reading.read, reading.ignored)) & set(reading.assumed)


def test_a_reading_of_a_model_with_a_tower_says_what_was_read_of_its_decoder() -> None:
    reading = read_config(preset_config("gemma3-27b"), "gemma3-27b")
    assert reading.model.hidden_size == 5376
    assert reading.read["text_config.hidden_size"] == 5376
    assert reading.assumed["text_config.vocab_size"] == 262_208
