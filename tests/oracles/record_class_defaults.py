"""Write class_defaults.json: what configuration classes say of fields their files leave out.

Sizes are left out, since a file without one is refused, but for the longest sequence where
positions have no table. Run with transformers: python -m tests.oracles.record_class_defaults
"""

import json
from pathlib import Path

from tests.oracles.decoder_configs import CONFIG_MAPPING
from trainplan.costmodel import families
from trainplan.costmodel.families.aliases import ALIASES, is_harmless
from trainplan.costmodel.families.registry import DEFAULTS, FAMILIES

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


def main():
    lines = (
        f"  {json.dumps(model_type)}: {json.dumps(defaults(model_type))}"
        for model_type in sorted(FAMILIES)
        if model_type in CONFIG_MAPPING and not FAMILIES[model_type].defaults
    )
    PATH.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
