"""Decoders of models that see, hear or think, by the `model_type` of their section.

Source: modeling and configuration code of transformers 5.24, of the `model_type` each.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from trainplan.costmodel.architecture import Mixer
from trainplan.costmodel.families.family import BALANCED, HEAD, Family, Fields
from trainplan.costmodel.families.layers import MIXERS, SLIDING, count_of_layers, named, of_length
from trainplan.costmodel.families.reader import HfConfig
from trainplan.costmodel.families.tables.layered import Feeds, Mixers


def _step_words(config: HfConfig, name: str) -> tuple[str, ...]:
    """Of the layers; published files list those of the modules that predict further behind."""
    words = config.with_defaults({name: None}).texts(name)[: count_of_layers(config)]
    if words:
        of_length(config, name, len(words))
    return words


def _step_mixers(config: HfConfig) -> Sequence[Mixer]:
    usual = ("full_attention",) * count_of_layers(config)
    return named(config, _step_words(config, "layer_types") or usual, MIXERS, "layer_types")


def _step_dense(config: HfConfig) -> Sequence[bool]:
    """`mlp_layer_types`, or all but those that `moe_layers_enum` has, or the first three."""
    count = count_of_layers(config)
    if words := _step_words(config, "mlp_layer_types"):
        return [word == "dense" for word in words]
    listed = config.with_defaults({"moe_layers_enum": None}).optional_text("moe_layers_enum")
    if listed is None:
        return [i < 3 for i in range(count)]
    sparse = listed.replace(" ", "").split(",")
    return [str(i) not in sparse for i in range(count)]


def _step(config: HfConfig) -> Fields:
    """One base frequency, where published files list that of every layer."""
    base = config.values.get("rope_theta")
    if not isinstance(base, list):
        return {}
    config.ignore("rope_theta", "partial_rotary_factors", "rope_scaling")
    return {"rope_theta": base[0]}


def _step_heads(config: HfConfig, mixers: Mixers, feeds: Feeds) -> Sequence[Fields]:
    """Sliding layers have heads of their own number."""
    name = "num_sliding_attention_heads"
    older = config.with_defaults({"attention_other_setting": None})
    other = older.optional_section("attention_other_setting")
    heads = config.with_defaults({name: None}).optional_integer(name)
    heads = other.integer("num_attention_heads") if other else heads
    if heads in (None, config.integer("num_attention_heads")):
        return []
    return [{"num_attention_heads": heads} if one == SLIDING else {} for one in mixers]


INSIDE: Final[Mapping[str, Family]] = {
    "step3p5": Family(
        "modeling_step3p7.py",
        model={**HEAD, "attention_output_gate": "head"},
        experts=BALANCED,
        names={"shared_expert_intermediate_size": "share_expert_dim"},
        mixers=_step_mixers,
        dense=_step_dense,
        more=_step,
        each=_step_heads,
        off=("attention_bias", "mlp_bias"),
        ignores=(
            *("swiglu_limits", "swiglu_limits_shared", "mtp_layer_types"),
            *("mtp_mlp_layer_types", "per_layer_config"),
        ),
    ),
}
"""`model_type` -> what its code fixes."""
