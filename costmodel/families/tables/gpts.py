"""Dense decoders with LayerNorm: GPTs and their kin, by `model_type`.

Source: modeling and configuration code of transformers 5.24, of the `model_type` each; the reports
named with each.
"""

from collections.abc import Mapping
from typing import Final

from trainplan.costmodel.families.aliases import alias_of
from trainplan.costmodel.families.family import LINEAR, NO_BIASES, NO_MLP_BIAS, Family, Fields
from trainplan.costmodel.families.layers import count_of_layers, listed
from trainplan.costmodel.families.reader import HfConfig
from trainplan.costmodel.families.tables.dense import plain

LAYER_NORM: Final[Fields] = {"norm": "layernorm"}
BIASED: Final[Fields] = {**LAYER_NORM, **LINEAR, "gated_mlp": False}
"""A GPT: LayerNorm, biases on all linear layers, two products in the MLP."""
ONE_NORM: Final[Fields] = {"parallel_residual": True, "shared_norm": True}
GPT_J: Final[Fields] = {
    **LAYER_NORM,
    **ONE_NORM,
    **{"gated_mlp": False, "mlp_bias": True, "head_bias": True},
}
COHERE: Final[Fields] = {**LAYER_NORM, **ONE_NORM, "norm_weights": "scale"}


def _rotated_part(config: HfConfig) -> Fields:
    """The share of a head that `rotary_dim` rotates."""
    heads, hidden = config.integer("n_head"), config.integer("n_embd")
    rotated = config.with_defaults({"rotary_dim": None}).optional_integer("rotary_dim")
    return {"partial_rotary_factor": min(1.0, rotated * heads / hidden) if rotated else 1.0}


def _normed_heads(config: HfConfig) -> Fields:
    """LayerNorm with a bias on queries and keys."""
    if not config.boolean("qk_layernorm"):
        return {}
    width = config.integer("hidden_size") // config.integer("num_attention_heads")
    return {"qk_norm": "head", "layer_weights": 2 * width}


def _four_times(config: HfConfig) -> Fields:
    """An MLP four times as wide as the model."""
    return {"intermediate_size": 4 * config.integer(alias_of(config, "hidden_size"))}


def _bloom(config: HfConfig) -> Fields:
    """No length is built in: 2048 tokens are what it was trained with."""
    config = config.with_defaults({"seq_length": 2048})
    return {"max_position_embeddings": config.integer("seq_length"), **_four_times(config)}


def _cpmant(config: HfConfig) -> Fields:
    """Embeddings of prompts and segments, and a bias on scores for each distance."""
    hidden, segments = config.integer("hidden_size"), config.integer("segment_types")
    prompts = config.integer("prompt_types") * config.integer("prompt_length")
    distances = config.integer("position_bias_num_buckets") + segments**2
    tables = (prompts + segments) * hidden
    return {"embedding_weights": tables + distances * config.integer("num_attention_heads")}


def _mpt(config: HfConfig) -> Fields:
    """An MLP `expansion_ratio` times as wide as the model."""
    ratio = config.integer("expansion_ratio")
    return {"intermediate_size": ratio * config.integer("d_model")}


def _japanese(config: HfConfig) -> Fields:
    """An MLP so many times as wide as the model; the last layer alone has an output bias."""
    ratio = config.integer("intermediate_multiple_size")
    hidden = config.integer("hidden_size")
    return {"intermediate_size": ratio * hidden, "embedding_weights": hidden}


def _local(config: HfConfig) -> tuple[bool, ...]:
    """Every other layer is local unless `attention_layers` lists them."""
    words = listed(config, "attention_layers")
    config.ignore("attention_types")
    if words:
        return tuple(word == "local" for word in words)
    return tuple(i % 2 == 1 for i in range(count_of_layers(config)))


def _falcon(config: HfConfig) -> Fields:
    """What the switches of a Falcon say together (arXiv:2311.16867, section 4).

    The new architecture has groups of heads and a norm for each half; the older ones have one
    key-value head or as many as heads, and one norm where both halves run in parallel.
    """
    heads, hidden = config.integer("num_attention_heads"), config.integer("hidden_size")
    new, parallel = config.boolean("new_decoder_architecture"), config.boolean("parallel_attn")
    several = config.boolean("multi_query")
    groups = config.optional_integer("num_kv_heads") or heads
    norms = config.optional_integer("num_ln_in_parallel_attn") or (2 if new else 1)
    two = not (new or parallel) or (new and norms == 2)
    width = config.optional_integer("ffn_hidden_size")
    return {
        "num_key_value_heads": groups if new else (1 if several else heads),
        "intermediate_size": width or 4 * hidden,
        "parallel_residual": new or parallel,
        "shared_norm": not two,
        "position_embedding": "alibi" if config.boolean("alibi") else "rope",
        **(LINEAR if config.boolean("bias") else {}),
    }


def _opt(config: HfConfig) -> Fields:
    """Only OPT-350M norms after the residual and embeds at another width."""
    config = config.with_defaults(
        {
            "word_embed_proj_dim": None,
            "do_layer_norm_before": True,
            "_remove_final_layer_norm": False,
        }
    )
    hidden, width = config.integer("hidden_size"), config.optional_integer("word_embed_proj_dim")
    before = config.boolean("do_layer_norm_before")
    return {
        "embedding_size": None if width == hidden else width,
        "norm_position": "pre" if before else "post",
        "final_norm": before and not config.boolean("_remove_final_layer_norm"),
    }


GPTS: Final[Mapping[str, Family]] = {
    "bloom": Family(
        "arXiv:2211.05100, section 3.2",
        model={**BIASED, "embedding_norm": True, "position_embedding": "alibi"},
        more=_bloom,
        ignores=("apply_residual_connection_post_layernorm", "slow_but_exact"),
    ),
    "codegen": Family(
        "modeling_codegen.py", model=GPT_J, more=_rotated_part, ignores=("rotary_dim",)
    ),
    "cpmant": Family(
        "arXiv:2203.06904; modeling_cpmant.py",
        model={"position_embedding": "none", "activation": "gelu"},
        names={
            "intermediate_size": "dim_ff",
            "head_dim": "dim_head",
            "max_position_embeddings": "position_bias_max_distance",
        },
        flags={"tie_word_embeddings": {}},
        more=_cpmant,
    ),
    "falcon": Family(
        "arXiv:2311.16867, section 4; modeling_falcon.py",
        model={**LAYER_NORM, "gated_mlp": False},
        more=_falcon,
        ignores=("num_kv_heads",),
    ),
    "gpt2": plain(
        "modeling_gpt2.py; arXiv:2005.14165, section 2.1 (GPT-3)",
        model={**BIASED, "position_embedding": "learned"},
        names={
            **{"num_hidden_layers": "n_layer", "hidden_size": "n_embd"},
            **{"num_attention_heads": "n_head", "max_position_embeddings": "n_positions"},
            **{"hidden_act": "activation_function", "rms_norm_eps": "layer_norm_epsilon"},
            "intermediate_size": "n_inner",
        },
        flags=NO_BIASES,
        off=("add_cross_attention",),
        defaults={
            **{"n_inner": None, "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5},
            "tie_word_embeddings": True,
        },
    ),
    "gpt_neo": Family(
        "modeling_gpt_neo.py",
        model={
            **LAYER_NORM,
            "gated_mlp": False,
            "attention_output_bias": True,
            "mlp_bias": True,
            "position_embedding": "learned",
        },
        window="window_size",
        slides=_local,
    ),
    "gpt_neox": plain(
        "modeling_gpt_neox.py; arXiv:2204.06745, section 2",
        model={**LAYER_NORM, "gated_mlp": False, "mlp_bias": True},
        names={
            **{"rope_theta": "rotary_emb_base", "partial_rotary_factor": "rotary_pct"},
            "rms_norm_eps": "layer_norm_eps",
        },
        flags={**NO_MLP_BIAS, "use_parallel_residual": {"parallel_residual": True}},
        defaults={
            **{"hidden_act": "gelu", "layer_norm_eps": 1e-5, "rotary_emb_base": 10_000.0},
            **{"rotary_pct": 0.25, "use_parallel_residual": True, "attention_bias": True},
        },
    ),
    "gpt_neox_japanese": Family(
        "modeling_gpt_neox_japanese.py",
        model={**LAYER_NORM, "gated_mlp": False},
        more=_japanese,
        notes=("the output projection of the last layer alone has a bias",),
    ),
    "gptj": Family("modeling_gptj.py", model=GPT_J, more=_rotated_part, ignores=("rotary_dim",)),
    "mpt": Family(
        "modeling_mpt.py: alibi; no bias whatever `no_bias` is",
        model={
            **LAYER_NORM,
            "norm_weights": "scale",
            "gated_mlp": False,
            "position_embedding": "alibi",
            "activation": "gelu",
        },
        more=_mpt,
        ignores=("no_bias", "learned_pos_emb", "attn_config", "embedding_fraction", "norm_type"),
    ),
    "openai-gpt": Family(
        "modeling_openai.py",
        model={
            **BIASED,
            "position_embedding": "learned",
            "norm_position": "post",
            "final_norm": False,
        },
        names={"hidden_act": "afn"},
        more=_four_times,
    ),
    "opt": plain(
        "modeling_opt.py; arXiv:2205.01068, section 2.1",
        model={
            **{**LAYER_NORM, "gated_mlp": False},
            **{"position_embedding": "learned", "position_embedding_offset": 2, "norm_eps": 1e-5},
        },
        names={"intermediate_size": "ffn_dim", "hidden_act": "activation_function"},
        flags={**NO_BIASES, "enable_bias": LINEAR},
        on=("layer_norm_elementwise_affine",),
        defaults={
            **{"activation_function": "relu", "tie_word_embeddings": True},
            **{"enable_bias": True, "layer_norm_elementwise_affine": True},
        },
        more=_opt,
    ),
    "persimmon": Family("modeling_persimmon.py", model=BIASED, more=_normed_heads),
    "phi": Family(
        "arXiv:2309.05463, section 2.3",
        model={**BIASED, **ONE_NORM, "head_bias": True},
        more=_normed_heads,
    ),
}
"""`model_type` -> what its code fixes."""
