"""Decoders whose layers mix tokens by more than attention, by `model_type`.

Source: modeling and configuration code of transformers 5.24, of the `model_type` each; the reports
named with each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from trainplan.costmodel.model.families.family import Family, Fields
from trainplan.costmodel.model.families.placement import (
    Words,
    count_of_layers,
    listed,
    named,
    of_length,
)
from trainplan.costmodel.model.families.reader import HfConfig
from trainplan.costmodel.spec.layers import FeedForward, Mixer
from trainplan.costmodel.spec.mixers import ConvolutionSpec, LinearAttentionSpec, SsmSpec

HEAD: Final[Fields] = {"qk_norm": "head"}
BALANCED: Final[Fields] = {"router_score_function": "sigmoid", "router_bias": True}
LINEAR_WORDS: Final[Words] = {
    "linear_attention": "linear_attention",
    "full_attention": "full_attention",
    "sliding_attention": "sliding_attention",
}
MAMBA_WORDS: Final[Words] = {
    "linear_attention": "mamba",
    "mamba": "mamba",
    "full_attention": "full_attention",
    "attention": "full_attention",
}
"""Spellings in `layer_types` of families with state-space layers."""
CONVOLUTION_WORDS: Final[Words] = {
    "conv": "convolution",
    "full_attention": "full_attention",
    "sliding_attention": "sliding_attention",
}


ENDLESS: Final = 1_048_576
"""Longest sequence of a model whose state has no length. Source: derived, 2^20 is beyond any
published training length."""


def typed(config: HfConfig, known: Words) -> tuple[Mixer, ...]:
    """Mixers of `layer_types`; nothing where it is missing."""
    return named(config, listed(config, "layer_types"), known, "layer_types")


def every_nth_full(config: HfConfig) -> tuple[Mixer, ...]:
    """`layer_types`, or full attention in every `full_attention_interval`-th layer."""
    interval = config.with_defaults({"full_attention_interval": 4})
    period = interval.integer("full_attention_interval")
    return typed(config, LINEAR_WORDS) or tuple(
        "linear_attention" if (i + 1) % period else "full_attention"
        for i in range(count_of_layers(config))
    )


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


def mamba2_of(config: HfConfig) -> SsmSpec:
    """A Mamba-2 in the spelling of Bamba, Falcon-H1 and Granite 4."""
    config.ignore("mamba_expand", "mamba_d_ssm")
    bias = config.boolean("mamba_proj_bias")
    return SsmSpec(
        num_heads=config.integer("mamba_n_heads"),
        head_dim=config.integer("mamba_d_head"),
        state_size=config.integer("mamba_d_state"),
        num_groups=config.integer("mamba_n_groups"),
        conv_kernel=config.integer("mamba_d_conv"),
        conv_bias=config.boolean("mamba_conv_bias"),
        input_bias=bias,
        output_bias=bias,
        chunk_size=config.integer("mamba_chunk_size"),
    )


def _bamba(config: HfConfig) -> Fields:
    return {"ssm": mamba2_of(config)}


def _bamba_mixers(config: HfConfig) -> Sequence[Mixer]:
    full = set(config.indices("attn_layer_indices"))
    layers = typed(config, MAMBA_WORDS)
    return layers or tuple(
        "full_attention" if i in full else "mamba" for i in range(count_of_layers(config))
    )


def _falcon_h1(config: HfConfig) -> Fields:
    normed = config.boolean("mamba_rms_norm")
    bias = config.boolean("projectors_bias")
    ssm = mamba2_of(config).model_copy(update={"gated_norm": normed, "output_bias": bias})
    return {"ssm": ssm}


def _both_mixers(config: HfConfig) -> Sequence[Mixer]:
    return ["attention_and_mamba" for _ in range(count_of_layers(config))]


def _granite(config: HfConfig) -> Fields:
    """The MLP of a Granite 4 without experts is what would be the shared expert."""
    fields: dict[str, object] = {}
    if "mamba" in _granite_mixers(config):
        fields["ssm"] = mamba2_of(config)
    if not config.count("num_local_experts"):
        fields["intermediate_size"] = config.integer("shared_intermediate_size")
    kind = config.with_defaults({"position_embedding_type": None})
    if not kind.has("position_embedding_type") or kind.text("position_embedding_type") != "rope":
        fields["position_embedding"] = "none"
    return fields


def _granite_mixers(config: HfConfig) -> Sequence[Mixer]:
    return typed(config, MAMBA_WORDS) or _mamba_alone(config)


def _jamba(config: HfConfig) -> Fields:
    bias = config.boolean("mamba_proj_bias")
    hidden = config.integer("hidden_size")
    rank = config.values.get("mamba_dt_rank", "auto")
    config.ignore("mamba_dt_rank")
    return {
        "position_embedding": "none",
        "ssm": SsmSpec(
            num_heads=config.integer("mamba_expand") * hidden,
            state_size=config.integer("mamba_d_state"),
            time_step_rank=-(-hidden // 16) if rank == "auto" else config.integer("mamba_dt_rank"),
            conv_kernel=config.integer("mamba_d_conv"),
            conv_bias=config.boolean("mamba_conv_bias"),
            input_bias=bias,
            output_bias=bias,
            inner_norms=True,
        ),
    }


def _jamba_mixers(config: HfConfig) -> Sequence[Mixer]:
    config.ignore("layer_types", "layers_block_type")
    period, offset = config.integer("attn_layer_period"), config.count("attn_layer_offset")
    return tuple(
        "full_attention" if i % period == offset else "mamba"
        for i in range(count_of_layers(config))
    )


def _jamba_dense(config: HfConfig) -> Sequence[bool]:
    period, offset = config.integer("expert_layer_period"), config.count("expert_layer_offset")
    return [i % period != offset for i in range(count_of_layers(config))]


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
    sizes = {"num_key_heads": heads, "num_value_heads": heads}
    dims = {"key_head_dim": width, "value_head_dim": width}
    linear = {"rule": "lightning", "conv_kernel": None, "chunk_size": config.integer("block_size")}
    return {"linear_attention": LinearAttentionSpec.model_validate({**sizes, **dims, **linear})}


def _lightning_mixers(config: HfConfig) -> Sequence[Mixer]:
    """`layer_types`, the older `attn_type_list` (1: full), or every other layer full."""
    old = config.with_defaults({"attn_type_list": None}).indices("attn_type_list")
    if old:
        of_length(config, "attn_type_list", len(old))
        return tuple("full_attention" if one else "linear_attention" for one in old)
    return typed(config, LINEAR_WORDS) or tuple(
        "linear_attention" if (i + 1) % 2 else "full_attention"
        for i in range(count_of_layers(config))
    )


def _no_mlp(config: HfConfig) -> Sequence[FeedForward]:
    return ["none" for _ in range(count_of_layers(config))]


def _mamba_alone(config: HfConfig) -> Sequence[Mixer]:
    return ["mamba" for _ in range(count_of_layers(config))]


def _attentionless(ssm: SsmSpec) -> Fields:
    """Fields of the attention that no layer has."""
    heads = {"num_attention_heads": ssm.num_heads, "num_key_value_heads": ssm.num_heads}
    fields = {"head_dim": ssm.head_dim, "intermediate_size": ssm.inner_width}
    return {"ssm": ssm, "max_position_embeddings": ENDLESS, "activation": "silu", **heads, **fields}


def mamba_1(config: HfConfig) -> Fields:
    """Sizes of a model of Mamba-1 alone."""
    config.ignore("expand", "intermediate_size")
    hidden, bias = config.integer("hidden_size"), config.boolean("use_bias")
    rank = config.with_defaults({"time_step_rank": "auto"}).values.get("time_step_rank", "auto")
    wide = config.optional_integer("intermediate_size") if config.has("intermediate_size") else None
    return _attentionless(
        SsmSpec(
            num_heads=wide or config.integer("expand") * hidden,
            state_size=config.integer("state_size"),
            time_step_rank=-(-hidden // 16) if rank == "auto" else config.integer("time_step_rank"),
            conv_kernel=config.integer("conv_kernel"),
            conv_bias=config.boolean("use_conv_bias"),
            input_bias=bias,
            output_bias=bias,
        )
    )


def mamba_2(config: HfConfig) -> Fields:
    """Sizes of a model of Mamba-2 alone."""
    config.ignore("expand", "time_step_rank")
    bias = config.boolean("use_bias")
    return _attentionless(
        SsmSpec(
            num_heads=config.integer("num_heads"),
            head_dim=config.integer("head_dim"),
            state_size=config.integer("state_size"),
            num_groups=config.integer("n_groups"),
            conv_kernel=config.integer("conv_kernel"),
            conv_bias=config.boolean("use_conv_bias"),
            input_bias=bias,
            output_bias=bias,
            chunk_size=config.integer("chunk_size"),
        )
    )


QWEN: Final = Family(
    "Qwen3-Next model card; arXiv:2412.06464",
    model={**HEAD, "attention_output_gate": "elementwise"},
    mixers=every_nth_full,
    more=gated_delta,
)

HYBRIDS: Final[Mapping[str, Family]] = {
    "bamba": Family("modeling_bamba.py", mixers=_bamba_mixers, more=_bamba),
    "falcon_h1": Family(
        "arXiv:2507.22448, section 2",
        mixers=_both_mixers,
        more=_falcon_h1,
        ignores=(
            *("lm_head_multiplier", "mlp_multipliers", "key_multiplier", "ssm_multipliers"),
            *("attention_out_multiplier", "attention_in_multiplier", "ssm_in_multiplier"),
            *("ssm_out_multiplier", "mamba_norm_before_gate"),
        ),
    ),
    "falcon_mamba": Family(
        "arXiv:2410.05355, section 2: norms inside have no weights",
        model={"position_embedding": "none"},
        mixers=_mamba_alone,
        feed_forwards=_no_mlp,
        more=mamba_1,
        ignores=("mixer_rms_eps",),
    ),
    "granitemoehybrid": Family(
        "modeling_granitemoehybrid.py", mixers=_granite_mixers, more=_granite
    ),
    "jamba": Family(
        "arXiv:2403.19887, section 2", mixers=_jamba_mixers, dense=_jamba_dense, more=_jamba
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
        mixers=_mamba_alone,
        feed_forwards=_no_mlp,
        more=mamba_1,
    ),
    "mamba2": Family(
        "arXiv:2405.21060, section 7",
        model={"position_embedding": "none"},
        mixers=_mamba_alone,
        feed_forwards=_no_mlp,
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
        notes=("norms of attention layers stand behind their halves, here in front",),
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
