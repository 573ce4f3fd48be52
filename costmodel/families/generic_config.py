"""A decoder from the fields of its `config.json` and what its family fixes.

A `model_type` that no table has is read as a Llama is built where its fields say nothing.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from trainplan.costmodel.architecture import ModelSpec, MoeSpec
from trainplan.costmodel.base import SpecError, UnsupportedError
from trainplan.costmodel.families.aliases import (
    ACTIVATIONS,
    ALIASES,
    activation,
    alias_of,
    is_harmless,
)
from trainplan.costmodel.families.attention import latent_attention, rotary
from trainplan.costmodel.families.experts import experts
from trainplan.costmodel.families.family import LINEAR, QKV, Family, Fields
from trainplan.costmodel.families.layers import FULL, layers, of_length, unrotated
from trainplan.costmodel.families.reader import HfConfig
from trainplan.costmodel.spec import shown

OPTIONAL = {"num_key_value_heads": None, "head_dim": None}
"""What a file of no known family may leave out. Source: `LlamaConfig`."""
COUNTS: Final[Mapping[str, object]] = {
    "num_nextn_predict_layers": 0,
    "n_shared_experts": 0,
    "shared_expert_intermediate_size": 0,
}
"""What is assumed not to be there where neither the file nor a row of defaults has a number."""
DEFAULTS: Final[Mapping[str, object]] = {
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "attention_bias": False,
    "mlp_bias": False,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10_000.0,
    "partial_rotary_factor": 1.0,
}
"""Source: `LlamaConfig` and its kin in transformers; published files leave these out."""
ABSENT = {"attn_logit_softcapping": None, "final_logit_softcapping": None, "swiglu_limit": None}
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
    """A model of a family from its file.

    Raises:
        SpecError: A field it needs is missing, of the wrong type or contradicts another.
        UnsupportedError: A switch, an activation or a kind of layer is not modelled.
    """
    config = config.with_defaults({**DEFAULTS, **ABSENT})
    _require_few_layers(config, family)
    config = _of_all(config, family)
    moe = _experts(config, family)
    fixed = {**family.model, **(family.more(config) if family.more else {})}
    fixed |= {} if "mla" in fixed else _latent(config)
    parts: dict[str, object] = {
        "name": config.name,
        "model_type": config.model_type,
        **_sizes(config, family, fixed, has_experts=moe is not None),
        **_positions(config, family, fixed),
        **_constants(config, family, fixed),
        **_switched(config, family),
        **fixed,
    }
    if not {"layers", "mixer"} & parts.keys():
        parts |= layers(config, family, moe)
    config.ignore(*FACTORS, *family.ignores)
    model = ModelSpec.model_validate(parts)
    if family.full_unrotated and model.num_sliding_window_layers:
        return model.model_copy(update={"unrotated_layers": model.mixers.count(FULL)})
    return model


def _require_few_layers(config: HfConfig, family: Family) -> None:
    """Before any list has an entry for each of them."""
    name = _alias(config, family, "num_hidden_layers")
    checked = replace(config, seen={}, assumed={})
    if checked.has(name) and checked.integer(name) > ModelSpec.MOST_LAYERS:
        value = checked.values[name]
        raise checked.wrong(name, value, f"positive integer of at most {ModelSpec.MOST_LAYERS:,}")


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
    """Experts, unless the family has none or a switch of it is off."""
    if family.experts is None:
        return None
    switch = family.experts_if
    if switch and not config.with_defaults({switch: False}).boolean(switch):
        config.ignore(*ALIASES["num_experts"], "num_experts", "moe_intermediate_size")
        config.ignore(*ALIASES["num_experts_per_tok"], "num_experts_per_tok", "norm_topk_prob")
        return None
    return experts(config, family)


def _latent(config: HfConfig) -> Fields:
    """Latent attention where the file gives its rank."""
    if "kv_lora_rank" not in config.values:
        return {}
    config.ignore("qk_head_dim", "rope_interleave")
    mla = latent_attention(config)
    config.ignore("head_dim", "num_key_value_heads")
    width = mla.qk_nope_head_dim + mla.qk_rope_head_dim
    heads = config.integer(alias_of(config, "num_attention_heads"))
    return {"mla": mla, "head_dim": width, "num_key_value_heads": heads}


def _alias(config: HfConfig, family: Family, name: str) -> str:
    """The name a field has in this file of this family."""
    return alias_of(config, name, family.names.get(name))


def _switched(config: HfConfig, family: Family) -> Fields:
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


def _head_dim(config: HfConfig, hidden: str, heads: str) -> int:
    """Width of a head where the file leaves it to hidden size over heads."""
    width, count = config.integer(hidden), config.integer(heads)
    if width % count:
        raise SpecError(
            f"{config.where}: '{hidden}' = {width} is not a multiple of '{heads}' = {count}; "
            "correct one of them or add 'head_dim'"
        )
    return width // count


def _sizes(config: HfConfig, family: Family, fixed: Fields, *, has_experts: bool) -> Fields:
    """Sizes, but for those that are fixed; one that is no number before one that is missing."""
    checked = replace(config, seen={}, assumed={})
    for name in SIZES:
        if checked.has(alias := _alias(checked, family, name)):
            checked.integer(alias)
    sizes: dict[str, object] = {
        name: config.integer(_alias(config, family, name)) for name in SIZES if name not in fixed
    }
    heads = {**sizes, **fixed}["num_attention_heads"]
    if "num_key_value_heads" not in fixed:
        groups = config.optional_integer(_alias(config, family, "num_key_value_heads"))
        sizes["num_key_value_heads"] = groups or heads
    if "intermediate_size" not in fixed:
        sizes["intermediate_size"] = _width(config, family, has_experts=has_experts)
    if "head_dim" not in fixed:
        width = config.optional_integer(_alias(config, family, "head_dim"))
        whole = (_alias(config, family, name) for name in ("hidden_size", "num_attention_heads"))
        sizes["head_dim"] = width or _head_dim(config, *whole)
    modules = config.optional_count(alias_of(config, "num_nextn_predict_layers"))
    sizes["num_nextn_predict_layers"] = modules
    return sizes


def _width(config: HfConfig, family: Family, *, has_experts: bool) -> int:
    """Width of the dense MLP; a GPT without `n_inner` has four times the hidden size."""
    name = _alias(config, family, "intermediate_size")
    given = {**config.defaults, **config.values}
    if name in given and given[name] is None and not has_experts:
        return 4 * config.integer(_alias(config, family, "hidden_size"))
    if name not in given and has_experts:
        name = _alias(config, family, "moe_intermediate_size")
    return config.integer(name)


def _positions(config: HfConfig, family: Family, fixed: Fields) -> Fields:
    """Rotary positions, where the model has some."""
    if fixed.get("position_embedding", "rope") != "rope" or "rope_theta" in fixed:
        return {}
    names = (_alias(config, family, name) for name in ("rope_theta", "partial_rotary_factor"))
    rope = rotary(config, *names)
    return {
        "rope_theta": rope.theta,
        "partial_rotary_factor": rope.partial_factor,
        "rope_scaling": rope.scaling,
    }


def _constants(config: HfConfig, family: Family, fixed: Fields) -> Fields:
    """Activation, and numbers that are no size."""
    elsewhere = "activation" in fixed.keys() - family.model.keys()
    name, eps = _alias(config, family, "hidden_act"), _alias(config, family, "rms_norm_eps")
    return {
        "activation": fixed["activation"] if elsewhere else activation(config, name),
        "norm_eps": fixed.get("norm_eps") or config.number(eps),
        "attn_logit_softcapping": config.optional_number("attn_logit_softcapping"),
        "final_logit_softcapping": config.optional_number("final_logit_softcapping"),
        "swiglu_limit": config.optional_number("swiglu_limit"),
        "scaled_branches": any(config.values.get(name) not in (None, 1) for name in FACTORS),
    }


GENERIC: Final = Family(
    "LlamaConfig",
    model={"read_by_fields": True},
    ignores=("sliding_window", *ALIASES["sliding_window"]),
    more=lambda config: unrotated(config) if config.has("no_rope_layers") else {},
    flags={
        "add_bias_linear": LINEAR,
        "attention_out_bias": {"attention_output_bias": True},
        "bias": LINEAR,
        "lm_head_bias": {"head_bias": True},
        "qkv_bias": QKV,
        "use_bias": LINEAR,
        "use_qkv_bias": QKV,
    },
)
LAYER_NORM: Final = ("layer_norm_eps", "layer_norm_epsilon", "layernorm_epsilon")
"""Names of a constant that an RMSNorm has not."""
GATED: Final = ("silu", "swish")
"""Activations that no family of transformers 5.24 has without a gate, jointly with RMSNorm. Source:
tests/golden/decoder_counts.json, its configurations without their names."""
UNSTATED: Final = (
    ("kv_channels", "num_local_experts", "whether attention has experts too"),
    ("moe_topk", "num_experts", "whether an expert is shared by all tokens"),
    ("n_group", "num_experts", "whether an expert is shared by all tokens"),
)
"""Two fields, and what they leave open if no field speaks of shared experts: jointly they stand in
files of families with such a part that no field names. Source: tests/golden/decoder_counts.json,
the configurations of jetmoe, hunyuan_v1_moe and beam."""


def by_fields(config: HfConfig) -> ModelSpec:
    """Read a decoder by its fields.

    Raises:
        UnsupportedError: A field may change a size or a product and is not understood.
    """
    for name in LAYER_NORM:
        if config.has(name):
            raise UnsupportedError(
                f"{config.where} is of no known family, and '{config.path}{name}' implies a "
                "LayerNorm, whose biases no field gives: write a YAML file (`plan catalog models "
                "--template`)"
            )
    _check_activation(config)
    _check_unstated(config)
    model = read(config.with_defaults({**OPTIONAL, **COUNTS}), GENERIC)
    unknown = not_understood(config)
    if unknown:
        named = ", ".join(f"'{name}' = {shown(config.values[name])}" for name in unknown[:3])
        more = len(unknown) - 3
        raise UnsupportedError(
            f"{config.where} is of no known family, and its field {named}"
            + (f" and {more} more" if more > 0 else "")
            + " is not understood: write a YAML file (`plan catalog models --template`)"
        )
    return model


def _check_activation(config: HfConfig) -> None:
    """Refuse an activation that families have with a gate and without one."""
    name = alias_of(config, "hidden_act")
    value = config.values.get(name, GATED[0])
    if isinstance(value, str) and value in ACTIVATIONS and value not in GATED:
        raise UnsupportedError(
            f"{config.where} is of no known family, and '{config.path}{name}' = {value!r} leaves "
            "open whether the MLP has a gate: write a YAML file (`plan catalog models --template`)"
        )


def _check_unstated(config: HfConfig) -> None:
    """Refuse fields that stand in files of families with a part that no field names."""
    if any("shared_expert" in name for name in config.values):
        return
    for one, other, open_question in UNSTATED:
        if config.has(one) and config.has(other):
            raise UnsupportedError(
                f"{config.where} is of no known family, and '{config.path}{one}' with '{other}' "
                f"leaves open {open_question}: write a YAML file (`plan catalog models --template`)"
            )


def not_understood(config: HfConfig) -> list[str]:
    """Fields with a value that nothing has read and that are not known to change nothing."""
    return [
        name
        for name, value in config.values.items()
        if config.path + name not in config.seen
        and not is_harmless(name)
        and value not in (None, [], {}, "")
    ]
