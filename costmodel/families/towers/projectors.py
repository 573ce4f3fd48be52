"""What stands between an encoder and the decoder. Source: as `towers.encoders`."""

from math import isqrt
from typing import Any

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.base import SpecError
from trainplan.costmodel.families.reader import HfConfig
from trainplan.costmodel.families.towers.fields import Fields


def _linear(inputs: int, outputs: int, *, bias: bool = True) -> Fields:
    return {"in_features": inputs, "out_features": outputs, "bias": bias}


def _width(fields: Fields) -> int:
    """Of the encoder."""
    return _number(fields, "hidden_size")


def _number(fields: Fields, name: str) -> int:
    value: Any = fields[name]
    return int(value)


def _feature_layers(config: HfConfig) -> int:
    """Layers whose outputs are handed over side by side."""
    value = config.values.get("vision_feature_layer")
    return len(value) if isinstance(value, list) else 1


def llava(config: HfConfig, fields: Fields, model: ModelSpec) -> Fields:
    """Two matrices on every patch."""
    bias = config.with_defaults({"multimodal_projector_bias": True})
    biased, h = bias.boolean("multimodal_projector_bias"), model.hidden_size
    first = _linear(_width(fields) * _feature_layers(config), h, bias=biased)
    return {"projectors": ({"linears": (first, _linear(h, h, bias=biased))},)}


def gemma3(config: HfConfig, fields: Fields, model: ModelSpec) -> Fields:
    """Patches are averaged to `mm_tokens_per_image`, normed and projected."""
    tokens = config.with_defaults({"mm_tokens_per_image": 256}).integer("mm_tokens_per_image")
    patches, width = _number(fields, "patches_per_sample"), _width(fields)
    kernel = isqrt(patches) // isqrt(tokens)
    if not kernel or isqrt(patches) % isqrt(tokens):
        raise SpecError(
            f"{config.where}: {patches} patches do not pool to 'mm_tokens_per_image' = {tokens}; "
            "correct one of them"
        )
    linear = _linear(width, model.hidden_size, bias=False)
    projector = {"linears": (linear,), "norm_size": width, "norm": "rmsnorm"}
    return {"merged_patches": kernel**2, "projectors": (projector,)}


def internvl(config: HfConfig, fields: Fields, model: ModelSpec) -> Fields:
    """Pixels are shuffled into channels, normed and projected twice."""
    ratio = config.with_defaults({"downsample_ratio": 0.5}).number("downsample_ratio")
    merged, h = int(1 / ratio) ** 2, model.hidden_size
    inputs = _width(fields) * merged
    projector = {"linears": (_linear(inputs, h), _linear(h, h)), "norm_size": inputs}
    return {"merged_patches": merged, "projectors": (projector,)}


def mistral3(config: HfConfig, fields: Fields, model: ModelSpec) -> Fields:
    """Patches are normed, merged by a matrix and projected twice."""
    defaults = {"multimodal_projector_bias": False, "spatial_merge_size": 2}
    config = config.with_defaults(defaults)
    merged, h, width = config.integer("spatial_merge_size") ** 2, model.hidden_size, _width(fields)
    biased = config.boolean("multimodal_projector_bias")
    linears = (
        _linear(width * merged, width, bias=False),
        _linear(width, h, bias=biased),
        _linear(h, h, bias=biased),
    )
    projector = {"linears": linears, "norm_size": width, "norm": "rmsnorm"}
    patches = _number(fields, "patches_per_sample")
    whole = patches // merged * merged
    return {"merged_patches": merged, "patches_per_sample": whole, "projectors": (projector,)}


def llama4(config: HfConfig, fields: Fields, model: ModelSpec) -> Fields:
    """Pixels are shuffled into channels; two matrices of the encoder, then one of the whole."""
    vision = config.section("vision_config").with_defaults(
        {
            "pixel_shuffle_ratio": 0.5,
            "projector_input_dim": 4096,
            "projector_output_dim": 4096,
            "vision_output_dim": 7680,
        }
    )
    merged = int(1 / vision.number("pixel_shuffle_ratio")) ** 2
    inner, outer = vision.integer("projector_input_dim"), vision.integer("projector_output_dim")
    if outer != vision.integer("vision_output_dim"):
        raise SpecError(
            f"{vision.where}: 'vision_config.vision_output_dim' is not 'projector_output_dim' = "
            f"{outer}: make them equal"
        )
    linears = (
        _linear(_number(fields, "intermediate_size"), inner, bias=False),
        _linear(inner, outer, bias=False),
        _linear(outer, model.hidden_size, bias=False),
    )
    return {"merged_patches": merged, "projectors": ({"linears": linears},)}


def qwen2(config: HfConfig, fields: Fields, model: ModelSpec) -> Fields:
    """Qwen2-VL and 2.5: patches are normed, merged and projected twice."""
    width, norm = _width(fields), fields.get("norm", "layernorm")
    inputs = width * _number(fields, "merged_patches")
    vision = config.section("vision_config")
    name = "out_hidden_size" if vision.has("out_hidden_size") else "hidden_size"
    outputs = vision.integer(name) if norm == "rmsnorm" and vision.has(name) else model.hidden_size
    linears = (_linear(inputs, inputs), _linear(inputs, outputs))
    return {"projectors": ({"linears": linears, "norm_size": width, "norm": norm},)}


def qwen3(config: HfConfig, fields: Fields, model: ModelSpec) -> Fields:
    """As Qwen2-VL, and once more for each layer whose output goes into the decoder's layers."""
    vision = config.section("vision_config").with_defaults(
        {"deepstack_visual_indexes": [8, 16, 24], "out_hidden_size": 3584}
    )
    width, merged = _width(fields), _number(fields, "merged_patches")
    inputs = width * merged
    linears = (_linear(inputs, inputs), _linear(inputs, vision.integer("out_hidden_size")))
    last = {"linears": linears, "norm_size": width}
    deeper = {"linears": linears, "norm_size": inputs}
    return {"projectors": (last, *[deeper] * len(vision.indices("deepstack_visual_indexes")))}


def qwen2_audio(config: HfConfig, fields: Fields, model: ModelSpec) -> Fields:
    """Two frames become one, which one matrix projects."""
    return {
        "merged_patches": 2,
        "projectors": ({"linears": (_linear(_width(fields), model.hidden_size),)},),
    }
