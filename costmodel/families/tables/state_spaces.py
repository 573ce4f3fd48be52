"""State-space layers in a `config.json`.

Source: transformers 5.24, `modeling_*.py` of the `model_type` that a name stands for.
"""

from collections.abc import Sequence
from typing import Final

from trainplan.costmodel.architecture import FeedForward, Mixer, SsmSpec
from trainplan.costmodel.families.family import Fields
from trainplan.costmodel.families.layers import Words, count_of_layers, listed, named
from trainplan.costmodel.families.reader import HfConfig

MAMBA_WORDS: Final[Words] = {
    "linear_attention": "mamba",
    "mamba": "mamba",
    "full_attention": "full_attention",
    "attention": "full_attention",
}
"""Spellings in `layer_types` of families with state-space layers."""


ENDLESS: Final = 1_048_576
"""Longest sequence of a model whose state has no length. Source: derived: no published state-space
model was trained on sequences as long as 2^20 tokens."""


def typed(config: HfConfig, known: Words) -> tuple[Mixer, ...]:
    """Mixers of `layer_types`; nothing where it is missing."""
    return named(config, listed(config, "layer_types"), known, "layer_types")


def all_but_nth(config: HfConfig, mixer: Mixer, period: int) -> tuple[Mixer, ...]:
    """One mixer, but full attention in the last of so many layers."""
    layers = range(count_of_layers(config))
    return tuple(mixer if (i + 1) % period else "full_attention" for i in layers)


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


def bamba(config: HfConfig) -> Fields:
    """Sizes of Bamba's Mamba-2."""
    return {"ssm": mamba2_of(config)}


def bamba_mixers(config: HfConfig) -> Sequence[Mixer]:
    """Attention in `attn_layer_indices`, state spaces elsewhere."""
    full = set(config.indices("attn_layer_indices"))
    layers = typed(config, MAMBA_WORDS)
    return layers or tuple(
        "full_attention" if i in full else "mamba" for i in range(count_of_layers(config))
    )


def falcon_h1(config: HfConfig) -> Fields:
    """Sizes of Falcon-H1's Mamba-2, with a norm only where asked for."""
    normed = config.boolean("mamba_rms_norm")
    bias = config.boolean("projectors_bias")
    ssm = mamba2_of(config).model_copy(update={"gated_norm": normed, "output_bias": bias})
    return {"ssm": ssm}


def both_mixers(config: HfConfig) -> Sequence[Mixer]:
    """Attention and state space side by side in every layer."""
    return ["attention_and_mamba" for _ in range(count_of_layers(config))]


def granite(config: HfConfig) -> Fields:
    """The MLP of a Granite 4 without experts is what would be the shared expert."""
    fields: dict[str, object] = {}
    if "mamba" in granite_mixers(config):
        fields["ssm"] = mamba2_of(config)
    if not config.count("num_local_experts"):
        fields["intermediate_size"] = config.integer("shared_intermediate_size")
    kind = config.with_defaults({"position_embedding_type": None})
    if not kind.has("position_embedding_type") or kind.text("position_embedding_type") != "rope":
        fields["position_embedding"] = "none"
    return fields


def granite_mixers(config: HfConfig) -> Sequence[Mixer]:
    """State spaces but where `layer_types` says attention."""
    return typed(config, MAMBA_WORDS) or mamba_alone(config)


def jamba(config: HfConfig) -> Fields:
    """Sizes of Jamba's Mamba-1, which norms its inner projections."""
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


def jamba_mixers(config: HfConfig) -> Sequence[Mixer]:
    """Attention in one layer of every period."""
    config.ignore("layer_types", "layers_block_type")
    period, offset = config.integer("attn_layer_period"), config.count("attn_layer_offset")
    return tuple(
        "full_attention" if i % period == offset else "mamba"
        for i in range(count_of_layers(config))
    )


def jamba_dense(config: HfConfig) -> Sequence[bool]:
    """Experts in one layer of every other period."""
    period, offset = config.integer("expert_layer_period"), config.count("expert_layer_offset")
    return [i % period != offset for i in range(count_of_layers(config))]


def no_mlp(config: HfConfig) -> Sequence[FeedForward]:
    """Nothing feeds forward."""
    return ["none" for _ in range(count_of_layers(config))]


def mamba_alone(config: HfConfig) -> Sequence[Mixer]:
    """State spaces in every layer."""
    return ["mamba" for _ in range(count_of_layers(config))]


def attentionless(ssm: SsmSpec) -> Fields:
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
    return attentionless(
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
    return attentionless(
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
