"""Encoders of images and sound: what of `vision_config` or `audio_config` says their layers.

Source: transformers 5.24 `modeling_*.py` and `configuration_*.py` of the families named; the
parameter count of every one is compared in tests/oracles/test_tower_parameters.py.
"""

from collections.abc import Callable, Mapping
from typing import Final

from trainplan.costmodel.base import UnsupportedError
from trainplan.costmodel.families.reader import HfConfig
from trainplan.costmodel.families.towers.fields import Fields, patches_of, sizes
from trainplan.costmodel.families.towers.qwen import qwen2_5_vl, qwen2_vl, qwen3_vl, whisper

CLIP_DEFAULTS: Final = {
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "num_channels": 3,
    "image_size": 224,
    "patch_size": 32,
    "hidden_act": "quick_gelu",
}


def clip(config: HfConfig) -> Fields:
    """CLIP: a class token, learned positions, norms before and behind the layers."""
    config = config.with_defaults(CLIP_DEFAULTS)
    patches = patches_of(config)
    return {
        **sizes(config),
        "patch_bias": False,
        "class_tokens": 1,
        "position_rows": patches + 1,
        "norms_outside": 2,
        "patches_per_sample": patches,
    }


SIGLIP_DEFAULTS: Final = {
    **CLIP_DEFAULTS,
    "patch_size": 16,
    "hidden_act": "gelu_pytorch_tanh",
    "vision_use_head": True,
}


def siglip(config: HfConfig) -> Fields:
    """SigLIP: learned positions and a norm behind the layers; the head that pools stands idle."""
    config = config.with_defaults(SIGLIP_DEFAULTS)
    patches, shared = patches_of(config), sizes(config)
    h, width = config.integer("hidden_size"), config.integer("intermediate_size")
    attention, mlp = 4 * h * h + 4 * h, 2 * h * width + width + h
    head = h + attention + 2 * h + mlp  # probe, attention, norm, MLP
    return {
        **shared,
        "position_rows": patches,
        "norms_outside": 1,
        "patches_per_sample": patches,
        "extra_parameters": head if config.boolean("vision_use_head") else 0,
    }


LARGE_DEFAULTS: Final = {
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "num_channels": 3,
    "image_size": 1024,
    "patch_size": 16,
    "hidden_act": "gelu",
}
PIXTRAL_DEFAULTS: Final = {**LARGE_DEFAULTS, "head_dim": None}


def pixtral(config: HfConfig) -> Fields:
    """Pixtral: rotary positions, RMS norms, gated MLPs, no biases; images of at most a size."""
    config = config.with_defaults(PIXTRAL_DEFAULTS)
    return {
        **sizes(config),
        "norm": "rmsnorm",
        "gated_mlp": True,
        "qkv_bias": False,
        "attention_output_bias": False,
        "mlp_bias": False,
        "position_embedding": "rope",
        "patch_bias": False,
        "norms_outside": 1,
        "patches_per_sample": patches_of(config),
    }


INTERNVL_DEFAULTS: Final = {
    **LARGE_DEFAULTS,
    "image_size": 448,
    "patch_size": 14,
    "attention_bias": False,
    "use_qk_norm": False,
    "norm_type": "layer_norm",
    "use_mask_token": False,
    "use_absolute_position_embeddings": True,
    "use_mean_pooling": True,
}
NORMS: Final = {"layer_norm": "layernorm", "rms_norm": "rmsnorm"}


def internvl(config: HfConfig) -> Fields:
    """InternViT: a class token, learned positions, a learned factor behind both halves."""
    config = config.with_defaults(INTERNVL_DEFAULTS)
    patches, norm = patches_of(config), config.text("norm_type")
    if norm not in NORMS:
        raise UnsupportedError(
            f"{config.where}: '{config.path}norm_type' = {norm!r} is not modelled; known: "
            f"{', '.join(NORMS)}"
        )
    h, norm_behind = config.integer("hidden_size"), not config.boolean("use_mean_pooling")
    masked = h if config.boolean("use_mask_token") else 0
    return {
        **sizes(config),
        "norm": NORMS[norm],
        "qkv_bias": config.boolean("attention_bias"),
        "qk_norm": "full" if config.boolean("use_qk_norm") else "none",
        "layer_scale": True,
        "class_tokens": 1,
        "position_rows": patches + 1 if config.boolean("use_absolute_position_embeddings") else 0,
        # the norm behind the layers has biases whatever those of the layers have
        "extra_parameters": masked + norm_behind * 2 * h,
        "patches_per_sample": patches,
    }


LLAMA4_DEFAULTS: Final = {
    **LARGE_DEFAULTS,
    "hidden_size": 768,
    "intermediate_size": 5632,
    "num_hidden_layers": 34,
    "image_size": 448,
    "patch_size": 14,
}


def llama4(config: HfConfig) -> Fields:
    """Llama 4: a class token, learned and rotary positions, norms before and behind."""
    config = config.with_defaults(LLAMA4_DEFAULTS)
    patches = patches_of(config)
    return {
        **sizes(config),
        "position_embedding": "rope",
        "patch_bias": False,
        "class_tokens": 1,
        "position_rows": patches + 1,
        "norms_outside": 2,
        "patches_per_sample": patches,
    }


ENCODERS: Final[Mapping[str, Callable[[HfConfig], Fields]]] = {
    "clip_vision_model": clip,
    "internvl_vision": internvl,
    "llama4_vision_model": llama4,
    "pixtral": pixtral,
    "qwen2_5_vl": qwen2_5_vl,
    "qwen2_audio_encoder": whisper,
    "qwen2_vl": qwen2_vl,
    "qwen3_vl": qwen3_vl,
    "qwen3_vl_moe": qwen3_vl,
    "siglip_vision_model": siglip,
}
"""`model_type` of an encoder -> reader; Qwen's are also called by that with `_vision` behind."""


def encoder_of(config: HfConfig, usual: str) -> Fields:
    """The encoder of a section, by its `model_type`, or `usual` where it has none.

    Raises:
        UnsupportedError: No such encoder is known.
    """
    name = config.with_defaults({"model_type": usual}).text("model_type")
    known = name if name in ENCODERS else name.removesuffix("_vision")
    if known not in ENCODERS:
        raise UnsupportedError(
            f"{config.where}: '{config.path}model_type' = {name!r} is a tower that is not "
            f"modelled; known: {', '.join(ENCODERS)}"
        )
    return ENCODERS[known](config)
