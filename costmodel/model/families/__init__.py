"""Hugging Face `config.json` -> `ModelSpec`, one family per file.

A family that differs from a Llama in few points is a line of a table (`plain`, `mixtures`,
`hybrids`), one with code of its own has a file and a line in `FAMILIES`. Any other `model_type` is
read by its fields.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from pydantic import ValidationError

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.base import SpecError, UnsupportedError
from trainplan.costmodel.model.families.dbrx import dbrx
from trainplan.costmodel.model.families.deepseek_v2 import deepseek_v2
from trainplan.costmodel.model.families.deepseek_v3 import deepseek_v3
from trainplan.costmodel.model.families.gemma2 import gemma2
from trainplan.costmodel.model.families.gemma3 import gemma3, gemma3_text
from trainplan.costmodel.model.families.generic import by_fields, not_understood
from trainplan.costmodel.model.families.glm4 import glm4, glm4v, glm_ocr
from trainplan.costmodel.model.families.gpt2 import gpt2
from trainplan.costmodel.model.families.gpt_neox import gpt_neox
from trainplan.costmodel.model.families.gpt_oss import gpt_oss
from trainplan.costmodel.model.families.known import TABLE, from_table
from trainplan.costmodel.model.families.llama import llama
from trainplan.costmodel.model.families.mistral import mistral
from trainplan.costmodel.model.families.mixtral import mixtral
from trainplan.costmodel.model.families.olmo2 import olmo2
from trainplan.costmodel.model.families.opt import opt
from trainplan.costmodel.model.families.phi3 import phi3
from trainplan.costmodel.model.families.qwen2 import qwen2
from trainplan.costmodel.model.families.qwen2_moe import qwen2_moe
from trainplan.costmodel.model.families.qwen3 import qwen3
from trainplan.costmodel.model.families.qwen3_moe import qwen3_moe
from trainplan.costmodel.model.families.reader import NOT_MODELLED, HfConfig, refusal
from trainplan.costmodel.model.families.towers import has_tower, with_tower
from trainplan.costmodel.spec import shown

FAMILIES: Final[Mapping[str, Callable[[HfConfig], ModelSpec]]] = {
    "dbrx": dbrx,
    "deepseek_v2": deepseek_v2,
    "deepseek_v3": deepseek_v3,
    "gemma2": gemma2,
    "gemma3": gemma3,
    "gemma3_text": gemma3_text,
    "glm4": glm4,
    "glm4v_text": glm4v,
    "glm_image_text": glm4v,
    "glm_ocr_text": glm_ocr,
    "gpt2": gpt2,
    "gpt_neox": gpt_neox,
    "gpt_oss": gpt_oss,
    "kimi_k2": deepseek_v3,
    "llama": llama,
    "mistral": mistral,
    "mixtral": mixtral,
    "olmo2": olmo2,
    "opt": opt,
    "phi3": phi3,
    "qwen2": qwen2,
    "qwen2_moe": qwen2_moe,
    "qwen3": qwen3,
    "qwen3_moe": qwen3_moe,
}
"""Hugging Face `model_type` -> reader, of families with a file of their own."""
SAME: Final[Mapping[str, str]] = {
    "emu3_text_model": "llama",
    "glm4v_moe_text": "glm4_moe",
    "gpt-sw3": "gpt2",
    "hunyuan_vl_text": "hunyuan_v1_dense",
    "hy_v4_vl_text": "hy_v4",
    "qwen2_5_vl": "qwen2",
    "qwen2_5_vl_text": "qwen2",
    "qwen2_vl": "qwen2",
    "qwen2_vl_text": "qwen2",
    "qwen3_vl_moe_text": "qwen3_moe",
    "qwen3_vl_text": "qwen3",
}
"""`model_type` -> the one whose decoder it has."""


def _same(config: HfConfig) -> ModelSpec:
    """Read a decoder that has another name, as the one it is."""
    other = replace(config, model_type=SAME[config.model_type])
    reader = FAMILIES.get(other.model_type, from_table)
    return reader(other).model_copy(update={"model_type": config.model_type})


READERS: Final[Mapping[str, Callable[[HfConfig], ModelSpec]]] = {
    **dict.fromkeys(TABLE, from_table),
    **FAMILIES,
    **dict.fromkeys(SAME, _same),
}
"""All that are read by name: those, and the lines of the tables."""


WHOLE: Final = frozenset({"gemma3"})
"""Models with towers that have a reader of their own."""
TEXT_SECTIONS: Final = ("text_config", "llm_config", "language_config")
"""Where a model with towers describes its decoder."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A model, and how it was read."""

    model: ModelSpec
    read: Mapping[str, object]
    """Fields of the file that were read, with their path."""
    assumed: Mapping[str, object]
    """Fields that are not in the file, with the default they got."""
    ignored: tuple[str, ...]
    """Fields of the file that change nothing here."""
    notes: tuple[str, ...]
    """What was assumed beside single fields."""


def model_from_config(config: Mapping[str, object], name: str) -> ModelSpec:
    """Read the content of a Hugging Face `config.json`.

    Args:
        config: The parsed file.
        name: What to call the model.

    Raises:
        SpecError: A field is missing, of the wrong type or out of range; the message names it.
        UnsupportedError: The architecture is not modelled; the message names the field.
    """
    return read_config(config, name).model


def read_config(config: Mapping[str, object], name: str) -> Reading:
    """As `model_from_config`, with what was read and what was assumed."""
    file = HfConfig(name=name, model_type=_model_type(config), values=config)
    if file.model_type in NOT_MODELLED:
        raise refusal(file.model_type)
    notes: list[str] = []
    seeing = has_tower(file)
    section = None if seeing or file.model_type in WHOLE else _text_section(file)
    if section:
        left = ", ".join(f"'{key}'" for key in config if key.endswith("_config"))
        notes.append(f"the language model alone: of {left} only '{section.path[:-1]}' is read")
        file = section
    if file.has("is_encoder_decoder") and file.boolean("is_encoder_decoder"):
        raise UnsupportedError(f"{file.where}: encoder-decoder models are not modelled")
    try:
        model = with_tower(file, _read, READERS.__contains__) if seeing else _read(file)
    except ValidationError as error:
        raise file.refused(error) from error
    _layer_types_fit(file, model)
    if model.read_by_fields:
        notes.append(
            f"model_type '{file.model_type}' has no file of its own: it was read by its fields, "
            "as a Llama is built where they say nothing; norms of heads and biases that no field "
            "names are not counted"
        )
    ignored = tuple(sorted(not_understood(file)))
    assumed = {name: value for name, value in file.assumed.items() if value is not None}
    notes += TABLE[file.model_type].notes if file.model_type in TABLE else ()
    return Reading(model, file.seen, assumed, ignored, tuple(notes))


def _layer_types_fit(file: HfConfig, model: ModelSpec) -> None:
    """Refuse a list of layers that is not as long as the model, in families that have none too."""
    types = file.values.get("layer_types")
    layers = model.num_hidden_layers
    if f"{file.path}layer_types" in file.seen or not isinstance(types, list):
        return
    if types and len(types) != layers:
        raise SpecError(
            f"{file.where}: 'layer_types' has {len(types)} entries, 'num_hidden_layers' is "
            f"{layers}; make them equal"
        )


def _read(file: HfConfig) -> ModelSpec:
    """By the reader of its `model_type`, or by its fields."""
    reader = READERS.get(file.model_type)
    if reader:
        return reader(file)
    if file.model_type in NOT_MODELLED:
        raise refusal(file.model_type)
    return by_fields(file)


def _text_section(file: HfConfig) -> HfConfig | None:
    """The decoder of a model with towers, tied as the whole says where it does not."""
    for name in TEXT_SECTIONS:
        section = file.with_defaults({name: None}).optional_section(name)
        if section:
            tied = {key: file.values[key] for key in ("tie_word_embeddings",) if file.has(key)}
            values = {**tied, **section.values}
            return replace(section, values=values, model_type=_model_type(values))
    return None


def _model_type(config: Mapping[str, object]) -> str:
    model_type = config.get("model_type")
    if model_type is None:
        raise SpecError(
            "config.json lacks 'model_type', which says how to read it: add it, "
            "for instance 'llama'"
        )
    if not isinstance(model_type, str):
        raise SpecError(f"config.json: 'model_type' must be a string, got {shown(model_type)}")
    return model_type
