"""Decoders with a tower: `text_config` by its own family, `vision_config` or `audio_config` here.

To add one, write what is between both in `projectors` and one line in `TOWERS`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from trainplan.costmodel.architecture import ModelSpec, TowerSpec
from trainplan.costmodel.base import SpecError
from trainplan.costmodel.families.reader import HfConfig
from trainplan.costmodel.families.ties import tied
from trainplan.costmodel.families.towers import projectors
from trainplan.costmodel.families.towers.encoders import encoder_of
from trainplan.costmodel.families.towers.fields import Fields


@dataclass(frozen=True, slots=True)
class TowerFamily:
    """How one `model_type` joins its tower to its decoder."""

    joined: Callable[[HfConfig, Fields, ModelSpec], Fields]
    """What the projectors add to the fields of the encoder."""
    encoder: str
    """`model_type` of the encoder where its section has none."""
    text: str
    """Family of the decoder where its section names none, or one that is read as no other."""
    section: str = "vision_config"


TOWERS: Final[Mapping[str, TowerFamily]] = {
    "gemma3": TowerFamily(projectors.gemma3, "siglip_vision_model", "gemma3_text"),
    "internvl": TowerFamily(projectors.internvl, "internvl_vision", "qwen2"),
    "llama4": TowerFamily(projectors.llama4, "llama4_vision_model", "llama4_text"),
    "llava": TowerFamily(projectors.llava, "clip_vision_model", "llama"),
    "mistral3": TowerFamily(projectors.mistral3, "pixtral", "mistral"),
    "qwen2_5_vl": TowerFamily(projectors.qwen2, "qwen2_5_vl", "qwen2"),
    "qwen2_audio": TowerFamily(
        projectors.qwen2_audio, "qwen2_audio_encoder", "qwen2", section="audio_config"
    ),
    "qwen2_vl": TowerFamily(projectors.qwen2, "qwen2_vl", "qwen2"),
    "qwen3_vl": TowerFamily(projectors.qwen3, "qwen3_vl", "qwen3"),
    "qwen3_vl_moe": TowerFamily(projectors.qwen3, "qwen3_vl_moe", "qwen3_moe"),
}
"""`model_type` of the whole file -> its family."""
TOP_ONLY: Final = frozenset({"model_type", "architectures", "vision_config", "audio_config"})
"""Fields of the whole file that state nothing of its decoder where both are one object."""
PLAIN_ROPE: Final = frozenset({"default", "mrope"})
"""Kinds of positions that no sequence stretches: those of Qwen have a row for each axis."""


def has_tower(config: HfConfig) -> bool:
    """Is it a decoder with a tower that is read? Files with the decoder alone have no section."""
    family = TOWERS.get(config.model_type)
    return family is not None and config.has(family.section)


def with_tower(
    config: HfConfig, read: Callable[[HfConfig], ModelSpec], known: Callable[[str], bool]
) -> ModelSpec:
    """The decoder, read by its own family, with the tower of the file.

    Args:
        config: The whole file.
        read: Reads a decoder by its `model_type`.
        known: Is there a reader of that name?

    Raises:
        SpecError: A field is missing, of the wrong type or out of range.
        UnsupportedError: The decoder or the encoder is not modelled.
    """
    family = TOWERS[config.model_type]
    model = read(_text(config, family, known))
    section = replace(config.section(family.section), defaults={})
    fields = encoder_of(section, family.encoder)
    tower = TowerSpec.model_validate(fields | family.joined(config, fields, model))
    tokens = {one.linears[-1].out_features for one in tower.projectors}
    if tokens != {model.hidden_size}:
        raise SpecError(
            f"{config.where}: the tower hands over tokens of width {max(tokens)}, the decoder's "
            f"hidden_size is {model.hidden_size}: correct 'out_hidden_size' or its like"
        )
    return model.model_copy(
        update={"name": config.name, "model_type": config.model_type, "tower": tower}
    )


def _text(config: HfConfig, family: TowerFamily, known: Callable[[str], bool]) -> HfConfig:
    """The decoder's section, or all the rest of an older file that has none."""
    section = config.with_defaults({"text_config": None}).optional_section("text_config")
    values: dict[str, object] = {
        name: value
        for name, value in (section or config).values.items()
        if section or name not in TOP_ONLY
    }
    named = (section or config).with_defaults({"model_type": config.model_type})
    kind, own = named.text("model_type"), {config.model_type, f"{config.model_type}_text"}
    if kind in own and not (section and known(kind)):
        kind = family.text
    values |= tied(config, section)
    for rope in ("rope_scaling", "rope_parameters"):
        values |= _without_axes(values, rope)
    path = section.path if section else ""
    found = replace(config, model_type=kind, values=values, defaults={}, path=path)
    return found.with_defaults(LLAMA_SIZES) if kind == "llama" else found


LLAMA_SIZES: Final = {
    "vocab_size": 32_000,
    "hidden_size": 4096,
    "intermediate_size": 11_008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
}
"""Of `LlamaConfig`: the files of LLaVA leave out what a 7B has anyway."""


def _without_axes(values: Mapping[str, object], name: str) -> dict[str, object]:
    """Positions of several axes as those of one, which cost the same."""
    rope = values.get(name)
    if not isinstance(rope, Mapping):
        return {}
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind not in PLAIN_ROPE:
        return {}
    theta = {"rope_theta": rope["rope_theta"]} if "rope_theta" in rope else {}
    return {name: {"rope_type": "default", **theta}}
