"""A decoder whose `model_type` has no file here: read by its fields, as a Llama is built."""

from __future__ import annotations

from typing import Final

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.base import UnsupportedError
from trainplan.costmodel.model.families.by_fields import OPTIONAL, read
from trainplan.costmodel.model.families.decoder import ACTIVATIONS
from trainplan.costmodel.model.families.family import LINEAR, QKV, Family
from trainplan.costmodel.model.families.plain_parts import unrotated
from trainplan.costmodel.model.families.reader import HfConfig
from trainplan.costmodel.model.families.spellings import is_harmless, spelled
from trainplan.costmodel.spec import shown

GENERIC: Final = Family(
    "LlamaConfig",
    model={"read_by_fields": True},
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
NAMED_AT_ONCE: Final = 3
"""Fields that one message names."""


def by_fields(config: HfConfig) -> ModelSpec:
    """Read a decoder by its fields.

    Raises:
        UnsupportedError: A field may change a size or a product and is not understood.
    """
    for name in LAYER_NORM:
        if config.has(name):
            raise UnsupportedError(
                f"{config.where} is of no known family, and '{config.path}{name}' speaks of a "
                "LayerNorm, whose biases no field gives: write a YAML file (`plan catalog models "
                "--template`)"
            )
    _check_activation(config)
    _check_unstated(config)
    model = read(config.with_defaults(OPTIONAL), GENERIC)
    unknown = not_understood(config)
    if unknown:
        named = ", ".join(
            f"'{name}' = {shown(config.values[name])}" for name in unknown[:NAMED_AT_ONCE]
        )
        more = len(unknown) - NAMED_AT_ONCE
        raise UnsupportedError(
            f"{config.where} is of no known family, and what it says with {named}"
            + (f" and {more} more" if more > 0 else "")
            + " is not understood: write a YAML file (`plan catalog models --template`)"
        )
    return model


def _check_activation(config: HfConfig) -> None:
    """Refuse an activation that families have with a gate and without one."""
    name = spelled(config, "hidden_act")
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
                f"{config.where} is of no known family, and '{config.path}{one}' beside '{other}' "
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
