"""Hugging Face `config.json` -> `ModelSpec`, one family per file.

To add a family, write its file and add one line to `FAMILIES`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from pydantic import ValidationError

from trainplan.costmodel.base import SpecError, UnsupportedError
from trainplan.costmodel.base.validation_errors import shown
from trainplan.costmodel.model.families.deepseek_v2 import deepseek_v2
from trainplan.costmodel.model.families.deepseek_v3 import deepseek_v3
from trainplan.costmodel.model.families.gemma2 import gemma2
from trainplan.costmodel.model.families.gemma3 import gemma3, gemma3_text
from trainplan.costmodel.model.families.glm4 import glm4
from trainplan.costmodel.model.families.gpt2 import gpt2
from trainplan.costmodel.model.families.gpt_neox import gpt_neox
from trainplan.costmodel.model.families.gpt_oss import gpt_oss
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
from trainplan.costmodel.model.families.reader import HfConfig, refusal
from trainplan.costmodel.model.families.towers import TOWERS, has_tower, with_tower
from trainplan.costmodel.spec import ModelSpec

FAMILIES: Final[Mapping[str, Callable[[HfConfig], ModelSpec]]] = {
    "deepseek_v2": deepseek_v2,
    "deepseek_v3": deepseek_v3,
    "gemma2": gemma2,
    "gemma3": gemma3,
    "gemma3_text": gemma3_text,
    "glm4": glm4,
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
"""Hugging Face `model_type` -> reader."""


def model_from_config(config: Mapping[str, object], name: str) -> ModelSpec:
    """Read the content of a Hugging Face `config.json`.

    Args:
        config: The parsed file.
        name: What to call the model.

    Raises:
        SpecError: A field is missing, of the wrong type or out of range; the message names it.
        UnsupportedError: The architecture is not modelled.
    """
    model_type = _model_type(config)
    file = HfConfig(name=name, model_type=model_type, values=config)
    if model_type not in FAMILIES and not has_tower(file):
        raise refusal(model_type, {*FAMILIES, *TOWERS})
    if file.with_defaults({"is_encoder_decoder": False}).boolean("is_encoder_decoder"):
        raise UnsupportedError(f"{file.where}: encoder-decoder models are not modelled")
    try:
        return with_tower(file, _read, FAMILIES.__contains__) if has_tower(file) else _read(file)
    except ValidationError as error:
        raise file.refused(error) from error


def _read(file: HfConfig) -> ModelSpec:
    """A decoder by its `model_type`."""
    if file.model_type not in FAMILIES:
        raise refusal(file.model_type, FAMILIES)
    return FAMILIES[file.model_type](file)


def _model_type(config: Mapping[str, object]) -> str:
    model_type = config.get("model_type")
    if model_type is None:
        raise SpecError(
            "config.json lacks 'model_type', which says how to read it: add it, "
            f"for instance 'llama' (known: {', '.join(sorted(FAMILIES))})"
        )
    if not isinstance(model_type, str):
        raise SpecError(f"config.json: 'model_type' must be a string, got {shown(model_type)}")
    return model_type
