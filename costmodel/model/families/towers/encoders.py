"""Encoders of images and sound: what of `vision_config` or `audio_config` says their layers.

Source: transformers 5.24 `modeling_*.py` and `configuration_*.py` of the families named; the
parameter count of every one is compared in tests/oracles/test_tower_parameters.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from trainplan.costmodel.base import SpecError, UnsupportedError
from trainplan.costmodel.model.families.decoder import activation
from trainplan.costmodel.model.families.reader import HfConfig

Fields = dict[str, object]
"""Fields of a `TowerSpec`."""
ASSUMED_PATCHES: Final = 1_024
"""Patches of a sample where images come in their own sizes: 448 x 448 pixels at 14 a side.

Source: assumed; what the choice is printed as, and `--tower patches=N` replaces it."""


def side(config: HfConfig, name: str) -> int:
    """Pixels of a side, given as a number or as two equal ones."""
    value = config.values.get(name, config.defaults.get(name))
    if not isinstance(value, list | tuple):
        return config.integer(name)
    sides = config.indices(name)
    if len(set(sides)) != 1 or not sides[0]:
        raise SpecError(f"{config.where}: '{config.path}{name}' must have equal sides, got {value}")
    return sides[0]


def hidden_activation(config: HfConfig, name: str = "hidden_act") -> str:
    """In our spelling; the quick GELU of CLIP costs what a GELU costs."""
    value = config.with_defaults({name: "gelu"}).text(name)
    return "gelu" if value == "quick_gelu" else activation(config, name)


def patches_of(config: HfConfig) -> int:
    """Patches of an image of the size that the file gives."""
    image, patch = side(config, "image_size"), side(config, "patch_size")
    if image < patch:
        raise SpecError(
            f"{config.where}: '{config.path}image_size' = {image} is less than a patch of {patch}"
        )
    return (image // patch) ** 2


def _sizes(config: HfConfig) -> Fields:
    return {
        "num_hidden_layers": config.integer("num_hidden_layers", "depth"),
        "hidden_size": config.integer("hidden_size"),
        "intermediate_size": config.integer("intermediate_size"),
        "num_attention_heads": config.integer("num_attention_heads", "num_heads"),
        "num_channels": config.integer("num_channels", "in_channels"),
        "patch_size": side(config, "patch_size"),
        "activation": hidden_activation(config),
    }


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
        **_sizes(config),
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
    patches, sizes = patches_of(config), _sizes(config)
    h, width = config.integer("hidden_size"), config.integer("intermediate_size")
    attention, mlp = 4 * h * h + 4 * h, 2 * h * width + width + h
    head = h + attention + 2 * h + mlp  # probe, attention, norm, MLP
    return {
        **sizes,
        "position_rows": patches,
        "norms_outside": 1,
        "patches_per_sample": patches,
        "extra_parameters": head if config.boolean("vision_use_head") else 0,
    }


PIXTRAL_DEFAULTS: Final = {
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "num_channels": 3,
    "image_size": 1024,
    "patch_size": 16,
    "hidden_act": "gelu",
    "head_dim": None,
}


def pixtral(config: HfConfig) -> Fields:
    """Pixtral: rotary positions, RMS norms, gated MLPs, no biases; images of at most a size."""
    config = config.with_defaults(PIXTRAL_DEFAULTS)
    return {
        **_sizes(config),
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
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "num_channels": 3,
    "image_size": 448,
    "patch_size": 14,
    "hidden_act": "gelu",
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
        **_sizes(config),
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
    "hidden_size": 768,
    "intermediate_size": 5632,
    "num_hidden_layers": 34,
    "num_attention_heads": 16,
    "num_channels": 3,
    "image_size": 448,
    "patch_size": 14,
    "hidden_act": "gelu",
}


def llama4(config: HfConfig) -> Fields:
    """Llama 4: a class token, learned and rotary positions, norms before and behind."""
    config = config.with_defaults(LLAMA4_DEFAULTS)
    patches = patches_of(config)
    return {
        **_sizes(config),
        "position_embedding": "rope",
        "patch_bias": False,
        "class_tokens": 1,
        "position_rows": patches + 1,
        "norms_outside": 2,
        "patches_per_sample": patches,
    }


QWEN_DEFAULTS: Final = {
    "num_channels": 3,
    "in_channels": 3,
    "patch_size": 14,
    "temporal_patch_size": 2,
    "spatial_merge_size": 2,
}
QWEN2_DEFAULTS: Final = {
    **QWEN_DEFAULTS,
    "depth": 32,
    "embed_dim": 1280,
    "hidden_size": 3584,
    "hidden_act": "quick_gelu",
    "mlp_ratio": 4,
    "num_heads": 16,
}


def _own_sizes(config: HfConfig) -> Fields:
    """Images of any size, whose patches are merged two by two; all attention rotates."""
    return {
        "temporal_patch_size": side(config, "temporal_patch_size"),
        "position_embedding": "rope",
        "merged_patches": config.integer("spatial_merge_size") ** 2,
        "patches_per_sample": ASSUMED_PATCHES,
        "patches_assumed": True,
    }


def qwen2_vl(config: HfConfig) -> Fields:
    """Qwen2-VL; `hidden_size` is that of the decoder."""
    config = config.with_defaults(QWEN2_DEFAULTS)
    width = config.integer("embed_dim")
    return {
        **_own_sizes(config),
        "num_hidden_layers": config.integer("depth"),
        "hidden_size": width,
        "intermediate_size": width * config.integer("mlp_ratio"),
        "num_attention_heads": config.integer("num_heads"),
        "num_channels": config.integer("in_channels"),
        "patch_size": side(config, "patch_size"),
        "activation": hidden_activation(config),
        "patch_bias": False,
    }


QWEN25_DEFAULTS: Final = {
    **QWEN_DEFAULTS,
    "depth": 32,
    "hidden_size": 3584,
    "hidden_act": "silu",
    "intermediate_size": 3420,
    "num_heads": 16,
    "window_size": 112,
    "fullatt_block_indexes": [7, 15, 23, 31],
}


def qwen2_5_vl(config: HfConfig) -> Fields:
    """Qwen2.5-VL: RMS norms, gated MLPs with biases, windows but for a few layers."""
    config = config.with_defaults(QWEN25_DEFAULTS)
    patch = side(config, "patch_size")
    return {
        **_sizes(config),
        **_own_sizes(config),
        "norm": "rmsnorm",
        "gated_mlp": True,
        "patch_bias": False,
        "window_patches": (config.integer("window_size") // patch) ** 2,
        "full_attention_layers": config.indices("fullatt_block_indexes"),
    }


QWEN3_DEFAULTS: Final = {
    **QWEN_DEFAULTS,
    "patch_size": 16,
    "depth": 27,
    "hidden_size": 1152,
    "hidden_act": "gelu_pytorch_tanh",
    "intermediate_size": 4304,
    "num_heads": 16,
    "num_position_embeddings": 2304,
}


def qwen3_vl(config: HfConfig) -> Fields:
    """Qwen3-VL: learned and rotary positions; Megatron-Bridge cuts it over tensor ranks."""
    config = config.with_defaults(QWEN3_DEFAULTS)
    return {
        **_sizes(config),
        **_own_sizes(config),
        "position_rows": config.integer("num_position_embeddings"),
        "tensor_parallel": True,
    }


WHISPER_DEFAULTS: Final = {
    "num_mel_bins": 128,
    "encoder_layers": 32,
    "encoder_attention_heads": 20,
    "encoder_ffn_dim": 5120,
    "d_model": 1280,
    "activation_function": "gelu",
    "max_source_positions": 1500,
}
KERNEL: Final = 3
"""Frames that a convolution of Whisper sees. Source: `modeling_qwen2_audio.py`, conv1 and conv2."""


def whisper(config: HfConfig) -> Fields:
    """Whisper's encoder: two convolutions, the second of which halves the frames; no key biases."""
    config = config.with_defaults(WHISPER_DEFAULTS)
    h, mel = config.integer("d_model"), config.integer("num_mel_bins")
    positions = config.integer("max_source_positions")
    return {
        "modality": "audio",
        "num_hidden_layers": config.integer("encoder_layers"),
        "hidden_size": h,
        "intermediate_size": config.integer("encoder_ffn_dim"),
        "num_attention_heads": config.integer("encoder_attention_heads"),
        "activation": hidden_activation(config, "activation_function"),
        "key_bias": False,
        "embedding": (
            {"in_features": KERNEL * mel, "out_features": h, "rows": 2},
            {"in_features": KERNEL * h, "out_features": h},
        ),
        "position_rows": positions,
        "norms_outside": 1,
        "patches_per_sample": positions,
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
