"""Mixers of transformers' own modules, and the specs that describe them."""

import pytest

from trainplan.costmodel.architecture.layers import (
    ConvolutionSpec,
    IndexerSpec,
    LinearAttentionSpec,
    MlaSpec,
    SsmSpec,
)
from trainplan.costmodel.architecture.model import ModelSpec

torch = pytest.importorskip("torch", reason="the oracles need torch: run `make oracles`")
transformers = pytest.importorskip(
    "transformers", reason="pip install transformers: mixers are held against it"
)

ATTENTION = {"num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 16}
LATENT = MlaSpec(
    q_lora_rank=48, kv_lora_rank=24, qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=12
)
LATENT_SIZES = {**LATENT.model_dump(), "num_attention_heads": 8, "num_key_value_heads": 8}
LINEAR = {"num_key_heads": 2, "num_value_heads": 6, "key_head_dim": 8, "value_head_dim": 16}
LINEAR_SIZES = {f"linear_{name}": size for name, size in LINEAR.items()}
MAMBA_2 = SsmSpec(num_heads=8, head_dim=24, state_size=20, num_groups=2, chunk_size=32)
MAMBA_2_SIZES = {
    "num_heads": 8,
    "head_dim": 24,
    "state_size": 20,
    "n_groups": 2,
    "expand": 2,
    "chunk_size": 32,
}
MAMBA_1 = SsmSpec(num_heads=192, state_size=20, time_step_rank=6)


def hybrid(**sizes):
    """Sizes of Mamba as hybrid families name them."""
    return {f"mamba_{name}": size for name, size in sizes.items()}


BAMBA_SIZES = hybrid(n_heads=8, d_head=24, d_state=20, n_groups=2, expand=2, chunk_size=32)
"""Spec of the layer, family, class of its mixer, sizes of its configuration."""
MIXERS = {
    "gated attention": (
        {"attention_output_gate": "elementwise", "qk_norm": "head"} | ATTENTION,
        ("qwen3_next", "Qwen3NextAttention", ATTENTION),
    ),
    "gated attention with biases": (
        {"attention_output_gate": "elementwise", "qk_norm": "head"}
        | {"qkv_bias": True, "attention_output_bias": True}
        | ATTENTION,
        ("qwen3_next", "Qwen3NextAttention", ATTENTION | {"attention_bias": True}),
    ),
    "gated delta rule": (
        {"mixer": "linear_attention", "linear_attention": LinearAttentionSpec(**LINEAR)},
        ("qwen3_next", "Qwen3NextGatedDeltaNet", LINEAR_SIZES),
    ),
    "gated delta rule of qwen3_5": (
        {"mixer": "linear_attention", "linear_attention": LinearAttentionSpec(**LINEAR)},
        ("qwen3_5_text", "Qwen3_5GatedDeltaNet", LINEAR_SIZES),
    ),
    "gated delta rule of olmo_hybrid": (
        {"mixer": "linear_attention", "linear_attention": LinearAttentionSpec(**LINEAR)},
        ("olmo_hybrid", "OlmoHybridGatedDeltaNet", LINEAR_SIZES),
    ),
    "delta attention of kimi": (
        {
            "mixer": "linear_attention",
            "linear_attention": LinearAttentionSpec(
                rule="kda",
                gate_rank=16,
                num_key_heads=6,
                num_value_heads=6,
                key_head_dim=16,
                value_head_dim=16,
            ),
        },
        (
            "kimi_linear",
            "KimiLinearDeltaAttention",
            {"linear_num_heads": 6, "linear_head_dim": 16},
        ),
    ),
    "lightning attention": (
        {
            "mixer": "linear_attention",
            "linear_attention": LinearAttentionSpec(
                rule="lightning",
                conv_kernel=None,
                num_key_heads=8,
                num_value_heads=8,
                key_head_dim=16,
                value_head_dim=16,
                chunk_size=32,
            ),
        },
        ("minimax", "MiniMaxLightningAttention", ATTENTION | {"block_size": 32}),
    ),
    "mamba-1": (
        {"mixer": "mamba", "ssm": MAMBA_1},
        ("mamba", "MambaMixer", {"state_size": 20, "time_step_rank": 6}),
    ),
    "mamba-1 with norms": (
        {"mixer": "mamba", "ssm": MAMBA_1.model_copy(update={"inner_norms": True})},
        ("jamba", "JambaMambaMixer", hybrid(d_state=20, dt_rank=6)),
    ),
    "mamba-2": ({"mixer": "mamba", "ssm": MAMBA_2}, ("mamba2", "Mamba2Mixer", MAMBA_2_SIZES)),
    "mamba-2 with biases": (
        {
            "mixer": "mamba",
            "ssm": MAMBA_2.model_copy(
                update={"conv_bias": False, "input_bias": True, "output_bias": True}
            ),
        },
        ("mamba2", "Mamba2Mixer", MAMBA_2_SIZES | {"use_bias": True, "use_conv_bias": False}),
    ),
    "mamba-2 of nemotron": (
        {"mixer": "mamba", "ssm": MAMBA_2},
        (
            "nemotron_h",
            "NemotronHMamba2Mixer",
            hybrid(num_heads=8, head_dim=24)
            | {"ssm_state_size": 20, "n_groups": 2, "chunk_size": 32},
        ),
    ),
    "mamba-2 of bamba": (
        {"mixer": "mamba", "ssm": MAMBA_2},
        ("bamba", "BambaMixer", BAMBA_SIZES),
    ),
    "mamba-2 without a norm": (
        {"mixer": "mamba", "ssm": MAMBA_2.model_copy(update={"gated_norm": False})},
        ("falcon_h1", "FalconH1Mixer", BAMBA_SIZES | {"mamba_d_ssm": 192}),
    ),
    "short convolution": (
        {"mixer": "convolution", "convolution": ConvolutionSpec(kernel=3)},
        ("lfm2", "Lfm2ShortConv", {"conv_L_cache": 3}),
    ),
    "short convolution with biases": (
        {"mixer": "convolution", "convolution": ConvolutionSpec(kernel=3, bias=True)},
        ("lfm2", "Lfm2ShortConv", {"conv_L_cache": 3, "conv_bias": True}),
    ),
    "sparse attention": (
        {
            "mixer": "sparse_attention",
            "mla": LATENT,
            "indexer": IndexerSpec(num_heads=4, head_dim=16, top_k=32),
            "num_attention_heads": 8,
            "num_key_value_heads": 8,
        },
        (
            "deepseek_v32",
            "DeepseekV32Attention",
            LATENT_SIZES | {"index_n_heads": 4, "index_head_dim": 16, "index_topk": 32},
        ),
    ),
    "sparse attention with keys of a layer before": (
        {
            "mixer": "sparse_attention",
            "mla": LATENT,
            "indexer": IndexerSpec(num_heads=4, head_dim=16, top_k=32),
            "shares_index": True,
            "num_attention_heads": 8,
            "num_key_value_heads": 8,
        },
        (
            "glm_moe_dsa",
            "GlmMoeDsaAttention",
            LATENT_SIZES
            | {"index_n_heads": 4, "index_head_dim": 16, "indexer_types": ["shared"] * 2},
        ),
    ),
}


def spec_of(name):
    """The model whose every layer has the mixer of this name, and no feed-forward."""
    sizes = {"num_attention_heads": 8, "num_key_value_heads": 8, "head_dim": 16}
    return ModelSpec(
        **{
            "num_hidden_layers": 2,
            "hidden_size": 96,
            "intermediate_size": 160,
            "vocab_size": 64,
            "max_position_embeddings": 256,
            "feed_forward": "none",
            **sizes,
            **MIXERS[name][0],
        }
    )


def module_of(name, device="meta"):
    """The mixer of this name as transformers builds it."""
    family, kind, sizes = MIXERS[name][1]
    return built(family, kind, sizes, device)


def built(family, kind, sizes, device="meta"):
    """A class of a family's modeling code, with a configuration of these sizes."""
    package = family.removesuffix("_text")
    made = getattr(pytest.importorskip(f"transformers.models.{package}.modeling_{package}"), kind)
    config = transformers.AutoConfig.for_model(family, hidden_size=96, num_hidden_layers=2, **sizes)
    with torch.device(device):
        return made(config, layer_idx=0)
