"""Latent attention and rotary positions, in the spelling of every transformers version."""

from dataclasses import dataclass

from trainplan.costmodel.architecture import MlaSpec, RopeScaling
from trainplan.costmodel.base import UnsupportedError
from trainplan.costmodel.families.reader import HfConfig

SCALINGS = {
    "linear": "linear",
    "dynamic": "dynamic",
    "yarn": "yarn",
    "llama3": "llama3",
    "longrope": "longrope",
    "su": "longrope",
    "proportional": "proportional",
    "mrope": "mrope",
}
"""Spelling in `config.json` -> kind. Source: transformers `modeling_rope_utils.py`."""

LAYER_KINDS = (
    *("full_attention", "sliding_attention", "indexed_attention", "main"),
    *("hybrid", "hybrid_sliding"),
)
"""Kinds of layer with settings of their own: those of the first that is there count."""
WITHOUT_FACTOR = ("proportional", "mrope")
"""Kinds that rotate otherwise and stretch nothing unless they say so (Gemma 4, Qwen2-VL)."""
NUMBERS = (
    "low_freq_factor",
    "high_freq_factor",
    "beta_fast",
    "beta_slow",
    "mscale",
    "mscale_all_dim",
)
OPTIONAL = ("factor", "original_max_position_embeddings", *NUMBERS, "truncate")


@dataclass(frozen=True, slots=True)
class Rotary:
    """Base frequency, rotated part of a head, and scaling to longer sequences."""

    theta: float
    partial_factor: float
    scaling: RopeScaling | None


def rotary(
    config: HfConfig, theta: str = "rope_theta", partial: str = "partial_rotary_factor"
) -> Rotary:
    """Read the rotary settings; `theta` and `partial` are the family's names for them.

    transformers 5 saves them in `rope_parameters`, one object per layer kind where they differ.
    """
    new = config.with_defaults({"rope_parameters": None}).optional_section("rope_parameters")
    for kind in LAYER_KINDS:
        if new and new.has(kind):
            new = new.section(kind)
    old = config.with_defaults({"rope_scaling": None}).optional_section("rope_scaling")
    return Rotary(
        theta=new.number("rope_theta") if new and new.has("rope_theta") else config.number(theta),
        partial_factor=(
            new.number("partial_rotary_factor")
            if new and new.has("partial_rotary_factor")
            else config.number(partial)
        ),
        scaling=_scaling(config, old or new),
    )


def _scaling(config: HfConfig, section: HfConfig | None) -> RopeScaling | None:
    if section is None:
        return None
    section = section.with_defaults({"rope_type": "default"} | dict.fromkeys(OPTIONAL))
    kind = section.text("rope_type", "type")
    if kind == "default":
        return None
    if kind not in SCALINGS:
        raise UnsupportedError(
            f"{config.where}: rope scaling '{kind}' is not modelled; known: {', '.join(SCALINGS)}"
        )
    original = "original_max_position_embeddings"
    return RopeScaling.model_validate(
        {
            "rope_type": SCALINGS[kind],
            "factor": _factor(config, section, SCALINGS[kind]),
            original: section.optional_integer(original),
            **{name: section.optional_number(name) for name in NUMBERS},
            "truncate": section.optional_boolean("truncate"),
        }
    )


def _factor(config: HfConfig, section: HfConfig, kind: str) -> float:
    """The stretch; longrope gives it as new length over old (transformers does the same)."""
    factor = section.optional_number("factor")
    if factor is not None:
        return factor
    if kind in WITHOUT_FACTOR:
        return 1.0
    if kind != "longrope":
        raise section.lacks("factor")
    holder = config if config.has("original_max_position_embeddings") else section
    original = holder.integer("original_max_position_embeddings")
    return config.integer("max_position_embeddings") / original


def latent_attention(config: HfConfig) -> MlaSpec:
    """The ranks and head parts of multi-head latent attention."""
    widths = ("kv_lora_rank", "qk_nope_head_dim", "v_head_dim")
    return MlaSpec(
        q_lora_rank=config.with_defaults({"q_lora_rank": None}).optional_integer("q_lora_rank"),
        qk_rope_head_dim=config.count("qk_rope_head_dim"),
        **{name: config.integer(name) for name in widths},
    )
