"""Write class_defaults.json and not_null.json: what classes say of fields left out, or null.

Sizes are left out, since a file without one is refused, but for the longest sequence where
positions have no table. Run with transformers: python -m tests.oracles.record_class_defaults
"""

import json
from pathlib import Path
from typing import Any, get_args

from tests.oracles.decoder_configs import CONFIG_MAPPING
from trainplan.costmodel import families
from trainplan.costmodel.families.aliases import ALIASES, is_harmless
from trainplan.costmodel.families.registry import DEFAULTS, FAMILIES, NOT_NULL

PATH = Path(families.__file__).parent / DEFAULTS
LONGEST = "max_position_embeddings"
OPTIONAL = ("head_dim", "num_key_value_heads")
SIZES = (
    *("num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads"),
    *("vocab_size", "num_experts", "num_experts_per_tok", "moe_intermediate_size"),
    *OPTIONAL,
)
RANKS = ("kv_lora_rank", "q_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
OF_THE_LIBRARY = ("model_type", "transformers_version", "rope_parameters", "rope_scaling")
LIBRARY = ("base_", "sub_", "attribute_", "_auto", "extra_")


def names(field):
    return (field, *ALIASES[field])


def defaults(model_type):
    """Fields of one class with a plain default, sizes only where it is null."""
    fields = CONFIG_MAPPING[model_type].__dataclass_fields__
    learned = FAMILIES[model_type].model.get("position_embedding") == "learned"
    sizes = {*RANKS, *(name for size in SIZES for name in names(size))}
    sizes |= set(names(LONGEST)) if learned else set()
    found = {
        name: field.default
        for name, field in fields.items()
        if isinstance(field.default, bool | int | float | str | None)
        and not (name in sizes and field.default is not None)
        and not (is_harmless(name) or name in OF_THE_LIBRARY or name.startswith(LIBRARY))
    }
    absent = (size for size in OPTIONAL if not any(name in fields for name in names(size)))
    return found | dict.fromkeys(absent)


def may_be_null(kind):
    """Is None one of the types of a field?"""
    return kind in (type(None), Any) or any(may_be_null(one) for one in get_args(kind))


def not_null(model_type):
    """Fields of one class, by all their names, that are not null."""
    kind, section = CONFIG_MAPPING[model_type], FAMILIES[model_type].section
    kind = kind.sub_configs[section] if section else kind
    types = {name: field.type for name, field in kind.__dataclass_fields__.items()}
    others = {name: types[own] for name, own in kind.attribute_map.items() if own in types}
    return sorted(
        name
        for name, one in (others | types).items()
        if not (may_be_null(one) or is_harmless(name) or name in OF_THE_LIBRARY)
        and not name.startswith(LIBRARY)
    )


def main():
    lines = (
        f"  {json.dumps(model_type)}: {json.dumps(defaults(model_type))}"
        for model_type in sorted(FAMILIES)
        if model_type in CONFIG_MAPPING and not FAMILIES[model_type].defaults
    )
    PATH.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    known = sorted(one for one in FAMILIES if one in CONFIG_MAPPING)
    lines = (f"  {json.dumps(one)}: {json.dumps(not_null(one))}" for one in known)
    PATH.with_name(Path(NOT_NULL).name).write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
