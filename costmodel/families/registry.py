"""All families: what the code of each `model_type` fixes, and those that are refused.

To add one, write its line in one of the tables: docs/how-to/add-a-rule-or-exporter.md.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from importlib.resources import files
from typing import Final, cast

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.base import SpecError, UnsupportedError
from trainplan.costmodel.families.aliases import ALIASES, alias_of, usual_name
from trainplan.costmodel.families.family import Family
from trainplan.costmodel.families.generic_config import COUNTS, OPTIONAL, by_fields, read
from trainplan.costmodel.families.reader import HfConfig
from trainplan.costmodel.families.tables.deepseek import DEEPSEEK
from trainplan.costmodel.families.tables.dense import DENSE
from trainplan.costmodel.families.tables.formulas import FORMULAS
from trainplan.costmodel.families.tables.gemma import GEMMAS
from trainplan.costmodel.families.tables.gpts import GPTS
from trainplan.costmodel.families.tables.hybrids import HYBRIDS
from trainplan.costmodel.families.tables.inside import INSIDE
from trainplan.costmodel.families.tables.layered import LAYERED
from trainplan.costmodel.families.tables.mixtures import MIXTURES
from trainplan.costmodel.families.tables.sparse import SPARSE

FAMILIES: Final[Mapping[str, Family]] = {
    **DENSE,
    **GPTS,
    **GEMMAS,
    **MIXTURES,
    **DEEPSEEK,
    **LAYERED,
    **HYBRIDS,
    **SPARSE,
    **INSIDE,
    **FORMULAS,
}
"""`model_type` -> family."""
SAME: Final[Mapping[str, str]] = {
    "emu3_text_model": "llama",
    "glm4v_moe_text": "glm4_moe",
    "gpt-sw3": "gpt2",
    "hunyuan_vl_text": "hunyuan_v1_dense",
    "hy_v4_vl_text": "hy_v4",
    "phi4_multimodal": "phi3",
    "qwen2_5_omni_text": "qwen2",
    "qwen2_5_vl": "qwen2",
    "qwen2_5_vl_text": "qwen2",
    "qwen2_vl": "qwen2",
    "qwen2_vl_text": "qwen2",
    "qwen3_omni_moe_text": "qwen3_moe",
    "qwen3_vl_moe_text": "qwen3_moe",
    "qwen3_vl_text": "qwen3",
}
"""`model_type` -> the one whose decoder it has."""

READ_BY_NAME: Final = frozenset({*FAMILIES, *SAME})
"""All that are not read by their fields alone."""
DEFAULTS: Final = "tables/class_defaults.json"
"""What each configuration class says of a field its file leaves out, sizes apart. A `model_type`
without a row may leave out `generic_config.OPTIONAL`.

Source: transformers 5.24, `configuration_*.py` of each `model_type`; held by
tests/oracles/test_decoder_counts.py, written by tests/oracles/record_class_defaults.py.
"""


NOT_NULL: Final = "tables/not_null.json"
"""Fields that each configuration class refuses to be null. Source: as of `DEFAULTS`."""
EXPERTS: Final = frozenset(("num_experts", *ALIASES["num_experts"]))


@cache
def not_null(model_type: str) -> frozenset[str]:
    """Fields of a file that may not be null; by any name, where that is so of experts by one."""
    text = files("trainplan.costmodel.families").joinpath(NOT_NULL).read_text("utf-8")
    known = cast("dict[str, list[str]]", json.loads(text))
    names = frozenset(known.get(model_type, ("intermediate_size", *EXPERTS)))
    return names | EXPERTS if names & EXPERTS else names


@cache
def class_defaults() -> Mapping[str, Mapping[str, object]]:
    """Defaults of the configuration class of every `model_type` that has a row."""
    text = files("trainplan.costmodel.families").joinpath(DEFAULTS).read_text("utf-8")
    return cast("dict[str, dict[str, object]]", json.loads(text))


def decoder(config: HfConfig) -> ModelSpec:
    """The model of a file, by the line of its `model_type`, or by its fields where it has none.

    Raises:
        SpecError: A field is missing, of the wrong type or contradicts another.
        UnsupportedError: The `model_type` or a part of the file is not modelled.
    """
    if config.model_type in NOT_MODELLED:
        raise refusal(config.model_type)
    name = SAME.get(config.model_type, config.model_type)
    if name not in FAMILIES:
        return by_fields(config)
    family = FAMILIES[name]
    file = replace(config, model_type=name)
    for field in family.needs:
        alias = alias_of(file, usual_name(field), family.names.get(field))
        if alias not in file.values and alias not in file.defaults:
            raise file.lacks(field)
    for field in not_null(name):
        if field in file.values and file.values[field] is None:
            raise SpecError(f"{file.where}: '{file.path}{field}' is null: give its value")
    row = class_defaults().get(name)
    defaults = {**(OPTIONAL if row is None else {**COUNTS, **row}), **family.defaults}
    model = read(file.with_defaults(defaults), family)
    return model.model_copy(update={"model_type": config.model_type})


def notes_of(model_type: str | None) -> tuple[str, ...]:
    """What is counted of a family but not priced, or differs from its code."""
    family = FAMILIES.get(SAME.get(model_type or "", model_type or ""))
    return family.notes if family else ()


_KINDS: Final[Mapping[str, tuple[str, ...]]] = {
    "has recurrent layers of its own": ("rwkv5", "rwkv6", "rwkv7"),
    "attends to pictures in layers of their own": ("mllama_text_model", "idefics"),
    "runs its layers several times, without gradients but the last": ("hrm_text",),
    "drafts tokens for another model": ("gemma4_assistant", "gemma4_unified_assistant"),
    "reads bytes in patches": ("blt",),
    "is a vision encoder": (
        *("vit", "clip", "clip_vision_model", "siglip", "siglip_vision_model", "siglip2"),
        *("dinov2", "swin"),
    ),
    "is an encoder-decoder": (
        *("t5", "mt5", "umt5", "longt5", "bart", "mbart", "pegasus", "marian", "m2m_100"),
        *("whisper", "trocr", "vision-encoder-decoder", "florence2"),
    ),
    "is an encoder without a decoder": (
        *("bert", "roberta", "xlm-roberta", "albert", "electra", "distilbert", "deberta"),
        *("deberta-v2", "modernbert", "bert-generation", "big_bird", "camembert", "data2vec-text"),
        *("ernie", "megatron-bert", "reformer", "rembert", "roberta-prelayernorm", "roc_bert"),
        *("roformer", "xlm", "xlm-roberta-xl", "xlnet", "xmod"),
    ),
}

NOT_MODELLED: Final[Mapping[str, str]] = {
    name: what for what, names in _KINDS.items() for name in names
}
"""`model_type` -> what it is."""


def refusal(model_type: str) -> UnsupportedError:
    """The error for a `model_type` that is known and not modelled."""
    return UnsupportedError(
        f"model_type {model_type!r} {NOT_MODELLED[model_type]}, which is not modelled; "
        "give a decoder-only transformer"
    )
