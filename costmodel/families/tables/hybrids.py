"""Decoders whose layers mix tokens by more than attention, by `model_type`.

Source: modeling and configuration code of transformers 5.24, of the `model_type` each; the reports
named with each.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from trainplan.costmodel.architecture import ConvolutionSpec, LinearAttentionSpec, Mixer
from trainplan.costmodel.families.family import HEAD, Family, Fields
from trainplan.costmodel.families.layers import Words, count_of_layers, of_length
from trainplan.costmodel.families.reader import HfConfig
from trainplan.costmodel.families.tables.state_spaces import (
    all_but_nth,
    bamba,
    bamba_mixers,
    both_mixers,
    falcon_h1,
    granite,
    granite_mixers,
    jamba,
    jamba_dense,
    jamba_mixers,
    mamba_1,
    mamba_2,
    mamba_alone,
    no_mlp,
    typed,
)

LINEAR_WORDS: Final[Words] = {
    "linear_attention": "linear_attention",
    "full_attention": "full_attention",
    "sliding_attention": "sliding_attention",
}
CONVOLUTION_WORDS: Final[Words] = {
    "conv": "convolution",
    "full_attention": "full_attention",
    "sliding_attention": "sliding_attention",
}


def every_nth_full(config: HfConfig) -> tuple[Mixer, ...]:
    """`layer_types`, or full attention in every `full_attention_interval`-th layer."""
    interval = config.with_defaults({"full_attention_interval": 4})
    period = interval.integer("full_attention_interval")
    return typed(config, LINEAR_WORDS) or all_but_nth(config, "linear_attention", period)


def gated_delta(config: HfConfig) -> Fields:
    """Sizes of a gated delta net."""
    return {
        "linear_attention": LinearAttentionSpec(
            num_key_heads=config.integer("linear_num_key_heads"),
            num_value_heads=config.integer("linear_num_value_heads"),
            key_head_dim=config.integer("linear_key_head_dim"),
            value_head_dim=config.integer("linear_value_head_dim"),
            conv_kernel=config.integer("linear_conv_kernel_dim"),
        )
    }


def equal_heads(heads: int, width: int) -> dict[str, int]:
    """As many keys as values, of one width."""
    numbers = {"num_key_heads": heads, "num_value_heads": heads}
    return {**numbers, "key_head_dim": width, "value_head_dim": width}


def _convolution(config: HfConfig) -> Fields:
    kernel, bias = config.integer("conv_L_cache"), config.boolean("conv_bias")
    if "convolution" not in _lfm2_mixers(config):
        return {}
    return {"convolution": ConvolutionSpec(kernel=kernel, bias=bias)}


def _lfm2(config: HfConfig) -> Fields:
    """The width of the MLP is two thirds of what is given, rounded up, where that is asked for.

    Source: transformers `modeling_lfm2.py`, Lfm2MLP.
    """
    name = "block_ff_dim" if config.has("block_ff_dim") else "intermediate_size"
    width = config.integer(name)
    if config.boolean("block_auto_adjust_ff_dim"):
        factor = config.optional_number("block_ffn_dim_multiplier")
        multiple = config.integer("block_multiple_of")
        width = int(2 * width / 3)
        width = int(factor * width) if factor else width
        width = multiple * -(-width // multiple)
    config.ignore("block_ffn_dim_multiplier", "block_multiple_of")
    return {"intermediate_size": width, **_convolution(config)}


def _lfm2_mixers(config: HfConfig) -> Sequence[Mixer]:
    types = typed(config, CONVOLUTION_WORDS)
    config = config.with_defaults({"full_attn_idxs": None})
    full, count = set(config.indices("full_attn_idxs")), count_of_layers(config)
    every = not config.has("full_attn_idxs")
    return types or tuple(
        "full_attention" if every or i in full else "convolution" for i in range(count)
    )


def _lightning(config: HfConfig) -> Fields:
    heads = config.integer("num_attention_heads")
    width = config.optional_integer("head_dim") or config.integer("hidden_size") // heads
    linear = {"rule": "lightning", "conv_kernel": None, "chunk_size": config.integer("block_size")}
    sizes = {**equal_heads(heads, width), **linear}
    return {"linear_attention": LinearAttentionSpec.model_validate(sizes)}


def _lightning_mixers(config: HfConfig) -> Sequence[Mixer]:
    """`layer_types`, the older `attn_type_list` (1: full), or every other layer full."""
    old = config.with_defaults({"attn_type_list": None}).indices("attn_type_list")
    if old:
        of_length(config, "attn_type_list", len(old))
        return tuple("full_attention" if one else "linear_attention" for one in old)
    return typed(config, LINEAR_WORDS) or all_but_nth(config, "linear_attention", 2)


QWEN: Final = Family(
    "Qwen3-Next model card; arXiv:2412.06464",
    model={**HEAD, "attention_output_gate": "elementwise"},
    mixers=every_nth_full,
    more=gated_delta,
)

HYBRIDS: Final[Mapping[str, Family]] = {
    "bamba": Family("modeling_bamba.py", mixers=bamba_mixers, more=bamba),
    "falcon_h1": Family(
        "arXiv:2507.22448, section 2",
        mixers=both_mixers,
        more=falcon_h1,
        ignores=(
            *("lm_head_multiplier", "mlp_multipliers", "key_multiplier", "ssm_multipliers"),
            *("attention_out_multiplier", "attention_in_multiplier", "ssm_in_multiplier"),
            *("ssm_out_multiplier", "mamba_norm_before_gate"),
        ),
    ),
    "falcon_mamba": Family(
        "arXiv:2410.05355, section 2: norms inside have no weights",
        model={"position_embedding": "none"},
        mixers=mamba_alone,
        feed_forwards=no_mlp,
        more=mamba_1,
        ignores=("mixer_rms_eps",),
    ),
    "granitemoehybrid": Family("modeling_granitemoehybrid.py", mixers=granite_mixers, more=granite),
    "jamba": Family(
        "arXiv:2403.19887, section 2", mixers=jamba_mixers, dense=jamba_dense, more=jamba
    ),
    "lara_mini": Family(
        "modeling_lara_mini.py", model=HEAD, mixers=every_nth_full, more=gated_delta
    ),
    "lfm2": Family("arXiv:2511.23404, section 2", model=HEAD, mixers=_lfm2_mixers, more=_lfm2),
    "lfm2_moe": Family(
        "arXiv:2511.23404, section 2",
        model=HEAD,
        experts={"router_score_function": "sigmoid"},
        mixers=_lfm2_mixers,
        more=_convolution,
        more_experts=lambda config: {"router_bias": config.boolean("use_expert_bias")},
    ),
    "lfm3": Family(
        "modeling_lfm3.py",
        model=HEAD,
        mixers=_lfm2_mixers,
        more=_convolution,
        flags={
            "use_sandwich_norm": {"norm_position": "both"},
            "use_attention_gate": {"attention_output_gate": "head"},
        },
        off=("attention_bias",),
    ),
    "mamba": Family(
        "arXiv:2312.00752, section 3",
        model={"position_embedding": "none"},
        mixers=mamba_alone,
        feed_forwards=no_mlp,
        more=mamba_1,
    ),
    "mamba2": Family(
        "arXiv:2405.21060, section 7",
        model={"position_embedding": "none"},
        mixers=mamba_alone,
        feed_forwards=no_mlp,
        more=mamba_2,
    ),
    "minimax": Family(
        "arXiv:2501.08313, section 2",
        mixers=_lightning_mixers,
        more=_lightning,
        ignores=(
            *("full_attn_alpha_factor", "full_attn_beta_factor", "linear_attn_alpha_factor"),
            *("linear_attn_beta_factor", "mlp_alpha_factor", "mlp_beta_factor"),
        ),
    ),
    "olmo_hybrid": Family(
        "modeling_olmo_hybrid.py",
        model={"qk_norm": "full"},
        mixers=every_nth_full,
        more=gated_delta,
        ignores=(
            *("linear_a_log_min", "linear_a_log_max", "linear_dt_min", "linear_dt_max"),
            *("linear_dt_init_floor", "linear_allow_neg_eigval"),
        ),
        notes=("norms of attention layers are behind their halves, here in front",),
    ),
    "qwen3_5_moe_text": Family(
        "modeling_qwen3_5_moe.py",
        model=QWEN.model,
        experts={"shared_expert_gate": True},
        mixers=every_nth_full,
        more=gated_delta,
    ),
    "qwen3_5_text": QWEN,
    "qwen3_next": Family(
        "Qwen3-Next model card; arXiv:2412.06464",
        model=QWEN.model,
        experts={"shared_expert_gate": True},
        mixers=every_nth_full,
        more=gated_delta,
    ),
}
"""`model_type` -> what its code fixes."""
