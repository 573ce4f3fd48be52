"""Decoders with experts and plain or latent attention, by `model_type`.

Source: modeling and configuration code of transformers 5.24, of the `model_type` each; the reports
named with each.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from trainplan.costmodel.architecture import LowRankSpec, Mixer, MoeSpec
from trainplan.costmodel.base import UnsupportedError
from trainplan.costmodel.families.aliases import activation
from trainplan.costmodel.families.experts import ALIKE
from trainplan.costmodel.families.family import (
    GROUPED,
    HEAD,
    NO_BIASES,
    NO_MLP_BIAS,
    PARAMETER,
    QKV,
    Family,
    Fields,
)
from trainplan.costmodel.families.generic_config import COUNTS
from trainplan.costmodel.families.layers import (
    count_of_layers,
    every_other,
    listed,
    named,
    of_length,
    unrotated,
)
from trainplan.costmodel.families.reader import HfConfig
from trainplan.costmodel.families.tables.dense import WINDOW_OF_QWEN, stated_window

SIGMOID: Final[Fields] = {"router_score_function": "sigmoid"}
"""Sigmoid scores and a bias that balances the experts (arXiv:2412.19437, section 2.1.2)."""


def _ernie_dense(config: HfConfig) -> Sequence[bool]:
    """Experts from a first to a last layer, in every n-th."""
    count = count_of_layers(config)
    first = config.count("moe_layer_start_index")
    last = config.with_defaults({"moe_layer_end_index": None}).values.get("moe_layer_end_index")
    config.ignore("moe_layer_end_index")
    end = count - 1 if not isinstance(last, int) or last < 0 else last
    step = config.integer("moe_layer_interval")
    return [not (first <= i <= end and (i + 1) % step == 0) for i in range(count)]


def _llama4_dense(config: HfConfig) -> Sequence[bool]:
    """Experts in `moe_layers`, or in every n-th layer."""
    count = count_of_layers(config)
    listed = config.with_defaults({"moe_layers": None})
    if listed.has("moe_layers"):
        config.ignore("interleave_moe_layer_step")
        sparse = set(listed.indices("moe_layers"))
        return [i not in sparse for i in range(count)]
    step = config.integer("interleave_moe_layer_step")
    return [(i + 1) % step != 0 for i in range(count)]


def _llama4_shared(config: HfConfig) -> Fields:
    """One shared expert as wide as a routed one."""
    return {"shared_expert_intermediate_size": config.integer("intermediate_size")}


def _llama4_mixers(config: HfConfig) -> Sequence[Mixer]:
    """`layer_types`, or chunks in the layers that `no_rope_layers` (1: rotated) rotates."""
    words = listed(config, "layer_types")
    known: Mapping[str, Mixer] = {
        "chunked_attention": "chunked_attention",
        "full_attention": "full_attention",
    }
    if words:
        return named(config, words, known, "layer_types")
    chunked = config.with_defaults({"attention_chunk_size": 8192}).optional_integer(
        "attention_chunk_size"
    )
    rotated = config.with_defaults({"no_rope_layers": None}).indices("no_rope_layers")
    period = config.with_defaults({"no_rope_layer_interval": 4}).integer("no_rope_layer_interval")
    count = count_of_layers(config)
    if rotated:
        of_length(config, "no_rope_layers", len(rotated))
    else:
        rotated = tuple(int((i + 1) % period != 0) for i in range(count))
    return ["chunked_attention" if one and chunked else "full_attention" for one in rotated]


def _llama4(config: HfConfig) -> Fields:
    """Tokens of a chunk, where layers have some, and layers without positions."""
    if "chunked_attention" not in _llama4_mixers(config):
        return unrotated(config)
    chunk = config.with_defaults({"attention_chunk_size": 8192}).integer("attention_chunk_size")
    return {"attention_chunk_size": chunk, **unrotated(config)}


def _listed(config: HfConfig, name: str) -> frozenset[int]:
    """Layers a file lists, as numbers or as one string with commas."""
    value = config.values.get(name)
    if not isinstance(value, str):
        return frozenset(config.indices(name))
    config.ignore(name)
    words = value.split(",")
    if not all(word.strip().isdecimal() for word in words):
        raise config.wrong(name, value, "list of layers")
    return frozenset(int(word) for word in words)


def _step3_dense(config: HfConfig) -> Sequence[bool]:
    """Experts in `moe_layers_enum`."""
    sparse, count = _listed(config, "moe_layers_enum"), count_of_layers(config)
    return [i not in sparse for i in range(count)]


def _step3(config: HfConfig) -> Fields:
    """Queries through a low rank, whose norm has a weight for each of its numbers."""
    rank = config.integer("share_q_dim")
    return {"low_rank": LowRankSpec(query_rank=rank), "layer_weights": rank}


def _nowhere_dense(config: HfConfig) -> Sequence[bool]:
    """Experts in every layer."""
    return [False] * count_of_layers(config)


def _qwen_dense(config: HfConfig) -> Sequence[bool]:
    """Experts in every `decoder_sparse_step`-th layer, or in all but the first that are listed."""
    period, only = config.integer("decoder_sparse_step"), set(config.indices("mlp_only_layers"))
    if only != set(range(len(only))) or (only and period != 1):
        raise UnsupportedError(
            f"{config.where}: 'mlp_only_layers' is modelled for the first layers only, "
            "and only with 'decoder_sparse_step' = 1"
        )
    return [i in only or (i + 1) % period != 0 for i in range(count_of_layers(config))]


def _alternate_lower_layers(config: HfConfig) -> Sequence[bool]:
    """The first of every two layers below `max_window_layers`, which are those that slide."""
    end = config.count("max_window_layers")
    return [i % 2 == 0 and i < end for i in range(count_of_layers(config))]


def _dbrx(config: HfConfig) -> Fields:
    """Attention and experts, which have sections of their own."""
    attention = config.section("attn_config").with_defaults({"rope_theta": 1e4, "kv_n_heads": 1})
    defaults = {"moe_num_experts": 4, "moe_top_k": 1, "ffn_hidden_size": 3584, "ffn_act_fn": None}
    experts = config.section("ffn_config").with_defaults(defaults)
    named, width = experts.optional_section("ffn_act_fn"), experts.integer("ffn_hidden_size")
    return {
        "num_key_value_heads": attention.integer("kv_n_heads"),
        "rope_theta": attention.number("rope_theta"),
        "intermediate_size": width,
        "activation": activation(named, "name") if named else "silu",
        "mixer": "full_attention",
        "moe": MoeSpec(
            num_experts=experts.integer("moe_num_experts"),
            num_experts_per_tok=experts.integer("moe_top_k"),
            moe_intermediate_size=width,
        ),
    }


QWEN_MOE: Final[Fields] = {
    **WINDOW_OF_QWEN,
    **{"decoder_sparse_step": 1, "mlp_only_layers": None, "norm_topk_prob": False},
}
BAILING: Final = Family(
    "inclusionAI/Ling, models/modeling_bailing_moe.py and modeling_bailing_moe_v2.py",
    defaults={"num_key_value_heads": None, "head_dim": None, **COUNTS},
    flags={"use_qkv_bias": QKV, "use_qk_norm": HEAD},
    more_experts=lambda config: {
        "router_bias": config.with_defaults({"moe_router_enable_expert_bias": False}).boolean(
            "moe_router_enable_expert_bias"
        )
    },
    off=("use_bias", "norm_head", "use_sliding_window"),
    ignores=("moe_shared_expert_intermediate_size", "multi_gate", "norm_softmax"),
)
"""Ling and Ring."""

MIXTURES: Final[Mapping[str, Family]] = {
    "bailing_moe": BAILING,
    "bailing_moe_v2": BAILING,
    "dbrx": Family(
        "modeling_dbrx.py; databricks/dbrx, README",
        model={"norm": "layernorm", "norm_weights": "scale", "norm_eps": 1e-5},
        experts=None,
        names={
            **{"num_hidden_layers": "n_layers", "hidden_size": "d_model"},
            **{"num_attention_heads": "n_heads", "max_position_embeddings": "max_seq_len"},
        },
        flags=NO_BIASES,
        more=_dbrx,
    ),
    "ernie4_5_moe": Family(
        "modeling_ernie4_5_moe.py",
        experts=PARAMETER,
        dense=_ernie_dense,
        off=("use_bias",),
        ignores=("moe_norm_min",),
    ),
    "gpt_oss": Family(
        "modeling_gpt_oss.py; arXiv:2508.10925, section 2",
        model={"attention_sinks": True},
        experts={**ALIKE, "router_bias": True, "expert_bias": True},
        dense=_nowhere_dense,
        flags=NO_MLP_BIAS,
        slides=every_other,
        defaults={
            **{"attention_bias": True, "sliding_window": 128, "swiglu_limit": 7.0},
            **{"rms_norm_eps": 1e-5, "rope_theta": 150_000.0},
        },
        needs=("num_local_experts", "head_dim", *GROUPED),
    ),
    "llama4_text": Family(
        "modeling_llama4.py: norms of queries and keys have no weights",
        names={
            "intermediate_size": "intermediate_size_mlp",
            "moe_intermediate_size": "intermediate_size",
        },
        experts=SIGMOID,
        mixers=_llama4_mixers,
        more=_llama4,
        dense=_llama4_dense,
        more_experts=_llama4_shared,
        flags={"use_qk_norm": {}, "attn_temperature_tuning": {}},
        ignores=("floor_scale", "attn_scale"),
    ),
    "mixtral": Family(
        "arXiv:2401.04088, section 2: softmax over the top k",
        experts=ALIKE,
        dense=_nowhere_dense,
        flags=NO_BIASES,
        defaults={"rms_norm_eps": 1e-5, "rope_theta": 1_000_000.0},
        needs=("num_local_experts", *GROUPED),
    ),
    "qwen2_moe": Family(
        "modeling_qwen2_moe.py; arXiv:2407.10671, section 2.2.2",
        experts={"router_score_function": "softmax", "shared_expert_gate": True},
        dense=_qwen_dense,
        flags={**NO_BIASES, "qkv_bias": QKV},
        slides=_alternate_lower_layers,
        more=stated_window,
        defaults={**QWEN_MOE, "qkv_bias": True},
        needs=(
            *("num_experts", "moe_intermediate_size", "shared_expert_intermediate_size"),
            *("intermediate_size", *GROUPED),
        ),
    ),
    "qwen3_moe": Family(
        "modeling_qwen3_moe.py; arXiv:2505.09388, section 2",
        model=HEAD,
        experts={"router_score_function": "softmax", "shared_expert_intermediate_size": 0},
        dense=_qwen_dense,
        flags=NO_MLP_BIAS,
        defaults=QWEN_MOE,
        needs=("num_experts", "moe_intermediate_size", "intermediate_size", *GROUPED),
    ),
    "step3_text": Family(
        "arXiv:2507.19427, section 4; vllm-project/vllm, models/step3_text.py",
        names={
            "num_key_value_heads": "num_attention_groups",
            "shared_expert_intermediate_size": "share_expert_dim",
            "max_position_embeddings": "max_position_embedding",
            "norm_topk_prob": "norm_expert_weight",
        },
        defaults=COUNTS,
        needs=("head_dim", "num_key_value_heads"),
        dense=_step3_dense,
        more=_step3,
        off=("use_moe_router_bias",),
        ignores=("max_seq_len", "moe_every_n_layer", "moe_layer_offset"),
    ),
}
"""`model_type` -> what its code fixes."""
