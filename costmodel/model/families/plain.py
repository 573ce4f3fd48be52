"""Dense decoders that differ from a Llama in few points, by `model_type`.

Source: modeling and configuration code of transformers 5.24, of the `model_type` each; the reports
named with each.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from trainplan.costmodel.model.families.falcon import falcon
from trainplan.costmodel.model.families.family import HEAD, LINEAR, QKV, Family, Fields
from trainplan.costmodel.model.families.placement import count_of_layers
from trainplan.costmodel.model.families.plain_parts import (
    bloom,
    cpmant,
    dynamic_mask,
    four_times,
    japanese,
    lambdas,
    local,
    modernbert,
    modernbert_slides,
    mpt,
    normed_heads,
    pattern,
    rotated_part,
    square_output,
    sub_norms,
    unrotated,
)

LAYER_NORM: Final[Fields] = {"norm": "layernorm"}
BIASED: Final[Fields] = {**LAYER_NORM, **LINEAR, "gated_mlp": False}
"""A GPT: LayerNorm, biases on all linear layers, two products in the MLP."""
ONE_NORM: Final[Fields] = {"parallel_residual": True, "shared_norm": True}
GPT_J: Final[Fields] = {
    **LAYER_NORM,
    **ONE_NORM,
    **{"gated_mlp": False, "mlp_bias": True, "head_bias": True},
}
GEMMA: Final[Fields] = {"scale_embeddings": True}
COHERE: Final[Fields] = {**LAYER_NORM, **ONE_NORM, "norm_weights": "scale"}


PLAIN: Final[Mapping[str, Family]] = {
    "apertus": Family(
        "arXiv:2509.14233, section 2",
        model={"gated_mlp": False, "layer_weights": 2, **HEAD},
    ),
    "apertus1p5_text": Family(
        "Apertus1p5TextConfig",
        model={"gated_mlp": False, "layer_weights": 2, **HEAD},
        off=("output_vocab_size",),
    ),
    "arcee": Family("modeling_arcee.py", model={"gated_mlp": False}),
    "biogpt": Family(
        "modeling_biogpt.py",
        model={**BIASED, "position_embedding": "learned", "position_embedding_offset": 2},
        ignores=("scale_embedding",),
    ),
    "bitnet": Family("arXiv:2504.12285, section 2", more=sub_norms),
    "bloom": Family(
        "arXiv:2211.05100, section 3.2",
        model={**BIASED, "embedding_norm": True, "position_embedding": "alibi"},
        more=bloom,
        ignores=("apply_residual_connection_post_layernorm", "slow_but_exact"),
    ),
    "codegen": Family(
        "modeling_codegen.py",
        model=GPT_J,
        more=rotated_part,
        ignores=("rotary_dim",),
    ),
    "cohere": Family(
        "modeling_cohere.py", model=COHERE, flags={"use_qk_norm": {"qk_norm": "each"}}
    ),
    "cohere2": Family(
        "modeling_cohere2.py; arXiv:2504.00698, section 2.1", model=COHERE, full_unrotated=True
    ),
    "cohere_compass_text": Family("modeling_cohere_compass.py", model=COHERE),
    "cpmant": Family(
        "arXiv:2203.06904; modeling_cpmant.py",
        model={"position_embedding": "none", "activation": "gelu"},
        names={
            "intermediate_size": "dim_ff",
            "head_dim": "dim_head",
            "rms_norm_eps": "eps",
            "max_position_embeddings": "position_bias_max_distance",
        },
        flags={"tie_word_embeddings": {}},
        more=cpmant,
    ),
    "ctrl": Family(
        "arXiv:1909.05858, section 3",
        model={**BIASED, "head_bias": True, "position_embedding": "none", "activation": "relu"},
    ),
    "cwm": Family("arXiv:2510.02387, section 3", flags={"attention_bias": {}}),
    "diffllama": Family("arXiv:2410.05258, section 2.1", more=lambdas),
    "doge": Family(
        "modeling_doge.py",
        model=HEAD,
        more=dynamic_mask,
        experts_if="is_moe",
        off=("is_moe",),
        ignores=("keep_window_size",),
    ),
    "ernie4_5": Family("modeling_ernie4_5.py", flags={"use_bias": LINEAR}),
    "exaone": Family("ExaoneConfig, LlamaForCausalLM"),
    "exaone4": Family(
        "arXiv:2507.11407, section 2.1",
        model={"norm_position": "post", **HEAD},
        flags={"attention_bias": {}},
        slides=pattern,
        full_unrotated=True,
    ),
    "falcon": Family(
        "arXiv:2311.16867, section 4; modeling_falcon.py",
        model={**LAYER_NORM, "gated_mlp": False},
        more=falcon,
        ignores=("num_kv_heads",),
    ),
    "gemma": Family(
        "arXiv:2403.08295, section 2", model=GEMMA, ignores=("use_bidirectional_attention",)
    ),
    "glm": Family("modeling_glm.py", flags={"attention_bias": QKV}),
    "gpt_bigcode": Family(
        "arXiv:2301.03988, section 4",
        model={**BIASED, "position_embedding": "learned"},
        flags={"multi_query": {"num_key_value_heads": 1}},
        off=("add_cross_attention",),
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
        slides=local,
    ),
    "gpt_neox_japanese": Family(
        "modeling_gpt_neox_japanese.py",
        model={**LAYER_NORM, "gated_mlp": False},
        more=japanese,
        notes=("the output projection of the last layer alone has a bias",),
    ),
    "gptj": Family(
        "modeling_gptj.py",
        model=GPT_J,
        more=rotated_part,
        ignores=("rotary_dim",),
    ),
    "granite": Family("modeling_granite.py"),
    "granite_swa": Family("modeling_granite_swa.py", model={"attention_sinks": True}),
    "helium": Family("modeling_helium.py", flags={"attention_bias": QKV}, more=square_output),
    "hunyuan_v1_dense": Family("modeling_hunyuan_v1_dense.py", model=HEAD),
    "hyperclovax": Family(
        "modeling_hyperclovax.py", flags={"use_post_norm": {"norm_position": "both"}}
    ),
    "internlm3": Family(
        "internlm/internlm3-8b-instruct, modeling_internlm3.py: qkv_bias, bias",
        flags={
            "qkv_bias": QKV,
            "bias": {"attention_output_bias": True, "mlp_bias": True},
            "attention_bias": {},
            "mlp_bias": {},
        },
    ),
    "iquestcoder": Family("IQuestCoderConfig, LlamaForCausalLM"),
    "jais2": Family("modeling_jais2.py", model={**LAYER_NORM, "gated_mlp": False}),
    "minicpm3": Family("arXiv:2404.06395; modeling_minicpm3.py"),
    "ministral": Family("modeling_ministral.py", flags={"attention_bias": {}, "mlp_bias": {}}),
    "ministral3": Family("modeling_ministral3.py", flags={"attention_bias": {}, "mlp_bias": {}}),
    "modernbert-decoder": Family(
        "arXiv:2412.13663; modeling_modernbert_decoder.py",
        window="local_attention",
        slides=modernbert_slides,
        flags={"decoder_bias": {"head_bias": True}},
        more=modernbert,
        off=("classifier_bias", "mlp_bias"),
        ignores=("global_attn_every_n_layers", "sliding_window"),
        notes=("the product in front of the output projection is counted, not priced",),
    ),
    "mpt": Family(
        "modeling_mpt.py: alibi; no bias whatever `no_bias` says",
        model={
            **LAYER_NORM,
            "norm_weights": "scale",
            "gated_mlp": False,
            "position_embedding": "alibi",
            "activation": "gelu",
        },
        more=mpt,
        ignores=("no_bias", "learned_pos_emb", "attn_config", "embedding_fraction", "norm_type"),
    ),
    "nanochat": Family(
        "modeling_nanochat.py: norms of queries and keys have no weights",
        model={"norm_weights": "none", "gated_mlp": False},
    ),
    "nemotron": Family("arXiv:2402.16819, section 2", model={**LAYER_NORM, "gated_mlp": False}),
    "olmo": Family("arXiv:2402.00838, section 2.1", model={**LAYER_NORM, "norm_weights": "none"}),
    "olmo3": Family(
        "arXiv:2512.13961, section 3.2",
        model={"norm_position": "post", "qk_norm": "full"},
        slides=lambda config: [(i + 1) % 4 != 0 for i in range(count_of_layers(config))],
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
        more=four_times,
    ),
    "persimmon": Family("modeling_persimmon.py", model=BIASED, more=normed_heads),
    "phi": Family(
        "arXiv:2309.05463, section 2.3",
        model={**BIASED, **ONE_NORM, "head_bias": True},
        more=normed_heads,
    ),
    "seed_oss": Family(
        "modeling_seed_oss.py",
        flags={"attention_bias": QKV, "attention_out_bias": {"attention_output_bias": True}},
    ),
    "smollm3": Family("modeling_smollm3.py", more=unrotated),
    "stablelm": Family(
        "modeling_stablelm.py",
        model=LAYER_NORM,
        flags={
            "use_qkv_bias": QKV,
            "qk_layernorm": {"qk_norm": "each"},
            "use_parallel_residual": ONE_NORM,
        },
    ),
    "starcoder2": Family(
        "arXiv:2402.19173, section 6",
        model={**LAYER_NORM, "gated_mlp": False},
        flags={"use_bias": LINEAR},
    ),
    "vaultgemma": Family("arXiv:2510.15001, section 3", model=GEMMA),
    "xglm": Family(
        "modeling_xglm.py",
        model={**BIASED, "position_embedding": "none"},
        off=("add_cross_attention",),
        ignores=("scale_embedding",),
    ),
    "youtu": Family("modeling_youtu.py"),
}
"""`model_type` -> what its code fixes."""
