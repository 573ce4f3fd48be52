"""What every Hugging Face decoder with rotary positions and RMS norms has in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.base import SpecError, UnsupportedError
from trainplan.costmodel.model.families.reader import HfConfig
from trainplan.costmodel.model.families.rope import rotary

ACTIVATIONS: Final[Mapping[str, str]] = {
    "silu": "silu",
    "swish": "silu",
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_accurate": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_python_tanh": "gelu_tanh",
    "relu": "relu",
    "relu2": "relu2",
    "xielu": "xielu",
}
"""Spelling in `config.json` -> ours. Source: transformers `activations.py`, `ACT2CLS`."""

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


def activation(config: HfConfig, name: str, *aliases: str) -> str:
    """The activation of the MLP, in our spelling."""
    value = config.text(name, *aliases)
    if value not in ACTIVATIONS:
        known = ", ".join(ACTIVATIONS)
        raise UnsupportedError(
            f"{config.where}: activation {value!r} in '{name}' is not modelled; known: {known}"
        )
    return ACTIVATIONS[value]


def head_dim(config: HfConfig, *, hidden: str = "hidden_size", heads: str) -> int:
    """Width of a head where the file leaves it to hidden size over heads."""
    width, count = config.integer(hidden), config.integer(heads)
    if width % count:
        raise SpecError(
            f"{config.where}: '{hidden}' = {width} is not a multiple of '{heads}' = {count}; "
            "correct one of them or add 'head_dim'"
        )
    return width // count


def decoder(config: HfConfig, **particulars: object) -> ModelSpec:
    """A decoder in the shape of Llama, but for the `particulars` its family gives.

    Args:
        config: The file, with the defaults of its family.
        **particulars: Fields of `ModelSpec` that differ from Llama's.
    """
    config = config.with_defaults(DEFAULTS)
    heads = config.integer("num_attention_heads")
    rope = rotary(config)
    shared: dict[str, object] = {
        "name": config.name,
        "model_type": config.model_type,
        "num_hidden_layers": config.integer("num_hidden_layers"),
        "hidden_size": config.integer("hidden_size"),
        "intermediate_size": config.integer("intermediate_size"),
        "num_attention_heads": heads,
        "num_key_value_heads": config.optional_integer("num_key_value_heads") or heads,
        "vocab_size": config.integer("vocab_size"),
        "max_position_embeddings": config.integer("max_position_embeddings"),
        "rope_theta": rope.theta,
        "partial_rotary_factor": rope.partial_factor,
        "rope_scaling": rope.scaling,
        "norm_eps": config.number("rms_norm_eps"),
        "tie_word_embeddings": config.boolean("tie_word_embeddings"),
    }
    if "activation" not in particulars:
        shared["activation"] = activation(config, "hidden_act")
    if "head_dim" not in particulars:
        width = config.optional_integer("head_dim")
        shared["head_dim"] = width or head_dim(config, heads="num_attention_heads")
    return ModelSpec.model_validate(shared | particulars)
