"""Decoders whose layers differ in their sizes, by `model_type`.

Source: modeling and configuration code of transformers 5.24, of the `model_type` each; the reports
named with each.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from trainplan.costmodel.architecture import FeedForward, Mixer
from trainplan.costmodel.families.family import BALANCED, HEAD, PARAMETER, QKV, Family, Fields
from trainplan.costmodel.families.layers import SLIDING, count_of_layers, dense_layers, of_length
from trainplan.costmodel.families.reader import HfConfig

Mixers = Sequence[Mixer]
Feeds = Sequence[FeedForward]


def _third_norm(config: HfConfig, mixers: Mixers, feeds: Feeds) -> Sequence[Fields]:
    """A norm behind the experts, in the layers that have some."""
    norm = {"layer_weights": config.integer("hidden_size")}
    return [norm if feed == "moe" else {} for feed in feeds]


def _gate_bias(config: HfConfig) -> Fields:
    """A number per head added to the gate."""
    return {"layer_weights": config.integer("num_attention_heads")}


def _every_fourth_full(config: HfConfig) -> Sequence[bool]:
    period = config.integer("global_attn_every_n_layers")
    return [(i + 1) % period != 0 for i in range(count_of_layers(config))]


def _ignored_period(config: HfConfig) -> Fields:
    config.ignore("global_attn_every_n_layers")
    return {}


def _dense_width(name: str, config: HfConfig) -> Fields:
    """Width of the dense layers where they have one of their own."""
    width = config.with_defaults({name: None}).optional_integer(name)
    return {"intermediate_size": width} if width else {}


def _cohere2_moe(config: HfConfig) -> Fields:
    norm = {} if config.has("rms_norm_eps") else {"norm": "layernorm", "norm_weights": "scale"}
    return {**norm, **_dense_width("prefix_dense_intermediate_size", config)}


def _cohere2_slides(config: HfConfig) -> Sequence[bool]:
    """A pattern of their own for the leading dense layers, then one for the others."""
    first = config.with_defaults({"first_k_dense_replace": 0}).count("first_k_dense_replace")
    head = config.integer("prefix_dense_sliding_window_pattern")
    period, rest = config.integer("sliding_window_pattern"), count_of_layers(config) - first
    return [
        *((i + 1) % head != 0 for i in range(first)),
        *((i + 1) % period != 0 for i in range(rest)),
    ]


def _hunyuan_experts(config: HfConfig) -> Fields:
    """One shared MLP, as wide as `num_shared_expert` of the dense one."""
    shared = config.with_defaults({"num_shared_expert": 1}).count("num_shared_expert")
    return {"shared_expert_intermediate_size": shared * config.integer("intermediate_size")}


def _laguna(config: HfConfig) -> Fields:
    """A gate for each head (true, `per-head`) or each element."""
    value = config.values.get("gating", True)
    config.ignore("gating")
    each = value is True or value == "per-head"
    return {"attention_output_gate": "head" if each else "elementwise"}


def _laguna_each(config: HfConfig, mixers: Mixers, feeds: Feeds) -> Sequence[Fields]:
    name = "num_attention_heads_per_layer"
    heads = config.with_defaults({name: None}).indices(name)
    usual = config.integer("num_attention_heads")
    if heads:
        of_length(config, name, len(heads))
    return [{} if one == usual else {"num_attention_heads": one} for one in heads]


def _laguna_dense(config: HfConfig) -> Sequence[bool]:
    """The first layer is dense unless the file says."""
    if config.has("mlp_layer_types"):
        return dense_layers(config)
    return [i == 0 for i in range(count_of_layers(config))]


def _mimo(config: HfConfig) -> Fields:
    return {"value_head_dim": config.integer("v_head_dim")}


def _mimo_slides(config: HfConfig) -> Sequence[bool]:
    """Published files list `hybrid_layer_pattern` (1: slides); else every sixth layer is full."""
    pattern = config.with_defaults({"hybrid_layer_pattern": None}).indices("hybrid_layer_pattern")
    if pattern:
        of_length(config, "hybrid_layer_pattern", len(pattern))
        return [bool(one) for one in pattern]
    return [bool(i and (i + 1) % 6) for i in range(count_of_layers(config))]


def _mimo_each(config: HfConfig, mixers: Mixers, feeds: Feeds) -> Sequence[Fields]:
    """Sliding layers have twice the key-value heads, and sinks."""
    slides = {
        "num_key_value_heads": 2 * config.integer("num_key_value_heads"),
        "attention_sinks": True,
    }
    return [slides if mixer == SLIDING else {} for mixer in mixers]


def _mimo_dense(config: HfConfig) -> Sequence[bool]:
    """The first layer is dense unless the file says."""
    stated = config.has("mlp_layer_types") or config.has("moe_layer_freq")
    return dense_layers(config) if stated else [i == 0 for i in range(count_of_layers(config))]


def _longcat(config: HfConfig) -> Fields:
    """Two layers of ours for one of theirs, which has two attentions and two MLPs."""
    return {"num_hidden_layers": 2 * config.integer("num_layers")}


def _longcat_feeds(config: HfConfig) -> Feeds:
    return ("moe", "mlp") * config.integer("num_layers")


def _longcat_full(config: HfConfig) -> Mixers:
    return ["full_attention" for _ in range(2 * config.integer("num_layers"))]


def _longcat_experts(config: HfConfig) -> Fields:
    """The first MLP stands beside the experts; experts that return their input have no weights."""
    return {
        "shared_expert_intermediate_size": config.integer("ffn_hidden_size"),
        "num_zero_experts": config.count("zero_expert_num"),
    }


LAYERED: Final[Mapping[str, Family]] = {
    "afmoe": Family(
        "arXiv:2602.17004, section 2",
        model={**HEAD, "norm_position": "both", "attention_output_gate": "elementwise"},
        experts={**BALANCED, **PARAMETER},
        off=("attention_bias",),
        slides=_every_fourth_full,
        more=_ignored_period,
    ),
    "axk1": Family("modeling_axk1.py", experts=BALANCED, each=_third_norm),
    "beam": Family(
        "modeling_beam.py",
        model={**HEAD, "norm_position": "both", "attention_output_gate": "elementwise"},
        experts=BALANCED,
        more=_gate_bias,
        off=("attention_bias",),
    ),
    "cohere2_moe": Family(
        "modeling_cohere2_moe.py",
        model={"parallel_residual": True, "shared_norm": True},
        slides=_cohere2_slides,
        full_unrotated=True,
        more=_cohere2_moe,
        names={"scoring_func": "expert_selection_fn"},
        ignores=(
            *("shared_expert_combination_strategy", "prefix_dense_sliding_window_pattern"),
            *("sliding_window_pattern", "prefix_dense_intermediate_size"),
        ),
    ),
    "hunyuan_v1_moe": Family(
        "modeling_hunyuan_v1_moe.py; arXiv:2411.02265, section 2",
        model=HEAD,
        more_experts=_hunyuan_experts,
        of_all=("moe_topk", "moe_intermediate_size", "num_shared_expert"),
    ),
    "laguna": Family(
        "modeling_laguna.py",
        model=HEAD,
        experts={**BALANCED, **PARAMETER},
        dense=_laguna_dense,
        more=_laguna,
        each=_laguna_each,
        off=("moe_apply_router_weight_on_input", "attention_bias"),
        ignores=("moe_router_logit_softcapping",),
    ),
    "longcat_flash": Family(
        "arXiv:2509.01322, section 2",
        names={"intermediate_size": "ffn_hidden_size"},
        mixers=_longcat_full,
        feed_forwards=_longcat_feeds,
        more=_longcat,
        experts={"router_bias": True},
        more_experts=_longcat_experts,
    ),
    "mimo_v2_flash": Family(
        "arXiv:2601.02780, section 2",
        experts=BALANCED,
        flags={"attention_bias": QKV},
        slides=_mimo_slides,
        dense=_mimo_dense,
        more=_mimo,
        each=_mimo_each,
    ),
    "minimax_m3_vl_text": Family(
        "modeling_minimax_m3_vl.py",
        model={**HEAD, "activation": "silu"},
        experts=BALANCED,
        more=lambda config: _dense_width("dense_intermediate_size", config),
        more_experts=lambda config: {
            "moe_intermediate_size": config.integer("intermediate_size"),
            "shared_expert_intermediate_size": config.count("shared_intermediate_size"),
        },
        ignores=(
            *("rotary_dim", "swiglu_alpha", "index_n_heads", "index_head_dim"),
            *("index_block_size", "index_topk_blocks", "index_local_blocks"),
        ),
    ),
}
"""`model_type` -> what its code fixes."""
