"""Every reason for which an exporter writes no model: a model that has it, and one that barely not.

Reasons are read from the code: one without rows here fails.
"""

import ast
import inspect

import pytest

from tests.conftest import TOWER
from trainplan.costmodel.architecture.layers import (
    ConvolutionSpec,
    IndexerSpec,
    LinearAttentionSpec,
    LowRankSpec,
    MlaSpec,
    SsmSpec,
)
from trainplan.costmodel.architecture.model import ModelSpec
from trainplan.costmodel.architecture.moe import MoeSpec
from trainplan.costmodel.runtimes import rare_parts, torchtitan_models
from trainplan.costmodel.runtimes.megatron import features

DENSE = {
    "name": "dense",
    "num_hidden_layers": 6,
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "vocab_size": 32_000,
    "max_position_embeddings": 8192,
}
MLA = MlaSpec(
    q_lora_rank=384, kv_lora_rank=128, qk_nope_head_dim=64, qk_rope_head_dim=32, v_head_dim=64
)
SSM = {"num_heads": 32, "head_dim": 64, "state_size": 128}
INDEXER = IndexerSpec(num_heads=4, head_dim=64, top_k=256)
LINEAR = LinearAttentionSpec(
    num_key_heads=8, num_value_heads=16, key_head_dim=64, value_head_dim=128
)
BIASED = {"attention_output_bias": True, "mlp_bias": True, "qkv_bias": True}
PLAIN_MLP = {"gated_mlp": False, "activation": "gelu"}
LAYERNORM = {"norm": "layernorm"}


def moe(**fields):
    sizes = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 512}
    return {"moe": MoeSpec.model_validate(sizes | fields)}


def latent(**fields):
    shared = {"shared_expert_intermediate_size": 512} | fields
    return {"mla": MLA, **moe(**shared)}


def mamba(**fields):
    return {"mixer": "mamba", "ssm": SsmSpec.model_validate(SSM | fields)}


def scaled(kind, factor=4.0, **fields):
    return {"rope_scaling": {"rope_type": kind, "factor": factor}, **fields}


def kinds(**fields):
    """Every second layer differs."""
    return {"layer_kinds": [{"name": "a"}, {"name": "b", **fields}], "layers": ("a", "b") * 3}


WINDOWS = {"mixer": "sliding_attention", "sliding_window": 512}
SINKS_OF_GPT_OSS = {"attention_sinks": True, **moe(expert_bias=True, router_bias=True)}
MEGATRON = {
    "Mamba with biases": (
        [mamba(input_bias=True), mamba(output_bias=True), mamba(conv_bias=False)],
        [mamba()],
    ),
    "Mamba without a gated norm": ([mamba(gated_norm=False)], [mamba()]),
    "Mamba with a convolution": ([mamba(conv_kernel=3), mamba(conv_kernel=5)], [mamba()]),
    "sparse attention that is not latent": (
        [{"mixer": "sparse_attention", "indexer": INDEXER}],
        [{"mixer": "sparse_attention", "indexer": INDEXER, "mla": MLA}, {"mla": MLA}],
    ),
    "": ([{"tower": TOWER}], [{}]),  # its own name goes first
    "norms in position": ([{"norm_position": "post"}, {"norm_position": "both"}], [{}]),
    "a model without final norm": ([{"final_norm": False}], [{}]),
    "attention and MLP in parallel": ([{"parallel_residual": True}], [{}]),
    "an embedding narrower": ([{"embedding_size": 512}], [{"embedding_size": 1024}]),
    "unused rows in front": ([{"position_embedding_offset": 2}], [{}]),
    "soft-capped attention logits": (
        [{"attn_logit_softcapping": 50.0}],
        [{"final_logit_softcapping": 30.0}],
    ),
    "soft-capped output logits": (
        [{"final_logit_softcapping": 30.0}],
        [{"attn_logit_softcapping": 50.0}],
    ),
    "scaled token embeddings": ([{"scale_embeddings": True}], [{"scaled_branches": True}]),
    "a ": (
        [
            {"activation": "gelu"},
            {"gated_mlp": False},
            {"gated_mlp": False, "activation": "relu"},
            {"activation": "relu2"},
        ],
        [
            PLAIN_MLP,
            {"gated_mlp": False, "activation": "relu2"},
            {"gated_mlp": False, "activation": "gelu_tanh"},
        ],
    ),
    "swiglu_limit without": (
        [{"swiglu_limit": 7.0}, {"swiglu_limit": 7.0, "model_type": "llama"}],
        [{"swiglu_limit": 7.0, "model_type": "gpt_oss"}, {"model_type": "llama"}],
    ),
    "latent attention with biases": (
        [{"mla": MLA, "qkv_bias": True}, {"mla": MLA, "attention_output_bias": True}],
        [{"mla": MLA}, {"qkv_bias": True}],
    ),
    "linear layers with biases but none": ([BIASED | {"qkv_bias": False}], [BIASED]),
    "a bias on some": (
        [
            {"attention_output_bias": True},
            {"mlp_bias": True},
            BIASED | moe(),
            moe(expert_bias=True, first_k_dense_replace=2),
            moe(expert_bias=True),
            BIASED | {"mlp_bias": False} | moe(expert_bias=True, first_k_dense_replace=2),
        ],
        [
            {"qkv_bias": True},
            BIASED,
            BIASED | moe(expert_bias=True),
            BIASED | {"mlp_bias": False} | moe(expert_bias=True),
            BIASED | moe(expert_bias=True, first_k_dense_replace=2),
        ],
    ),
    "a norm over all heads": ([{"qk_norm": "full"}], [{"qk_norm": "head"}]),
    "an RMSNorm on queries": (
        [{"qk_norm": "head", **LAYERNORM}],
        [{"qk_norm": "head"}, LAYERNORM, {"qk_norm": "head", "mla": MLA, **LAYERNORM}],
    ),
    "rope_theta =": (
        [{"rope_theta": 10_000.5}],
        [{"rope_theta": 500_000.0}, {"rope_theta": 1.5, "position_embedding": "learned"}],
    ),
    "rope_scaling of type": (
        [
            scaled("dynamic"),
            scaled("linear", 2.5),
            scaled("linear", mla=MLA),
            scaled("llama3", mla=MLA),
        ],
        [scaled("linear"), scaled("llama3"), scaled("yarn"), scaled("yarn", mla=MLA)],
    ),
    "multi-token prediction with YaRN": (
        [scaled("yarn", num_nextn_predict_layers=1)],
        [
            scaled("yarn"),
            scaled("yarn", num_nextn_predict_layers=1, mla=MLA),
            scaled("llama3", num_nextn_predict_layers=1),
        ],
    ),
    "experts that compute nothing": (
        [moe(mean_experts_per_tok=1.5)],
        [moe(num_zero_experts=4)],
    ),
    "shared experts with biases": (
        [moe(shared_expert_intermediate_size=512, expert_bias=True)],
        [moe(shared_expert_intermediate_size=512), moe(expert_bias=True)],
    ),
    "sigmoid router scores": (
        [moe(router_score_function="sigmoid", norm_topk_prob=False)],
        [
            moe(router_score_function="sigmoid"),
            moe(norm_topk_prob=False),
            moe(router_score_function="sigmoid", norm_topk_prob=False, num_experts_per_tok=1),
        ],
    ),
    "a learned router bias": (
        [moe(router_bias=True), moe(expert_bias=True)],
        [
            moe(),
            moe(router_bias=True, router_score_function="sigmoid"),
            moe(router_bias=True, expert_bias=True),
        ],
    ),
}
TORCHTITAN = {
    "": ([{"tower": TOWER}], [{}]),
    "norms other than RMSNorm": (
        [LAYERNORM, {"norm_position": "post"}, {"norm_position": "both"}, {"final_norm": False}],
        [{}],
    ),
    "attention and MLP in parallel": ([{"parallel_residual": True}], [{}]),
    "an MLP other than SwiGLU": ([{"activation": "gelu"}, {"gated_mlp": False}, PLAIN_MLP], [{}]),
    "biases of the MLP": ([{"mlp_bias": True}], [{"qkv_bias": True}]),
    "an embedding narrower": ([{"embedding_size": 512}], [{"embedding_size": 1024}]),
    "scaled token embeddings": ([{"scale_embeddings": True}], [{"scaled_branches": True}]),
    "soft-capped logits": (
        [{"attn_logit_softcapping": 50.0}, {"final_logit_softcapping": 30.0}],
        [{}],
    ),
    "norms over all heads": ([{"qk_norm": "full"}], [{"qk_norm": "head"}]),
    "attention sinks but those": (
        [
            {"attention_sinks": True},
            {"attention_sinks": True, **moe(router_bias=True)},
        ],
        [SINKS_OF_GPT_OSS, moe(expert_bias=True, router_bias=True)],
    ),
    "sliding windows but those": (
        [WINDOWS, WINDOWS | moe(expert_bias=True, router_bias=True)],
        [SINKS_OF_GPT_OSS | WINDOWS],
    ),
    "biases of attention": (
        [{"qkv_bias": True}, {"attention_output_bias": True}],
        [SINKS_OF_GPT_OSS | {"qkv_bias": True}],
    ),
    "a clamped gated unit": (
        [{"swiglu_limit": 7.0}],
        [SINKS_OF_GPT_OSS | {"swiglu_limit": 7.0}],
    ),
    "positions of kind": (
        [{"position_embedding": "learned"}, {"position_embedding": "none"}],
        [{"position_embedding": "rope"}],
    ),
    "positions on a part": ([{"partial_rotary_factor": 0.5}], [{}]),
    "positions scaled by": ([scaled("linear")], [scaled("llama3"), scaled("yarn")]),
    "multi-token prediction without": (
        [{"num_nextn_predict_layers": 1}],
        [{"num_nextn_predict_layers": 1, "mla": MLA}, {}],
    ),
    "experts in every n-th layer": ([moe(moe_layer_freq=2)], [moe(moe_layer_freq=1)]),
    "a gate on the shared expert": (
        [moe(shared_expert_gate=True, shared_expert_intermediate_size=512)],
        [moe(shared_expert_intermediate_size=512)],
    ),
    "experts that compute nothing": (
        [moe(mean_experts_per_tok=1.5)],
        [moe(num_zero_experts=4)],
    ),
    "experts with latent attention": (
        [
            latent(shared_expert_intermediate_size=0),
            latent(shared_expert_intermediate_size=768),
        ],
        [latent(), latent(shared_expert_intermediate_size=1024), moe()],
    ),
    "shared experts or dense layers": (
        [moe(shared_expert_intermediate_size=512), moe(first_k_dense_replace=1)],
        [moe(), latent(first_k_dense_replace=1)],
    ),
    "a router without normalised": (
        [
            moe(router_score_function="sigmoid"),
            moe(norm_topk_prob=False),
            moe(n_group=2, topk_group=1),
            moe(routed_scaling_factor=2.5),
        ],
        [
            moe(),
            moe(n_group=1, topk_group=1, routed_scaling_factor=1.0),
            latent(router_score_function="sigmoid", n_group=2, topk_group=1),
        ],
    ),
}
RARE = {
    "layers without an MLP": ([{"feed_forward": "none"}], [{}]),
    "a gate on the output of attention (": (
        [{"attention_output_gate": "elementwise"}, {"attention_output_gate": "head"}],
        [{}],
    ),
    "experts in a latent width": ([moe(latent_size=256)], [moe()]),
    "layers of their own": (
        [kinds(intermediate_size=4096), kinds(num_key_value_heads=8, num_attention_heads=16)],
        [kinds(mixer="full_attention"), {}],
    ),
    "side products of both halves": ([{"side_products": ((1024, 64),)}], [{}]),
    "weights of a layer in none": ([{"layer_weights": 8}], [{}]),
    "layers with the weights of an earlier": ([{"own_weights": 8}], [{}]),
    "values narrower or wider": (
        [{"value_head_dim": 64}, {"value_head_dim": 256}],
        [{"value_head_dim": 128}],
    ),
    "attention without keys": (
        [{"key_value_projections": "keys"}, {"key_value_projections": "none"}],
        [{"key_value_projections": "both"}],
    ),
    "a gate on the output of attention by head": (
        [{"attention_output_gate": "head"}],
        [{"attention_output_gate": "elementwise"}],
    ),
    "queries and output": ([{"low_rank": LowRankSpec(query_rank=64)}], [{"mla": MLA}]),
    "attention to compressed keys": ([{"key_compression": 4}], [{}]),
    "norms of queries and keys with": ([{"qk_norm": "each"}], [{"qk_norm": "head"}]),
    "positions in all layers but": ([{"unrotated_layers": 1}], [{"unrotated_layers": 0}]),
    "positions of kind 'alibi'": (
        [{"position_embedding": "alibi"}],
        [{"position_embedding": "learned"}],
    ),
    "norms that learn": (
        [{"norm_weights": "none"}, {"norm_weights": "scale"}],
        [{"norm_weights": "all"}],
    ),
    "one norm for attention": ([{"shared_norm": True}], [{"parallel_residual": True}]),
    "a norm behind the token": ([{"embedding_norm": True}], [{}]),
    "more weights than the token": ([{"embedding_weights": 1}], [{"embedding_weights": 0}]),
    "a bias on the logits": ([{"head_bias": True}], [{"mlp_bias": True}]),
    "fixed factors": ([{"scaled_branches": True}], [{"scale_embeddings": True}]),
    "a residual of several": ([{"residual_streams": 2}], [{"residual_streams": 1}]),
    "products in 16 bits": (
        [{"wide_products": True}, moe(latent_size=256, wide_latent=True)],
        [moe(latent_size=256)],
    ),
    "several layers of a multi": (
        [kinds() | {"num_nextn_predict_layers": 1, "nextn_layers": ("a", "b")}],
        [kinds() | {"num_nextn_predict_layers": 1}],
    ),
    "multi-token-prediction modules of": (
        [{"num_nextn_predict_layers": 2, "nextn_shared": True}],
        [{"num_nextn_predict_layers": 2}],
    ),
    "experts without weights": ([moe(num_zero_experts=1)], [moe(num_zero_experts=0)]),
}
MIXERS = {
    "chunked_attention": {"attention_chunk_size": 512},
    "sparse_attention": {"indexer": INDEXER},
    "linear_attention": {"linear_attention": LINEAR},
    "mamba": mamba(),
    "attention_and_mamba": mamba(),
    "convolution": {"convolution": ConvolutionSpec(kernel=3)},
    "none": {},
}


def of_megatron(model):
    parts = [part for part in features.PARTS if part is not rare_parts.rare_parts]
    return [reason for part in parts for reason in part(model)]


def of_torchtitan(model):
    own = ("_blocks", "_attention", "_positions", "_experts")
    return [reason for name in own for reason in getattr(torchtitan_models, name)(model)]


def of_rare_parts(model):
    return [*rare_parts.unwritten_layers(model), *rare_parts.rare_parts(model)]


TABLES = {
    "megatron": (features, of_megatron, MEGATRON),
    "torchtitan": (torchtitan_models, of_torchtitan, TORCHTITAN),
    "rare parts": (rare_parts, of_rare_parts, RARE),
}


def reasons_of(module):
    """How the text of each reason starts; empty: not with words of its own."""
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        text = node.value if isinstance(node, ast.Yield) else None
        if isinstance(text, ast.JoinedStr):
            text = text.values[0]
        if text is not None:
            yield text.value if isinstance(text, ast.Constant) else ""


ROWS = [(table, start) for table in TABLES for start in TABLES[table][2]]


@pytest.mark.parametrize("table", TABLES)
def test_every_reason_has_rows(table):
    module, _, rows = TABLES[table]
    found = [*reasons_of(module)]
    if module is rare_parts:
        found.remove("")  # a mixer: `MIXERS`
    assert len(found) == len(rows)
    for text in found:
        assert [start for start in rows if text.startswith(start) and (start or not text)], text


@pytest.mark.parametrize(("table", "start"), ROWS)
def test_a_reason_is_given_where_it_holds_and_not_where_it_barely_does_not(table, start):
    _, reasons, rows = TABLES[table]
    longer = tuple(one for one in rows if one != start and one.startswith(start))

    def given(fields):
        found = reasons(ModelSpec.model_validate(DENSE | fields))
        if not start:
            return TOWER.called in " ".join(found)
        return any(one.startswith(start) and not one.startswith(longer) for one in found)

    breaking, legal = rows[start]
    assert all(map(given, breaking))
    assert not any(map(given, legal))


@pytest.mark.parametrize("mixer", rare_parts.MIXERS)
def test_a_mixer_is_called_by_its_name(mixer):
    model = ModelSpec.model_validate(DENSE | MIXERS[mixer] | {"mixer": mixer})
    assert rare_parts.MIXERS[mixer] in of_rare_parts(model)
    for legal in ({}, WINDOWS):
        assert not of_rare_parts(ModelSpec.model_validate(DENSE | legal))
