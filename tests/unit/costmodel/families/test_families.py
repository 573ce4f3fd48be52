"""Hugging Face config.json -> ModelSpec: what is read."""

import pytest

from trainplan.costmodel.architecture.model import ModelSpec
from trainplan.costmodel.base.errors import CatalogError
from trainplan.costmodel.families.reading import model_from_config
from trainplan.costmodel.model.params import num_parameters
from trainplan.costmodel.presets.presets import preset, preset_config, preset_names

LLAMA = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "vocab_size": 32000,
    "max_position_embeddings": 4096,
}


def llama(**changes: object) -> ModelSpec:
    return model_from_config({**LLAMA, **changes}, "mine")


def changed(name: str, **changes: object) -> ModelSpec:
    return model_from_config({**preset_config(name), **changes}, name)


def without(name: str, *fields: str) -> ModelSpec:
    kept = {key: value for key, value in preset_config(name).items() if key not in fields}
    return model_from_config(kept, name)


def test_the_model_carries_the_given_name_and_its_model_type() -> None:
    assert (llama().name, llama().model_type) == ("mine", "llama")


def test_missing_key_value_heads_mean_one_per_query_head() -> None:
    assert llama().num_key_value_heads == 32


def test_missing_or_null_head_dim_is_hidden_size_over_heads() -> None:
    assert llama().head_dim == llama(head_dim=None).head_dim == 128


def test_head_dim_of_the_file_wins_over_hidden_size_over_heads() -> None:
    assert llama(head_dim=96, hidden_size=4000).head_dim == 96


@pytest.mark.parametrize(
    ("name", "tied"),
    [("llama3-8b", False), ("gemma2-9b", True), ("gpt2", True), ("opt-125m", True)],
)
def test_missing_tie_word_embeddings_takes_the_default_of_its_class(name: str, tied: bool) -> None:  # noqa: FBT001
    assert without(name, "tie_word_embeddings").tie_word_embeddings is tied


def test_biases_of_llama_follow_the_file() -> None:
    model = llama(attention_bias=True, mlp_bias=True)
    assert (model.qkv_bias, model.attention_output_bias, model.mlp_bias) == (True, True, True)


def test_llama_rope_scaling_keeps_every_number_an_exporter_writes() -> None:
    scaling = preset("llama3.1-8b").rope_scaling
    assert scaling is not None
    assert (scaling.rope_type, scaling.factor) == ("llama3", 8.0)
    assert (scaling.low_freq_factor, scaling.high_freq_factor) == (1.0, 4.0)
    assert scaling.original_max_position_embeddings == 8192


def test_whether_yarn_rounds_its_ramp_is_read() -> None:
    for truncate in (True, False, None):
        yarn = {"rope_type": "yarn", "factor": 4.0, "truncate": truncate}
        scaling = llama(rope_scaling=yarn).rope_scaling
        assert scaling is not None
        assert scaling.truncate is truncate


def test_gpt_oss_does_not_round_the_ramp_of_yarn() -> None:
    scaling = preset("gpt-oss-120b").rope_scaling
    assert scaling is not None
    assert scaling.truncate is False


def test_rope_parameters_of_transformers_5_are_read() -> None:
    rope = {"rope_type": "linear", "factor": 4.0, "rope_theta": 5e5, "partial_rotary_factor": 0.5}
    model = llama(rope_parameters=rope)
    assert model.rope_scaling is not None
    assert (model.rope_theta, model.partial_rotary_factor) == (5e5, 0.5)
    assert (model.rope_scaling.rope_type, model.rope_scaling.factor) == ("linear", 4.0)


def test_rope_parameters_by_layer_kind_give_those_of_the_full_layers() -> None:
    rope = {"full_attention": {"rope_type": "default", "rope_theta": 7e5}, "sliding_attention": {}}
    model = changed("gemma3-1b", rope_parameters=rope)
    assert (model.rope_theta, model.rope_scaling) == (7e5, None)


def test_longrope_factor_is_new_length_over_old() -> None:
    scaling = {"type": "longrope", "short_factor": [1.0], "long_factor": [1.0]}
    model = changed("phi3-mini", rope_scaling=scaling, max_position_embeddings=131072)
    assert model.rope_scaling is not None
    assert model.rope_scaling.factor == 32.0


def test_gpt_neox_reads_its_own_names_for_rotary_settings() -> None:
    model = preset("pythia-1.4b")
    assert (model.partial_rotary_factor, model.parallel_residual) == (0.25, True)


@pytest.mark.parametrize(
    ("name", "window", "layers"),
    [
        ("mistral-7b", 4096, 32),
        ("mixtral-8x7b", None, 0),
        ("gemma2-27b", 4096, 23),
        ("gemma3-1b", 512, 22),
        ("gemma3-27b", 1024, 52),
        ("gpt-oss-20b", 128, 12),
        ("phi3-mini", 2047, 32),
        ("qwen2.5-7b", None, 0),
    ],
)
def test_sliding_layers_are_those_of_the_family(name: str, window: int | None, layers: int) -> None:
    model = preset(name)
    assert (model.sliding_window, model.num_sliding_window_layers) == (window, layers)


def test_a_null_window_means_full_attention_everywhere() -> None:
    assert changed("mistral-7b", sliding_window=None).num_sliding_window_layers == 0


def test_qwen2_slides_from_max_window_layers_on() -> None:
    model = changed("qwen2.5-7b", use_sliding_window=True, max_window_layers=20)
    assert (model.sliding_window, model.num_sliding_window_layers) == (131072, 8)


def test_layer_types_of_the_file_win_over_the_pattern() -> None:
    types = ["sliding_attention"] * 3 + ["full_attention"] * 23
    assert changed("gemma3-1b", layer_types=types).num_sliding_window_layers == 3


def test_a_null_soft_cap_switches_it_off_and_a_missing_one_takes_the_default() -> None:
    off = changed("gemma2-9b", attn_logit_softcapping=None)
    default = without("gemma2-9b", "attn_logit_softcapping")
    assert (off.attn_logit_softcapping, default.attn_logit_softcapping) == (None, 50.0)


def test_gemma3_with_vision_is_read_from_its_text_config() -> None:
    model = preset("gemma3-27b")
    assert (model.model_type, model.vocab_size, model.qk_norm) == ("gemma3_text", 262_208, "head")


def test_deepseek_v3_routes_by_sigmoid_with_a_balancing_bias() -> None:
    model = preset("deepseek-v3")
    assert model.moe is not None
    assert (model.moe.router_score_function, model.moe.router_bias) == ("sigmoid", True)
    assert (model.moe.n_group, model.moe.topk_group) == (8, 4)
    assert (model.num_dense_layers, model.num_nextn_predict_layers) == (3, 1)


def test_deepseek_v2_lite_does_not_compress_queries() -> None:
    model = preset("deepseek-v2-lite")
    assert model.mla is not None
    assert (model.mla.q_lora_rank, model.head_dim) == (None, 192)


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


def test_qwen2_moe_has_a_gated_shared_expert() -> None:
    moe = qwen2_moe().moe
    assert moe is not None
    assert (moe.shared_expert_gate, moe.shared_expert_intermediate_size) == (True, 5632)


def test_qwen2_moe_sparse_step_makes_every_second_layer_a_mixture() -> None:
    assert qwen2_moe(decoder_sparse_step=2).moe_layers == (False, True) * 16


def test_qwen2_moe_leading_dense_layers_are_read_from_mlp_only_layers() -> None:
    assert qwen2_moe(mlp_only_layers=[1, 0]).num_dense_layers == 2


def test_opt_350m_embeds_narrower_and_ends_without_a_norm() -> None:
    model = changed("opt-125m", word_embed_proj_dim=512, do_layer_norm_before=False)
    assert (model.embedding_size, model.norm_position) == (512, "post")
    assert model.final_norm is False


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_says_where_its_numbers_come_from(name: str) -> None:
    source = preset_config(name)["_source"]
    assert isinstance(source, str)
    assert "huggingface.co/" in source or "arXiv:" in source


def test_an_unknown_preset_is_refused_with_the_nearest_names() -> None:
    with pytest.raises(CatalogError, match=r"unknown model 'llama3-8': did you mean 'llama3-8b'"):
        preset("llama3-8")


def test_the_language_model_of_a_glm_4v_is_a_glm_4_of_the_same_sizes() -> None:
    config = {**preset_config("glm4-9b"), "model_type": "glm4v_text"}
    whole = changed("glm4-9b")
    assert num_parameters(model_from_config(config, "mine")) == num_parameters(whole)
    left = {key: value for key, value in config.items() if key != "head_dim"}
    assert model_from_config(left, "mine").head_dim == whole.hidden_size // 32
