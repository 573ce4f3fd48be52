"""A decoder from the fields of its `config.json` and what its family fixes."""

from __future__ import annotations

from dataclasses import replace

from trainplan.costmodel.architecture import ModelSpec, MoeSpec
from trainplan.costmodel.base import UnsupportedError
from trainplan.costmodel.model.families.decoder import ACTIVATIONS, DEFAULTS, head_dim
from trainplan.costmodel.model.families.family import Family, Fields
from trainplan.costmodel.model.families.latent import latent_attention
from trainplan.costmodel.model.families.placement import FULL, layers, of_length
from trainplan.costmodel.model.families.reader import HfConfig
from trainplan.costmodel.model.families.rope import rotary
from trainplan.costmodel.model.families.routing import experts
from trainplan.costmodel.model.families.spellings import SPELLINGS, spelled

OPTIONAL = {
    "num_key_value_heads": None,
    "head_dim": None,
}
"""What a file of no known family may leave out. Source: `LlamaConfig`."""
ABSENT = {
    "num_nextn_predict_layers": 0,
    "attn_logit_softcapping": None,
    "final_logit_softcapping": None,
    "swiglu_limit": None,
}
"""Fields of few families, absent from the others."""
SIZES = (
    *("num_hidden_layers", "hidden_size", "num_attention_heads", "vocab_size"),
    "max_position_embeddings",
)
"""Sizes that every file has to give."""
FACTORS = (
    *("embedding_multiplier", "residual_multiplier", "attention_multiplier", "logits_scaling"),
    *("scale_emb", "scale_depth", "dim_model_base", "logit_scale", "attention_value_scale"),
    *("lm_head_multiplier", "key_multiplier", "attention_out_multiplier", "clip_qkv"),
    *("attention_in_multiplier", "ssm_in_multiplier", "ssm_out_multiplier"),
)
"""Fixed numbers that scale or limit branches and logits: no size, no product."""


def read(config: HfConfig, family: Family) -> ModelSpec:
    """A model of a family from its file."""
    config = _of_all(config.with_defaults({**DEFAULTS, **ABSENT}), family)
    moe = _experts(config, family)
    fixed = {**family.model, **(family.more(config) if family.more else {}), **_latent(config)}
    parts: dict[str, object] = {
        "name": config.name,
        "model_type": config.model_type,
        **_sizes(config, family, fixed, has_experts=moe is not None),
        **_positions(config, fixed),
        **_constants(config, family, fixed),
        **switched(config, family),
        **fixed,
    }
    if "layers" not in parts:
        parts |= layers(config, family, moe)
    config.ignore(*FACTORS, *family.ignores)
    model = ModelSpec.model_validate(parts)
    if family.full_unrotated and model.num_sliding_window_layers:
        return model.model_copy(update={"unrotated_layers": model.mixers.count(FULL)})
    return model


def _of_all(config: HfConfig, family: Family) -> HfConfig:
    """The file with one number where it lists the same for every layer."""
    values = dict(config.values)
    for name in family.of_all:
        value = values.get(name)
        if not isinstance(value, list):
            continue
        counts = config.indices(name)
        of_length(config, name, len(counts))
        if len(set(counts)) > 1:
            raise UnsupportedError(
                f"{config.where}: '{config.path}{name}' differs between layers, which is not "
                "modelled"
            )
        values[name] = counts[0]
    return replace(config, values=values)


def _experts(config: HfConfig, family: Family) -> MoeSpec | None:
    """Experts, unless a switch of the family is off."""
    switch = family.experts_if
    if switch and not config.with_defaults({switch: False}).boolean(switch):
        config.ignore(*SPELLINGS["num_experts"], "num_experts", "moe_intermediate_size")
        config.ignore(*SPELLINGS["num_experts_per_tok"], "num_experts_per_tok", "norm_topk_prob")
        return None
    return experts(config, family)


def _latent(config: HfConfig) -> Fields:
    """Latent attention where the file gives its rank."""
    if "kv_lora_rank" not in config.values:
        return {}
    mla = latent_attention(config)
    config.ignore("head_dim", "num_key_value_heads")
    width = mla.qk_nope_head_dim + mla.qk_rope_head_dim
    heads = config.integer(spelled(config, "num_attention_heads"))
    return {"mla": mla, "head_dim": width, "num_key_value_heads": heads}


def size(config: HfConfig, family: Family, name: str) -> int:
    """A positive integer under any of its names."""
    return config.integer(spelled(config, name, family.names.get(name)))


def optional_size(config: HfConfig, family: Family, name: str) -> int | None:
    """A positive integer under any of its names, or null."""
    return config.optional_integer(spelled(config, name, family.names.get(name)))


def switched(config: HfConfig, family: Family) -> Fields:
    """What the switches of the file turn on."""
    parts: dict[str, object] = {}
    for flag, fields in family.switches().items():
        if config.with_defaults({flag: False}).optional_boolean(flag):
            parts |= fields
    for flag in family.off:
        if config.with_defaults({flag: False}).optional_boolean(flag):
            raise UnsupportedError(f"{config.where}: '{config.path}{flag}' is not modelled")
    for flag in family.on:
        if config.with_defaults({flag: True}).optional_boolean(flag) is False:
            raise UnsupportedError(f"{config.where}: '{config.path}{flag}' off is not modelled")
    return parts


def _sizes(config: HfConfig, family: Family, fixed: Fields, *, has_experts: bool) -> Fields:
    """Sizes, but for those that are fixed."""
    found: dict[str, object] = {
        name: size(config, family, name) for name in SIZES if name not in fixed
    }
    heads = fixed.get("num_attention_heads") or found["num_attention_heads"]
    if "num_key_value_heads" not in fixed:
        found["num_key_value_heads"] = optional_size(config, family, "num_key_value_heads") or heads
    if "intermediate_size" not in fixed:
        found["intermediate_size"] = _width(config, family, has_experts=has_experts)
    if "head_dim" not in fixed:
        hidden, count = (
            spelled(config, name, family.names.get(name))
            for name in ("hidden_size", "num_attention_heads")
        )
        width = optional_size(config, family, "head_dim")
        found["head_dim"] = width or head_dim(config, hidden=hidden, heads=count)
    found["num_nextn_predict_layers"] = config.count(spelled(config, "num_nextn_predict_layers"))
    return found


def _width(config: HfConfig, family: Family, *, has_experts: bool) -> int:
    """Width of the dense MLP; a GPT without `n_inner` has four times the hidden size."""
    name = spelled(config, "intermediate_size", family.names.get("intermediate_size"))
    if name in config.values and config.values[name] is None and not has_experts:
        return 4 * size(config, family, "hidden_size")
    if name not in config.values and has_experts:
        name = spelled(config, "moe_intermediate_size", family.names.get("moe_intermediate_size"))
    return config.integer(name)


def _positions(config: HfConfig, fixed: Fields) -> Fields:
    if fixed.get("position_embedding", "rope") != "rope":
        return {}
    theta, partial = spelled(config, "rope_theta"), spelled(config, "partial_rotary_factor")
    rope = rotary(config, theta, partial)
    return {
        "rope_theta": rope.theta,
        "partial_rotary_factor": rope.partial_factor,
        "rope_scaling": rope.scaling,
    }


def _constants(config: HfConfig, family: Family, fixed: Fields) -> Fields:
    name = spelled(config, "hidden_act", family.names.get("hidden_act"))
    value = config.text(name)
    if value not in ACTIVATIONS:
        known = ", ".join(ACTIVATIONS)
        raise UnsupportedError(
            f"{config.where}: activation {value!r} in '{name}' is not modelled; known: {known}"
        )
    return {
        "activation": fixed.get("activation", ACTIVATIONS[value]),
        "norm_eps": config.number(spelled(config, "rms_norm_eps")),
        "attn_logit_softcapping": config.optional_number("attn_logit_softcapping"),
        "final_logit_softcapping": config.optional_number("final_logit_softcapping"),
        "swiglu_limit": config.optional_number("swiglu_limit"),
        "scaled_branches": any(_differs(config, name) for name in FACTORS),
    }


def _differs(config: HfConfig, name: str) -> bool:
    """Is a factor there that is not one?"""
    return config.values.get(name) not in (None, 1)
