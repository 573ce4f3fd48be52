"""Hugging Face config.json -> ModelSpec: what is refused, and with which words."""

import math

import pytest

from trainplan.costmodel.architecture.model import ModelSpec
from trainplan.costmodel.base.errors import SpecError, UnsupportedError
from trainplan.costmodel.families.reading import model_from_config
from trainplan.costmodel.presets.presets import preset_config

LLAMA = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "vocab_size": 32000,
    "max_position_embeddings": 4096,
}
REQUIRED = sorted(set(LLAMA) - {"model_type"})


def llama(**changes: object) -> ModelSpec:
    return model_from_config({**LLAMA, **changes}, "mine")


def changed(name: str, **changes: object) -> ModelSpec:
    return model_from_config({**preset_config(name), **changes}, name)


def without(name: str, *fields: str) -> ModelSpec:
    kept = {key: value for key, value in preset_config(name).items() if key not in fields}
    return model_from_config(kept, name)


def qwen2_moe(**changes: object) -> ModelSpec:
    experts = {
        "model_type": "qwen2_moe",
        "num_experts": 60,
        "num_experts_per_tok": 4,
        "moe_intermediate_size": 1408,
        "shared_expert_intermediate_size": 5632,
        "num_key_value_heads": 32,
    }
    return model_from_config({**LLAMA, **experts, **changes}, "mine")


@pytest.mark.parametrize("field", REQUIRED)
def test_a_missing_field_is_named_with_the_model_type(field: str) -> None:
    config = {key: value for key, value in LLAMA.items() if key != field}
    with pytest.raises(SpecError) as error:
        model_from_config(config, "mine")
    assert str(error.value) == f"config.json of model_type 'llama' lacks '{field}': add it"


WRONG = [True, "4096", 4096.0, math.nan, math.inf, -math.inf, -1, 0, 10**13, 10**5000, [1], {}]


@pytest.mark.parametrize("value", WRONG, ids=lambda value: str(type(value).__name__))
@pytest.mark.parametrize("field", REQUIRED)
def test_a_size_that_is_not_a_sensible_integer_is_refused(field: str, value: object) -> None:
    with pytest.raises(SpecError, match=f"'{field}' must be a positive integer"):
        llama(**{field: value})


@pytest.mark.parametrize("value", [True, "x", math.nan, math.inf, -1.0, 0, 1e13, 10**400, []])
def test_a_number_that_is_not_positive_and_finite_is_refused(value: object) -> None:
    with pytest.raises(SpecError, match="'rope_theta' must be a positive number"):
        llama(rope_theta=value)


@pytest.mark.parametrize("value", [0, 1, "true", []])
def test_a_flag_that_is_not_true_or_false_is_refused(value: object) -> None:
    with pytest.raises(SpecError, match="'attention_bias' must be a boolean"):
        llama(attention_bias=value)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (-1, "-1"),
        (True, "true"),
        ("a" * 99, "'" + "a" * 60 + "'..."),
        ([1], "a list"),
        ({}, "an empty object"),
    ],
)
def test_the_message_shows_the_value_briefly(value: object, shown: str) -> None:
    with pytest.raises(SpecError) as error:
        llama(vocab_size=value)
    assert str(error.value).endswith(f"must be a positive integer, got {shown}")


def test_a_nested_field_is_named_with_its_section() -> None:
    with pytest.raises(SpecError, match=r"'rope_scaling.factor' must be a positive number"):
        llama(rope_scaling={"rope_type": "linear", "factor": "four"})


def test_rope_scaling_without_a_factor_is_refused() -> None:
    with pytest.raises(SpecError, match=r"lacks 'rope_scaling.factor'"):
        llama(rope_scaling={"rope_type": "yarn"})


def test_an_unknown_rope_scaling_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UnsupportedError, match="'spiral' is not modelled; known: linear"):
        llama(rope_scaling={"rope_type": "spiral", "factor": 2.0})


def test_a_section_that_is_no_object_is_refused() -> None:
    with pytest.raises(SpecError, match="'rope_scaling' must be an object, got 4"):
        llama(rope_scaling=4)


def test_a_hidden_size_that_heads_do_not_divide_is_refused() -> None:
    with pytest.raises(SpecError, match="'hidden_size' = 4097 is not a multiple of"):
        llama(hidden_size=4097)


def test_key_value_heads_that_do_not_divide_heads_are_refused() -> None:
    with pytest.raises(SpecError, match=r"'llama': num_attention_heads = 32 is not a multiple"):
        llama(num_key_value_heads=5)


def test_a_limit_of_the_spec_names_field_and_reason() -> None:
    with pytest.raises(SpecError, match=r"'llama': hidden_size: must be at most"):
        llama(hidden_size=20_000_000)


def test_more_experts_per_token_than_experts_are_refused() -> None:
    with pytest.raises(SpecError, match="num_experts_per_tok = 9 exceeds num_experts = 8"):
        changed("mixtral-8x7b", num_experts_per_tok=9)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"n_group": 7}, "num_experts = 256 is not a multiple of n_group = 7"),
        ({"topk_group": 9}, "topk_group = 9 exceeds n_group = 8"),
        ({"n_group": None}, "topk_group = 4 exceeds n_group = 1"),
    ],
)
def test_groups_of_experts_that_cannot_be_are_refused(
    fields: dict[str, int | None], says: str
) -> None:
    with pytest.raises(SpecError, match=says):
        changed("deepseek-v3", **fields)


def test_an_unknown_activation_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UnsupportedError, match="'mish' in 'hidden_act' is not modelled"):
        llama(hidden_act="mish")


def test_layer_types_of_the_wrong_length_are_refused() -> None:
    with pytest.raises(SpecError, match=r"'layer_types' has 1 entries, 'num_hidden_layers' is 26"):
        changed("gemma3-1b", layer_types=["full_attention"])


def test_an_unknown_layer_type_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="'linear_attention', which is not modelled"):
        changed("gemma3-1b", layer_types=["linear_attention"] * 26)


@pytest.mark.parametrize("value", ["full_attention", [1], {"a": 1}])
def test_layer_types_that_are_no_list_of_strings_are_refused(value: object) -> None:
    with pytest.raises(SpecError, match="'layer_types' must be a list"):
        changed("gemma3-1b", layer_types=value)


@pytest.mark.parametrize(
    "changes", [{"mlp_only_layers": [3]}, {"mlp_only_layers": [0], "decoder_sparse_step": 2}]
)
def test_dense_layers_in_the_middle_are_not_modelled(changes: dict[str, object]) -> None:
    with pytest.raises(UnsupportedError, match="'mlp_only_layers' is modelled for the first"):
        qwen2_moe(**changes)


def test_a_deepseek_that_alternates_mixtures_is_not_modelled() -> None:
    with pytest.raises(UnsupportedError, match="'moe_layer_freq' other than 1"):
        changed("deepseek-v3", moe_layer_freq=2)


def test_an_opt_without_norm_weights_is_not_modelled() -> None:
    with pytest.raises(
        UnsupportedError, match="'layer_norm_elementwise_affine' off is not modelled"
    ):
        changed("opt-125m", layer_norm_elementwise_affine=False)


def test_a_gpt2_with_cross_attention_is_not_modelled() -> None:
    with pytest.raises(UnsupportedError, match="'add_cross_attention'"):
        changed("gpt2", add_cross_attention=True)


def test_a_gemma3_without_text_config_is_refused() -> None:
    with pytest.raises(SpecError, match="lacks 'text_config'"):
        without("gemma3-27b", "text_config")


def test_a_missing_model_type_is_refused_with_an_example() -> None:
    with pytest.raises(SpecError, match=r"lacks 'model_type'.*for instance 'llama'"):
        model_from_config({"hidden_size": 1}, "mine")


def test_a_model_type_that_is_no_string_is_refused() -> None:
    with pytest.raises(SpecError, match="'model_type' must be a string, got 3"):
        model_from_config({"model_type": 3}, "mine")


@pytest.mark.parametrize(
    ("model_type", "what"),
    [
        ("hrm_text", "runs its layers several times, without gradients but the last"),
        ("mllama_text_model", "attends to pictures"),
        *[(name, "vision encoder") for name in ("vit", "clip", "siglip")],
        *[(name, "encoder-decoder") for name in ("t5", "bart", "whisper", "mt5", "trocr")],
        *[
            (name, "encoder without a decoder")
            for name in ("bert", "roberta", "xlnet", "camembert")
        ],
        ("rwkv7", "recurrent"),
    ],
)
def test_an_architecture_that_is_not_modelled_is_named_for_what_it_is(
    model_type: str, what: str
) -> None:
    with pytest.raises(UnsupportedError, match=what):
        model_from_config({"model_type": model_type}, "mine")


def test_an_encoder_decoder_flag_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="encoder-decoder models are not modelled"):
        llama(is_encoder_decoder=True)
