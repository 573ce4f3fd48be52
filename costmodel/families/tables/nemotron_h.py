"""Nemotron-H: each layer is one half of another model's, and has one norm.

Source: arXiv:2504.03624, section 2; transformers 5.24, `modeling_nemotron_h.py`.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from trainplan.costmodel.architecture import FeedForward, Mixer, SsmSpec
from trainplan.costmodel.base import SpecError, UnsupportedError
from trainplan.costmodel.families.family import Fields
from trainplan.costmodel.families.reader import HfConfig
from trainplan.costmodel.spec import shown

Mixers = Sequence[Mixer]
Feeds = Sequence[FeedForward]
PARTS: Final[Mapping[str, tuple[Mixer, FeedForward]]] = {
    "linear_attention": ("mamba", "none"),
    "mamba": ("mamba", "none"),
    "M": ("mamba", "none"),
    "full_attention": ("full_attention", "none"),
    "attention": ("full_attention", "none"),
    "*": ("full_attention", "none"),
    "mlp": ("none", "mlp"),
    "-": ("none", "mlp"),
    "moe": ("none", "moe"),
    "E": ("none", "moe"),
}
"""A layer of Nemotron-H is one half of another's."""


def nemotron_parts(config: HfConfig) -> Sequence[tuple[Mixer, FeedForward]]:
    """The two halves of every layer, by whichever field lists them."""
    name = next(
        (one for one in ("layers_block_type", "layer_types") if config.has(one)),
        "hybrid_override_pattern",
    )
    words = tuple(config.text(name)) if name == "hybrid_override_pattern" else config.texts(name)
    for word in words:
        if word not in PARTS:
            raise UnsupportedError(
                f"{config.where}: '{name}' has {shown(word)}, which is not modelled; "
                f"known: {', '.join(sorted(PARTS))}"
            )
    stated = config.values.get("num_hidden_layers", len(words))
    config.ignore("num_hidden_layers")
    if stated is not None and stated != len(words):
        raise SpecError(
            f"{config.where}: '{name}' has {len(words)} layers, 'num_hidden_layers' is "
            f"{shown(stated)}; make them equal"
        )
    return [PARTS[word] for word in words]


def nemotron(config: HfConfig) -> Fields:
    """Sizes of its state spaces; attention has no positions."""
    parts = nemotron_parts(config)
    fields: dict[str, object] = {"num_hidden_layers": len(parts), "position_embedding": "none"}
    old = {"n_groups": "mamba_n_groups", "conv_kernel": "mamba_d_conv"}
    names = {new: past if past in config.values else new for new, past in old.items()}
    bias = config.boolean("use_bias")
    config.ignore("expand", "mamba_expand", "mtp_loss_scaling_factor", "keep_mtp_spec_in_bf16")
    fields.update(_modules(config, parts))
    config.ignore("mamba_proj_bias", "layer_types")
    if any(mixer == "mamba" for mixer, _ in parts):
        fields["ssm"] = SsmSpec(
            num_heads=config.integer("mamba_num_heads"),
            head_dim=config.integer("mamba_head_dim"),
            state_size=config.integer("ssm_state_size"),
            num_groups=config.integer(names["n_groups"]),
            conv_kernel=config.integer(names["conv_kernel"]),
            conv_bias=config.boolean("use_conv_bias"),
            input_bias=bias,
            output_bias=bias,
            chunk_size=config.integer("chunk_size"),
        )
    return fields


def _modules(config: HfConfig, parts: Sequence[tuple[Mixer, FeedForward]]) -> Fields:
    """Layers of a module that predicts a further token, which all such modules share.

    Source: NVIDIA-NeMo/Megatron-Bridge @067f987d `models/nemotronh/nemotron_h_bridge.py`,
    mtp_hybrid_override_pattern and mtp_use_repeated_layer.
    """
    name, pattern = "mtp_layers_block_type", "mtp_hybrid_override_pattern"
    words: Sequence[str] = config.texts(name) if config.has(name) else ()
    if not words and config.has(pattern):
        name, words = pattern, config.text(pattern)
    config.ignore("mtp_layers_block_type", pattern, "mtp_use_repeated_layer")
    modules = config.with_defaults({"num_nextn_predict_layers": 0})
    if not words or not modules.count("num_nextn_predict_layers"):
        return {}
    for word in words:
        if PARTS.get(word) not in parts:
            raise UnsupportedError(
                f"{config.where}: '{name}' has {shown(word)}, which no layer of the model is"
            )
    shared = config.with_defaults({"mtp_use_repeated_layer": True})
    return {
        "nextn_layers": tuple("+".join(PARTS[word]) for word in words),
        "nextn_shared": shared.boolean("mtp_use_repeated_layer"),
    }


def nemotron_mixers(config: HfConfig) -> Mixers:
    """What mixes tokens in every layer, if anything."""
    return [mixer for mixer, _ in nemotron_parts(config)]


def nemotron_feeds(config: HfConfig) -> Feeds:
    """What feeds forward in every layer, if anything."""
    return [feed for _, feed in nemotron_parts(config)]


def nemotron_experts(config: HfConfig) -> Fields:
    """The width routed experts work in."""
    return {"latent_size": config.optional_integer("moe_latent_size")}
