"""Configurations of every decoder-only class of transformers, and the models built from them.

Of each class its default configuration, and two with other sizes: small, then with every switch
turned. A change that the class does not take is left out.
"""

import json
import re

import pytest

transformers = pytest.importorskip("transformers", reason="the oracles need transformers")
torch = pytest.importorskip("torch", reason="the oracles need torch")

from transformers.models.auto.configuration_auto import CONFIG_MAPPING  # noqa: E402
from transformers.models.auto.modeling_auto import (  # noqa: E402
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
)

NO_DECODERS = """
    bart bert bert-generation big_bird bigbird_pegasus blenderbot blenderbot-small camembert
    data2vec-text electra ernie git marian mbart megatron-bert moshi musicgen musicgen_melody mvp
    pegasus plbart prophetnet reformer rembert roberta roberta-prelayernorm roc_bert roformer trocr
    whisper xlm xlm-roberta xlm-roberta-xl xlnet xmod
"""
"""Encoders with a causal head, decoders that attend to an encoder, and towers."""
WITH_TOWERS = """
    dots3_note emu3 fuyu gemma3 gemma3n gemma4 gemma4_assistant gemma4_unified
    gemma4_unified_assistant got_ocr2 llama4 mllama moss_transcribe_diarize phi4_multimodal
    qwen3_5 qwen3_5_moe qwen4_exp
"""
"""Models with towers: their text part is a class of its own."""
ALIASES = frozenset({"gpt-sw3"})
"""Names of a class that has another name here."""
ROTATED = {"rope_type": "default", "rope_theta": 10_000.0}
NEEDED = {
    "cohere_compass_text": {
        "rope_parameters": {"full_attention": ROTATED, "sliding_attention": ROTATED}
    },
    "dbrx": {
        "attn_config": {"kv_n_heads": 4, "rope_theta": 5e5},
        "ffn_config": {"ffn_hidden_size": 1056, "moe_num_experts": 6, "moe_top_k": 2},
    },
    "dots1": {"n_routed_experts": 8, "n_shared_experts": 1, "num_experts_per_tok": 2},
    "hunyuan_v1_dense": {"head_dim": 128},
    "hunyuan_v1_moe": {"head_dim": 128, "num_experts": 4, "moe_topk": 2},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"] * 16},
    "ministral": {"head_dim": 128},
    "nemotron": {"num_key_value_heads": 8},
    "glm4_moe": {"head_dim": 128},
    "deepseek_v2": {"num_experts_per_tok": 6},
}
"""What classes need to be built that cannot be by default."""
LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
TOGETHER = {
    "hidden_size": 96,
    "n_embd": 96,
    "d_model": 96,
    "num_attention_heads": 8,
    "n_head": 8,
    "n_heads": 8,
    "num_heads": 8,
    "attention_heads": 8,
    "num_key_value_heads": 2,
    "num_kv_heads": 2,
}
"""Sizes that have to fit each other: changed at once, and no heads alone."""
SIZES = {
    "head_dim": 32,
    "v_head_dim": 20,
    "intermediate_size": 176,
    "ffn_dim": 176,
    "ffn_hidden_size": 176,
    "dff": 176,
    "intermediate_size_mlp": 208,
    "moe_intermediate_size": 56,
    "expert_ffn_hidden_size": 56,
    "shared_expert_intermediate_size": 72,
    "shared_intermediate_size": 72,
    "moe_shared_expert_intermediate_size": 72,
    "num_experts": 10,
    "num_local_experts": 10,
    "n_routed_experts": 10,
    "moe_num_experts": 10,
    "num_experts_per_tok": 2,
    "moe_topk": 2,
    "n_group": 2,
    "topk_group": 1,
    "n_shared_experts": 2,
    "num_shared_experts": 2,
    "q_lora_rank": 40,
    "kv_lora_rank": 24,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "vocab_size": 1024,
    "first_k_dense_replace": 2,
    "num_dense_layers": 2,
    "decoder_sparse_step": 2,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 6,
    "linear_key_head_dim": 24,
    "linear_value_head_dim": 40,
    "linear_conv_kernel_dim": 3,
    "mamba_d_conv": 3,
    "mamba_d_state": 24,
    "ssm_state_size": 24,
    "state_size": 24,
    "conv_L_cache": 5,
    "index_n_heads": 4,
    "index_head_dim": 16,
    "moe_latent_size": 48,
    "num_kv_shared_layers": 2,
    "vocab_size_per_layer_input": 512,
    "hidden_size_per_layer_input": 20,
    "laurel_rank": 12,
    "altup_num_inputs": 3,
    "zero_expert_num": 0,
}
"""Small sizes that differ from each other and from every default."""
WITH_TOGETHER = {"helium": {"head_dim": 12}}
"""Sizes that follow from those, though the class takes any."""
NOT_TURNED = re.compile(
    "return_dict|is_encoder_decoder|is_decoder|output_.*|use_cache|chunk_size_feed_forward"
    "|enable_moe_block|is_moe"
)
"""Switches of the library, and those that turn a model into one of another kind."""


def model_types():
    """Every decoder-only `model_type`: what stands for a class once, its text part where it has
    towers."""
    known = set(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)
    return sorted(known - {*NO_DECODERS.split(), *WITH_TOWERS.split()} - ALIASES)


def built(model_type, changes):
    return CONFIG_MAPPING[model_type](**(NEEDED.get(model_type, {}) | changes))


def parameters(config):
    """Parameters of the model on the meta device; biases that balance experts are buffers."""
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    return sum(weight.numel() for weight in model.parameters())


def written(config):
    """The file that the class writes, with what it leaves to itself."""
    return json.loads(json.dumps(config.to_dict(), default=str))


def variants(model_type):
    """Changes to the default: none, small sizes, small sizes with every switch turned."""
    fields = CONFIG_MAPPING[model_type].__dataclass_fields__
    mapped = CONFIG_MAPPING[model_type].attribute_map
    bound = WITH_TOGETHER.get(model_type, {})
    at_once = {name: value for name, value in TOGETHER.items() if name in fields} | bound
    alone = {name: value for name, value in SIZES.items() if name not in {**mapped, **bound}}
    small = at_once if _is_built(model_type, at_once) else {}
    small = _taken(model_type, small, alone | dict.fromkeys(LAYERS, 6))
    switches = {
        name: not value
        for name, value in built(model_type, {}).to_dict().items()
        if isinstance(value, bool) and not NOT_TURNED.fullmatch(name)
    }
    return {"default": {}, "small": small, "turned": _taken(model_type, small, switches)}


def _taken(model_type, changes, wanted):
    """Those of the wanted changes, on top of others, that the class takes."""
    fields = CONFIG_MAPPING[model_type].__dataclass_fields__
    for name, value in wanted.items():
        if name in fields and _is_built(model_type, changes | {name: value}):
            changes = changes | {name: value}
    return changes


def _is_built(model_type, changes):
    try:
        parameters(built(model_type, changes))
    except Exception:  # noqa: BLE001
        return False
    return True
