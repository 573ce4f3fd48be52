"""Write bridge_configs.json: a configuration of every architecture that Megatron-Bridge builds.

Of classes that transformers has, its defaults, made consistent where they are not; of the others,
sizes of my choice under the names of their fields. Run with transformers 5.12:
python -m tests.runtimes.record_bridge_configs
"""

import json
from pathlib import Path

import transformers
from transformers import PretrainedConfig

from trainplan.costmodel.families.bridges import bridges

PATH = Path(__file__).parent / "bridge_configs.json"
ROPE = {"rope_theta": 10000.0, "rope_type": "default"}
LLAMA = {
    "num_hidden_layers": 16, "hidden_size": 2048, "intermediate_size": 8192,
    "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 32000,
    "max_position_embeddings": 8192, "rms_norm_eps": 1e-6, "hidden_act": "silu",
    "tie_word_embeddings": False, "rope_theta": 10000.0,
}  # fmt: skip
EXPERTS = {
    "num_experts": 64, "num_experts_per_tok": 8, "moe_intermediate_size": 1024,
    "num_shared_experts": 1, "first_k_dense_replace": 1, "norm_topk_prob": True,
    "n_group": 8, "topk_group": 4, "routed_scaling_factor": 2.5, "score_function": "sigmoid",
}  # fmt: skip
LATENT = {
    "q_lora_rank": 768, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
    "v_head_dim": 128, "num_key_value_heads": 16, "n_routed_experts": 64, "n_shared_experts": 1,
    "num_experts_per_tok": 8, "moe_intermediate_size": 1024, "first_k_dense_replace": 1,
    "moe_layer_freq": 1, "scoring_func": "sigmoid", "topk_method": "noaux_tc", "n_group": 1,
    "topk_group": 1, "norm_topk_prob": True, "routed_scaling_factor": 2.5, "attention_bias": False,
}  # fmt: skip
DEEPSEEK = {k: v for k, v in LLAMA.items() if k not in ("head_dim", "num_key_value_heads")} | LATENT
NEMOTRON_H = {
    "model_type": "nemotron_h", "hybrid_override_pattern": "M-M*-M-M" * 4, "num_hidden_layers": 32,
    "hidden_size": 2048, "intermediate_size": 8192, "num_attention_heads": 16, "head_dim": 128,
    "num_key_value_heads": 8, "vocab_size": 131072, "max_position_embeddings": 8192,
    "mamba_num_heads": 64, "mamba_head_dim": 64, "ssm_state_size": 128, "n_groups": 8,
    "conv_kernel": 4, "mlp_hidden_act": "relu2", "use_bias": False, "use_conv_bias": True,
    "layer_norm_epsilon": 1e-5, "tie_word_embeddings": False, "chunk_size": 128,
}  # fmt: skip
CHANGES = {
    "DeepseekV2ForCausalLM": {"num_experts_per_tok": 6, "first_k_dense_replace": 1},
    "DeepseekV4ForCausalLM": {
        "rope_scaling": {
            "type": "yarn", "rope_type": "yarn", "factor": 16, "rope_theta": 10000.0,
            "original_max_position_embeddings": 65536, "beta_fast": 32, "beta_slow": 1,
        },
    },
    "Gemma3ForConditionalGeneration": {"vision_config": {"image_size": 896, "patch_size": 14}},
    "Glm4MoeForCausalLM": {"head_dim": 128},
    "Glm4vMoeForConditionalGeneration": {
        "text_config": {"head_dim": 128, "use_qk_norm": False},
    },
    "GlmMoeDsaForCausalLM": {"indexer_rope_interleave": True, "first_k_dense_replace": 3},
    "HYV3ForCausalLM": {"first_k_dense_replace": 1},
    "Qwen2_5_VLForConditionalGeneration": {"vision_config": {"out_hidden_size": 8192}},
    "Qwen3OmniMoeForConditionalGeneration": {
        "thinker_config": {"text_config": {"head_dim": 128, "num_attention_heads": 32}}
    },
    "Qwen3VLForConditionalGeneration": {"vision_config": {"out_hidden_size": 4096}},
    "Qwen3VLMoeForConditionalGeneration": {"vision_config": {"out_hidden_size": 2048}},
}  # fmt: skip
WRITTEN = {
    "BailingMoeV2ForCausalLM": LLAMA | EXPERTS | {
        "model_type": "bailing_moe_v2", "use_qk_norm": True, "use_qkv_bias": False,
        "moe_router_enable_expert_bias": True, "use_bias": False,
    },
    "DeciLMForCausalLM": LLAMA | {
        "model_type": "nemotron-nas", "num_key_value_heads": None,
        "block_configs": [
            {
                "attention": {"n_heads_in_group": 8, "no_op": no_op, "replace_with_linear": False},
                "ffn": {"ffn_mult": 2.625, "no_op": False, "replace_with_linear": False},
            }
            for no_op in [False, True] * 8
        ],
    },
    "ExaoneMoEForCausalLM": {"model_type": "exaone_moe"},
    "KimiK2ForCausalLM": DEEPSEEK | {"model_type": "kimi_k2"},
    "KimiK25ForConditionalGeneration": {
        "model_type": "kimi_k25", "text_config": DEEPSEEK | {"model_type": "kimi_k2"},
        "vision_config": {"model_type": "moonvit", "hidden_size": 1152, "num_hidden_layers": 27},
    },
    "KimiK3ForConditionalGeneration": {
        "model_type": "kimi_k3",
        "text_config": DEEPSEEK | {
            "model_type": "kimi_linear", "hidden_act": "situ", "num_experts_per_token": 8,
            "num_experts": 64, "num_shared_experts": 1, "routed_expert_hidden_size": 1024,
            "moe_router_activation_func": "sigmoid", "use_grouped_topk": False,
            "attn_res_block_size": 4,
            "linear_attn_config": {
                "kda_layers": [1, 2, 3, 5, 6, 7, 9, 10, 11, 13, 14, 15], "num_heads": 16,
                "head_dim": 128, "short_conv_kernel_size": 4, "gate_lower_bound": -5.0,
            },
        },
    },
    "MiMoForCausalLM": LLAMA | {
        "model_type": "mimo", "attention_bias": True, "num_nextn_predict_layers": 1,
    },
    "MiMoV2FlashForCausalLM": {k: v for k, v in LLAMA.items() if k != "rms_norm_eps"} | {
        "model_type": "mimo_v2_flash", "layernorm_epsilon": 1e-5, "head_dim": 192,
        "v_head_dim": 128, "swa_num_attention_heads": 16, "swa_num_key_value_heads": 8,
        "swa_head_dim": 192, "swa_v_head_dim": 128, "num_key_value_heads": 4,
        "hybrid_layer_pattern": [0, 1, 1, 1] * 4, "sliding_window": 128, "sliding_window_size": 128,
        "swa_rope_theta": 10000.0, "partial_rotary_factor": 0.334, "attention_value_scale": 0.707,
        "add_swa_attention_sink_bias": True, "add_full_attention_sink_bias": False,
        "moe_layer_freq": [0] + [1] * 15, "n_routed_experts": 64, "num_experts_per_tok": 8,
        "moe_intermediate_size": 1024, "scoring_func": "sigmoid", "topk_method": "noaux_tc",
        "norm_topk_prob": True, "n_group": 1, "topk_group": 1, "n_shared_experts": None,
        "routed_scaling_factor": None, "attention_bias": False, "attention_chunk_size": 128,
    },
    "NemotronH_Nano_VL_V2": {
        "model_type": "NemotronH_Nano_VL_V2", "llm_config": NEMOTRON_H,
        "vision_config": {"model_type": "", "hidden_size": 1280},
    },
    "NemotronHForCausalLM": NEMOTRON_H,
    "Qwen3ASRForConditionalGeneration": {
        "model_type": "qwen3_asr",
        "thinker_config": {
            "text_config": LLAMA | {"model_type": "qwen3"},
            "audio_config": {"d_model": 1280, "encoder_layers": 32},
        },
    },
    "SarvamMLAForCausalLM": DEEPSEEK | EXPERTS | {
        "model_type": "sarvam_mla", "moe_router_enable_expert_bias": True, "use_qk_norm": True,
        "head_dim": 192, "q_lora_rank": None,
    },
    "SarvamMoEForCausalLM": LLAMA | EXPERTS | {
        "model_type": "sarvam_moe", "use_qk_norm": True, "moe_router_enable_expert_bias": True,
    },
    "Step3p5ForCausalLM": {k: v for k, v in LLAMA.items() if k != "rope_theta"} | {
        "model_type": "step3p5", "num_attention_groups": 8, "share_expert_dim": 1024,
        "moe_num_experts": 64, "moe_top_k": 8, "moe_intermediate_size": 1024,
        "moe_layers_enum": ",".join(map(str, range(3, 16))), "use_moe": True,
        "layer_types": ["full_attention", *["sliding_attention"] * 3] * 4, "sliding_window": 512,
        "attention_other_setting": {
            "attention_type": "sliding_attention", "num_attention_heads": 24,
            "num_attention_groups": 8, "head_dim": 128, "true_head_dim": 128,
        },
        "use_head_wise_attn_gate": True, "use_moe_router_bias": True, "rope_theta": 10000.0,
        "moe_router_activation": "sigmoid", "moe_router_scaling_factor": 3.0,
        "norm_expert_weight": True, "partial_rotary_factors": [1.0] * 16,
    },
}  # fmt: skip
WRITTEN |= {
    name: WRITTEN["NemotronH_Nano_VL_V2"] | {"model_type": name}
    for name in ("NemotronH_Nano_Omni_Reasoning_V3", "NemotronH_Super_Omni_Reasoning_V3")
}
WRITTEN["Step3p7ForConditionalGeneration"] = {
    "model_type": "step3p7",
    "text_config": WRITTEN["Step3p5ForCausalLM"],
    "vision_config": {"model_type": "perception_encoder", "hidden_size": 1536},
}
USUAL = {*PretrainedConfig().to_dict(), "transformers_version", "dtype"} - {"tie_word_embeddings"}
IDLE = ("_token_id", "_token_index", "_token_ids", "_dropout", "id2label", "label2id")


def plain(config):
    """Fields of a class, without those of every class and numbers of tokens."""
    kept = {}
    for name, value in config.items():
        if name in ("model_type", "architectures") or not (name in USUAL or name.endswith(IDLE)):
            kept[name] = plain(value) if isinstance(value, dict) else value
    return kept


def changed(config, changes):
    for name, value in changes.items():
        inner = isinstance(value, dict) and isinstance(config.get(name), dict)
        config[name] = changed(config[name], value) if inner else value
    return config


def config_of(architecture):
    made = getattr(getattr(transformers, architecture, None), "config_class", None)
    config = WRITTEN.get(architecture) or plain(made().to_dict())
    if architecture == "ExaoneMoEForCausalLM":
        config = config_of("ExaoneMoeForCausalLM")
    return changed(config, CHANGES.get(architecture, {})) | {"architectures": [architecture]}


def record():
    configs = {bridge.architecture: config_of(bridge.architecture) for bridge in bridges()}
    lines = (f"{json.dumps(n)}: {json.dumps(c, sort_keys=True)}" for n, c in configs.items())
    PATH.write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")


if __name__ == "__main__":
    record()
