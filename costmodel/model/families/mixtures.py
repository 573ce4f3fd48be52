"""Decoders with experts and plain or latent attention, by `model_type`.

Source: modeling and configuration code of transformers 5.24, of the `model_type` each; the reports
named with each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from trainplan.costmodel.architecture import LowRankSpec, Mixer
from trainplan.costmodel.model.families.family import BALANCED, HEAD, QKV, Family, Fields
from trainplan.costmodel.model.families.placement import count_of_layers, listed, named, of_length
from trainplan.costmodel.model.families.plain_parts import unrotated
from trainplan.costmodel.model.families.reader import HfConfig

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


BAILING: Final = Family(
    "inclusionAI/Ling, models/modeling_bailing_moe.py and modeling_bailing_moe_v2.py",
    defaults={"num_key_value_heads": None, "head_dim": None},
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
    "aria_text": Family("arXiv:2410.05993, section 3", off=("mlp_bias",)),
    "bailing_moe": BAILING,
    "bailing_moe_v2": BAILING,
    "dots1": Family("arXiv:2506.05767, section 2", model=HEAD, experts=BALANCED),
    "ernie4_5_moe": Family(
        "modeling_ernie4_5_moe.py",
        experts={"router_bias": True},
        dense=_ernie_dense,
        off=("use_bias",),
        ignores=("moe_norm_min",),
    ),
    "exaone_moe": Family(
        "modeling_exaone_moe.py",
        model=HEAD,
        experts=BALANCED,
        flags={"attention_bias": {}},
        full_unrotated=True,
    ),
    "flex_olmo": Family(
        "arXiv:2507.07024, section 3", model={"norm_position": "post", "qk_norm": "full"}
    ),
    "flint": Family("modeling_flint.py", model={**HEAD, "attention_sinks": True}),
    "glm4_moe": Family(
        "arXiv:2508.06471, section 2.1",
        experts=BALANCED,
        flags={"attention_bias": QKV, "use_qk_norm": HEAD},
    ),
    "glm4_moe_lite": Family("modeling_glm4_moe_lite.py", experts=BALANCED),
    "granitemoe": Family("modeling_granitemoe.py"),
    "granitemoe_swa": Family("modeling_granitemoe_swa.py", model={"attention_sinks": True}),
    "granitemoeshared": Family("modeling_granitemoeshared.py"),
    "hy_v3": Family("modeling_hy_v3.py", model=HEAD, experts=BALANCED, off=("mlp_bias",)),
    "kolibri1": Family(
        "modeling_kolibri1.py", model={**HEAD, "norm_position": "both"}, experts=BALANCED
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
    "mellum": Family("modeling_mellum.py", model=HEAD),
    "minimax_m2": Family("modeling_minimax_m2.py", model={"qk_norm": "full"}, experts=BALANCED),
    "olmoe": Family("arXiv:2409.02060, section 2", model={"qk_norm": "full"}),
    "phimoe": Family(
        "modeling_phimoe.py",
        model={"norm": "layernorm"},
        flags={"lm_head_bias": {"head_bias": True}},
    ),
    "sarvam_mla": Family("SarvamMLAConfig, DeepseekV3ForCausalLM", experts=BALANCED),
    "sarvam_moe": Family(
        "SarvamMoeConfig, Glm4MoeForCausalLM",
        experts=BALANCED,
        flags={"attention_bias": QKV, "use_qk_norm": HEAD},
    ),
    "solar_open": Family("modeling_solar_open.py", experts=BALANCED, flags={"attention_bias": QKV}),
    "step3_text": Family(
        "arXiv:2507.19427, section 4; vllm-project/vllm, models/step3_text.py",
        names={
            "num_key_value_heads": "num_attention_groups",
            "shared_expert_intermediate_size": "share_expert_dim",
            "max_position_embeddings": "max_position_embedding",
            "norm_topk_prob": "norm_expert_weight",
        },
        dense=_step3_dense,
        more=_step3,
        off=("use_moe_router_bias",),
        ignores=("max_seq_len", "moe_every_n_layer", "moe_layer_offset"),
    ),
}
"""`model_type` -> what its code fixes."""
