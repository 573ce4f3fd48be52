"""Encoders of Qwen-VL, and Whisper's in Qwen2-Audio. Source: as `towers.encoders`."""

from typing import Final

from trainplan.costmodel.families.reader import HfConfig
from trainplan.costmodel.families.towers.fields import (
    ASSUMED_PATCHES,
    Fields,
    hidden_activation,
    side,
    sizes,
)

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
        **sizes(config),
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
        **sizes(config),
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
