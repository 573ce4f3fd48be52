"""Gemma 1 to 4: embeddings scaled, norms on both sides, then inputs of each layer's own.

Source: modeling and configuration code of transformers 5.24, of the `model_type` each; the reports
named with each.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from trainplan.costmodel.architecture import FeedForward, Mixer
from trainplan.costmodel.base import SpecError
from trainplan.costmodel.families.family import GROUPED, HEAD, NO_MLP_BIAS, Family, Fields
from trainplan.costmodel.families.layers import (
    FULL,
    SLIDING,
    count_of_layers,
    every_other,
    of_length,
)
from trainplan.costmodel.families.reader import HfConfig

GEMMA: Final[Fields] = {"scale_embeddings": True}


def _stated_pattern(config: HfConfig) -> Fields:
    """The pattern is checked where the file lists its layers, too."""
    config.integer("sliding_window_pattern", "_sliding_window_pattern")
    return {}


GEMMA_2: Final = Family(
    "modeling_gemma2.py; arXiv:2408.00118, section 2",
    model={**GEMMA, "norm_position": "both"},
    experts=None,
    names={"hidden_act": "hidden_activation"},
    flags=NO_MLP_BIAS,
    slides=every_other,
    defaults={
        "hidden_activation": "gelu_pytorch_tanh",
        "tie_word_embeddings": True,
        "sliding_window": 4096,
        "attn_logit_softcapping": 50.0,
        "final_logit_softcapping": 30.0,
    },
    needs=("head_dim", *GROUPED),
)
GEMMA_3: Final = replace(
    GEMMA_2,
    source="modeling_gemma3.py; arXiv:2503.19786, section 2",
    model={**GEMMA_2.model, **HEAD},
    slides=None,
    more=_stated_pattern,
    defaults={
        **GEMMA_2.defaults,
        **{"vocab_size": 262_208, "num_attention_heads": 8, "num_key_value_heads": 4},
        **{"head_dim": 256, "max_position_embeddings": 131_072, "rope_theta": 1_000_000.0},
        **{"attn_logit_softcapping": None, "final_logit_softcapping": None},
        "sliding_window_pattern": 6,
    },
    needs=(),
)
"""The published files of the 4B, 12B and 27B leave sizes to the class."""
GEMMA_3N_PARTS: Final[Fields] = {
    "qk_norm": "head",
    "norm_position": "both",
    "scale_embeddings": True,
}
Mixers = Sequence[Mixer]
Feeds = Sequence[FeedForward]


def _own_inputs(config: HfConfig) -> dict[str, object]:
    """Each layer's embedding of the token: its table, its projection, its gate and its norm.

    The projection of all layers at once is a slice of each.
    """
    width = config.count("hidden_size_per_layer_input")
    hidden = config.integer("hidden_size")
    if not width:
        config.ignore("vocab_size_per_layer_input")
        return {}
    layers = count_of_layers(config)
    table = config.integer("vocab_size_per_layer_input") * layers * width
    return {
        "side_products": ((hidden, width), (hidden, width), (width, hidden)),
        "layer_weights": hidden,
        "embedding_weights": table + width,
    }


def _widths(config: HfConfig) -> tuple[int, ...]:
    """Width of the MLP of every layer."""
    if not isinstance(config.values.get("intermediate_size"), list):
        return (config.integer("intermediate_size"),) * count_of_layers(config)
    widths = config.indices("intermediate_size")
    of_length(config, "intermediate_size", len(widths))
    return widths


def _gemma3n(config: HfConfig) -> Fields:
    """Four streams (AltUp), a low-rank branch (LAuReL) and inputs of each layer's own."""
    own = _own_inputs(config)
    hidden, streams = config.integer("hidden_size"), config.integer("altup_num_inputs")
    rank = config.integer("laurel_rank")
    mixed = ((hidden, streams), (streams, streams), (streams, streams**2))
    laurel = ((hidden, rank), (rank, hidden))
    inputs, weights = own.get("side_products", ()), own.get("layer_weights", 0)
    table = own.get("embedding_weights", 0)
    assert isinstance(inputs, tuple)
    assert isinstance(weights, int)
    assert isinstance(table, int)
    norms = 3  # of AltUp's router, behind LAuReL, and the scale of its correction
    config.ignore("altup_correct_scale")
    return {
        "intermediate_size": max(_widths(config)),
        "side_products": (*inputs, *mixed, *laurel),
        "layer_weights": weights + norms * hidden,
        "embedding_weights": table + 2 * (streams - 1) * hidden**2,
    }


def _shared(config: HfConfig) -> Sequence[bool]:
    """The last layers take keys and values of an earlier one."""
    count, shared = count_of_layers(config), config.count("num_kv_shared_layers")
    if shared > count:
        raise SpecError(
            f"{config.where}: 'num_kv_shared_layers' = {shared} exceeds the {count} layers"
        )
    return [i >= count - shared for i in range(count)]


def _gemma3n_each(config: HfConfig, mixers: Mixers, feeds: Feeds) -> Sequence[Fields]:
    """Layers without keys and values of their own, and their widths."""
    widths = _widths(config)
    usual = max(widths)
    return [
        ({"key_value_projections": "none"} if shared else {})
        | ({"intermediate_size": width} if width != usual else {})
        for shared, width in zip(_shared(config), widths, strict=True)
    ]


def _gemma4_mixers(config: HfConfig) -> Mixers:
    """`layer_types`, or five sliding layers to one full; the last one is full."""
    types = config.with_defaults({"layer_types": None}).texts("layer_types")
    count = count_of_layers(config)
    if types:
        of_length(config, "layer_types", len(types))
        mixers: list[Mixer] = [SLIDING if one == SLIDING else FULL for one in types]
    else:
        mixers = [FULL if (i + 1) % 6 == 0 else SLIDING for i in range(count)]
    return (*mixers[:-1], FULL)


def _gemma4(config: HfConfig) -> Fields:
    """Inputs of each layer's own."""
    config.ignore("attention_k_eq_v", "use_double_wide_mlp", "per_layer_config")
    return _own_inputs(config)


def _gemma4_unified(config: HfConfig) -> Fields:
    """Without inputs of each layer's own."""
    config.ignore("attention_k_eq_v", "per_layer_config")
    return {}


def _gemma4_each(config: HfConfig, mixers: Mixers, feeds: Feeds) -> Sequence[Fields]:
    """Full layers have wider heads, and may have keys that are their values."""
    defaults = {"attention_k_eq_v": False, "use_double_wide_mlp": False, "global_head_dim": 512}
    config = config.with_defaults(defaults | {"num_global_key_value_heads": None})
    same = config.boolean("attention_k_eq_v")
    wide = 2 * config.integer("intermediate_size") if config.boolean("use_double_wide_mlp") else 0
    changes: list[Fields] = []
    for layer, (mixer, shared) in enumerate(zip(mixers, _shared(config), strict=True)):
        one: dict[str, object] = dict(_full(config, layer, same=same) if mixer == FULL else {})
        if shared:
            one["key_value_projections"] = "none"
        if shared and wide:
            one["intermediate_size"] = wide
        changes.append(one)
    return changes


def _full(config: HfConfig, layer: int, *, same: bool) -> Fields:
    """Sizes of a full layer, as `per_layer_config` or the fields of all full layers give them."""
    section = config.with_defaults({"per_layer_config": None}).optional_section("per_layer_config")
    fields: dict[str, object] = {"key_value_projections": "keys"} if same else {}
    if section is None:
        fields["head_dim"] = config.integer("global_head_dim")
        groups = config.optional_integer("num_global_key_value_heads")
        return fields | ({"num_key_value_heads": groups} if same and groups else {})
    names = [name for name in section.values if name.isdecimal() and int(name) == layer]
    own = section.section(names[0]) if names else None
    known = ("head_dim", "num_key_value_heads")
    if own is None:
        return fields
    values: Mapping[str, object] = own.values
    for name in values:
        if name not in known:
            raise SpecError(f"{config.where}: '{own.path}{name}' is not modelled")
    return fields | {name: own.integer(name) for name in known if name in values}


GEMMAS: Final[Mapping[str, Family]] = {
    "gemma2": GEMMA_2,
    "gemma3_text": GEMMA_3,
    "gemma3n_text": Family(
        "modeling_gemma3n.py",
        model=GEMMA_3N_PARTS,
        more=_gemma3n,
        each=_gemma3n_each,
        ignores=("altup_active_idx", "altup_coef_clip", "activation_sparsity_pattern"),
        notes=("AltUp's streams are counted, what they move is not priced",),
    ),
    "gemma4_text": Family(
        "modeling_gemma4.py",
        model=GEMMA_3N_PARTS,
        mixers=_gemma4_mixers,
        more=_gemma4,
        each=_gemma4_each,
        off=("enable_moe_block",),
        experts_if="enable_moe_block",
        ignores=("use_bidirectional_attention", "global_head_dim", "num_global_key_value_heads"),
    ),
    "gemma4_unified_text": Family(
        "modeling_gemma4_unified.py",
        model=GEMMA_3N_PARTS,
        mixers=_gemma4_mixers,
        more=_gemma4_unified,
        each=_gemma4_each,
        ignores=("use_bidirectional_attention", "global_head_dim", "num_global_key_value_heads"),
    ),
}
"""`model_type` -> what its code fixes."""
