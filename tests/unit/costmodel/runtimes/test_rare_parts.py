"""What exporters cannot write is refused by name, and no field of a model is forgotten."""

import pytest

from trainplan.costmodel.architecture.layers import (
    ConvolutionSpec,
    IndexerSpec,
    LayerKind,
    LinearAttentionSpec,
    SsmSpec,
)
from trainplan.costmodel.architecture.model import ModelSpec
from trainplan.costmodel.architecture.moe import MoeSpec
from trainplan.costmodel.presets.presets import preset
from trainplan.costmodel.runtimes import torchtitan_models
from trainplan.costmodel.runtimes.megatron import features
from trainplan.costmodel.runtimes.rare_parts import MIXERS, OWN_SIZES

LLAMA = preset("llama3-8b")
EXPERTS = preset("mixtral-8x7b")
SSM = SsmSpec(num_heads=128, head_dim=64, state_size=128)
LINEAR = LinearAttentionSpec(
    num_key_heads=16, num_value_heads=32, key_head_dim=128, value_head_dim=128
)
SIZES = {
    "chunked_attention": {"attention_chunk_size": 512},
    "sparse_attention": {"indexer": IndexerSpec(num_heads=4, head_dim=64, top_k=256)},
    "linear_attention": {"linear_attention": LINEAR},
    "mamba": {"ssm": SSM},
    "attention_and_mamba": {"ssm": SSM},
    "convolution": {"convolution": ConvolutionSpec(kernel=3)},
    "none": {},
}
RARE: dict[str, object] = {
    "value_head_dim": 64,
    "embedding_norm": True,
    "embedding_weights": 4096,
    "norm_weights": "none",
    "shared_norm": True,
    "head_bias": True,
    "side_products": ((4096, 64),),
    "layer_weights": 8,
    "own_weights": 8,
    "key_value_projections": "keys",
    "scaled_branches": True,
    "unrotated_layers": 8,
    "low_rank": {"query_rank": 64, "output_rank": 64},
    "qk_norm": "each",
    "position_embedding": "alibi",
    "key_compression": 4,
    "residual_streams": 4,
    "wide_products": True,
    "nextn_shared": True,
}
WRITTEN = """
    name model_type read_by_fields num_hidden_layers hidden_size intermediate_size
    num_attention_heads num_key_value_heads head_dim vocab_size max_position_embeddings
    position_embedding position_embedding_offset rope_theta partial_rotary_factor rope_scaling
    embedding_size norm norm_eps norm_position final_norm parallel_residual activation gated_mlp
    swiglu_limit qkv_bias attention_output_bias mlp_bias qk_norm attention_sinks
    attn_logit_softcapping final_logit_softcapping scale_embeddings sliding_window feed_forward
    layers tie_word_embeddings mla moe num_nextn_predict_layers tower trained
    left_out
"""
"""Fields that exporters write or refuse themselves."""
SIZES_OF_MIXERS = {"attention_chunk_size", "indexer", "linear_attention", "ssm", "convolution"}
RARE_EXPERTS = {"num_zero_experts": 4, "wide_latent": True, "mean_experts_per_tok": 1.5}
WRITTEN_EXPERTS = """
    num_experts num_experts_per_tok moe_intermediate_size shared_expert_intermediate_size
    shared_expert_gate first_k_dense_replace moe_layer_freq router_bias router_bias_is_parameter
    expert_bias router_score_function norm_topk_prob n_group topk_group routed_scaling_factor
    latent_size router_aux_loss_coef
"""


def refusals(model: ModelSpec) -> tuple[str | None, str | None]:
    return features.unsupported_feature(model), torchtitan_models.unsupported_feature(model)


def changed(model: ModelSpec, **fields: object) -> ModelSpec:
    return ModelSpec.model_validate(model.model_dump() | fields)


def test_the_models_they_start_from_are_written() -> None:
    assert refusals(LLAMA) == (None, None)
    assert refusals(EXPERTS)[0] is None


@pytest.mark.parametrize("field", RARE)
def test_a_rare_part_is_refused_by_the_exporters(field: str) -> None:
    for refusal in refusals(changed(LLAMA, **{field: RARE[field]})):
        assert refusal is not None


@pytest.mark.parametrize("mixer", MIXERS)
def test_a_mixer_other_than_attention_is_refused_by_name(mixer: str) -> None:
    model = changed(LLAMA, mixer=mixer, **SIZES[mixer])
    assert refusals(model)[1] == MIXERS[mixer]


def test_a_gate_by_head_is_refused_where_no_runtime_has_it() -> None:
    gated = changed(LLAMA, attention_output_gate="head")
    assert all(refusals(gated))


def test_a_layer_without_an_mlp_is_refused() -> None:
    assert refusals(changed(LLAMA, feed_forward="none"))[1] == "layers without an MLP"


def test_layers_of_their_own_size_are_refused() -> None:
    kinds = [{"name": "a"}, {"name": "wide", "intermediate_size": 28672}]
    model = changed(LLAMA, layer_kinds=kinds, layers=("a", "wide") * 16)
    says = "layers of their own intermediate_size (kind 'wide')"
    assert refusals(model) == (says, says)


@pytest.mark.parametrize("field", RARE_EXPERTS)
def test_rare_experts_are_refused(field: str) -> None:
    assert EXPERTS.moe
    moe = EXPERTS.moe.model_dump() | {field: RARE_EXPERTS[field]}
    for refusal in refusals(changed(EXPERTS, moe=moe)):
        assert refusal is not None


def test_several_layers_of_a_module_are_refused() -> None:
    kinds = {"layer_kinds": [{"name": "a"}], "layers": ("a",) * 32}
    model = changed(LLAMA, **kinds, num_nextn_predict_layers=1, nextn_layers=("a", "a"))
    assert all(refusals(model))


def test_every_field_of_a_model_is_written_or_refused() -> None:
    layers = {"mixer", "nextn_layers", "layer_kinds", "shares_index", "attention_output_gate"}
    layers |= {"tower", "trained"}  # `features` and `Exporter.trains` refuse them
    known = {*WRITTEN.split(), *RARE, *SIZES_OF_MIXERS, *layers}
    assert set(ModelSpec.model_fields) == known


def test_every_field_of_experts_is_written_or_refused() -> None:
    assert set(MoeSpec.model_fields) == {*WRITTEN_EXPERTS.split()} | set(RARE_EXPERTS)


def test_every_field_of_a_kind_of_layer_is_written_or_refused() -> None:
    assert set(LayerKind.model_fields) == {"name", "mixer", "feed_forward", *OWN_SIZES}
