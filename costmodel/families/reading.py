"""Hugging Face `config.json` -> `ModelSpec`, and how it was read."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from pydantic import ValidationError

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.base import SpecError, UnsupportedError
from trainplan.costmodel.families.aliases import is_harmless
from trainplan.costmodel.families.generic_config import not_understood
from trainplan.costmodel.families.reader import HfConfig
from trainplan.costmodel.families.registry import (
    NOT_MODELLED,
    READ_BY_NAME,
    decoder,
    notes_of,
    refusal,
)
from trainplan.costmodel.families.ties import tied
from trainplan.costmodel.families.towers import TOWERS, has_tower, with_tower
from trainplan.costmodel.spec import shown

TEXT_SECTIONS: Final = ("text_config", "llm_config", "language_config")
"""Where a model with towers describes its decoder."""

THINKER: Final = "thinker_config"
"""What of an Omni model reads and writes text."""


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
    if thinker := file.with_defaults({THINKER: None}).optional_section(THINKER):
        file = replace(thinker, model_type=_model_type(thinker.values))
        notes.append("the thinker alone: the speech output is left out")
    seeing = has_tower(file)
    section = None if seeing else _text_section(file)
    left_out = None if seeing else _left_out(file, section)
    if section:
        left = ", ".join(f"'{key}'" for key in file.values if key.endswith("_config"))
        notes.append(f"the language model alone: of {left} only '{section.path[:-1]}' is read")
        file = section
    if file.has("is_encoder_decoder") and file.boolean("is_encoder_decoder"):
        raise UnsupportedError(f"{file.where}: encoder-decoder models are not modelled")
    try:
        model = with_tower(file, decoder, READ_BY_NAME.__contains__) if seeing else decoder(file)
    except ValidationError as error:
        raise file.refused(error) from error
    model = model.model_copy(update={"left_out": left_out}) if left_out else model
    _layer_types_fit(file, model)
    if model.read_by_fields:
        notes.append(
            f"model_type '{file.model_type}' has no file of its own: it was read by its "
            "fields, as a Llama where they are absent; norms of heads and biases that no field "
            "names are not counted"
        )
    ignored = tuple(sorted(not_understood(file)))
    assumed = {name: value for name, value in file.assumed.items() if value is not None}
    notes += notes_of(file.model_type)
    return Reading(model, file.seen, assumed, ignored, tuple(notes))


def _left_out(file: HfConfig, section: HfConfig | None) -> str | None:
    """What the file describes beside its decoder, by the names of its sections."""
    others = {name for name, one in file.values.items() if isinstance(one, Mapping)}
    others = {name for name in others if name.endswith("_config") and not is_harmless(name)}
    others |= {family.section} if section and (family := TOWERS.get(file.model_type)) else set()
    sees = any("vision" in name for name in others)
    hears = any("audio" in name or "acoustic" in name for name in others)
    if sees and hears:
        return "vision and audio towers"
    if sees or hears:
        return "vision tower" if sees else "audio tower"
    return "other parts" if section and len(others) > 1 else None


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


def _text_section(file: HfConfig) -> HfConfig | None:
    """The decoder of a model with towers, tied as the class of the whole ties it."""
    family = TOWERS.get(file.model_type)
    for name in TEXT_SECTIONS:
        section = file.with_defaults({name: None}).optional_section(name)
        if section:
            usual = {"model_type": family.text} if family else {}
            values = {**usual, **section.values, **tied(file, section)}
            return replace(section, values=values, model_type=_model_type(values))
    if family and file.model_type not in READ_BY_NAME:
        raise file.lacks("text_config")
    return None


def _model_type(config: Mapping[str, object]) -> str:
    model_type = config.get("model_type")
    if model_type is None:
        raise SpecError(
            "config.json lacks 'model_type', which decides how to read it: add it, "
            "for instance 'llama'"
        )
    if not isinstance(model_type, str):
        raise SpecError(f"config.json: 'model_type' must be a string, got {shown(model_type)}")
    return model_type
