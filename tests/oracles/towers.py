"""Small files of every family with a tower that is read, and transformers' own models of them."""

import pytest

torch = pytest.importorskip("torch", reason="the oracles need torch: run `make oracles`")
transformers = pytest.importorskip("transformers", reason="towers are compared with transformers")

IMAGE = {
    "num_hidden_layers": 4,
    "hidden_size": 128,
    "intermediate_size": 300,
    "num_attention_heads": 4,
    "image_size": 56,
    "patch_size": 14,
}
QWEN = {"depth": 5, "hidden_size": 128, "intermediate_size": 340, "num_heads": 4}
EXPERTS = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 64}


def decoder(model_type, **more):
    """A small decoder of a family."""
    sizes = {"num_hidden_layers": 3, "hidden_size": 256, "intermediate_size": 512}
    heads = {"num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 32}
    rest = {"vocab_size": 1000, "max_position_embeddings": 4096}
    return {"model_type": model_type, **sizes, **heads, **rest, **more}


def image(model_type, **more):
    """A small encoder of a family."""
    return {"model_type": model_type, **IMAGE, **more}


CASES = {
    "qwen2_5_vl": {
        "text_config": decoder("qwen2_5_vl_text"),
        "vision_config": {**QWEN, "out_hidden_size": 256, "fullatt_block_indexes": [2, 4]},
    },
    "qwen2_5_vl, tied": {
        "tie_word_embeddings": True,
        "text_config": decoder("qwen2_5_vl_text"),
        "vision_config": {**QWEN, "out_hidden_size": 256, "fullatt_block_indexes": [2, 4]},
    },
    "qwen2_vl": {
        "text_config": decoder("qwen2_vl_text"),
        "vision_config": {
            **{"depth": 4, "embed_dim": 128, "hidden_size": 256},
            **{"num_heads": 4, "mlp_ratio": 3},
        },
    },
    "qwen3_vl": {
        "text_config": decoder("qwen3_vl_text"),
        "vision_config": {
            **QWEN,
            **{"out_hidden_size": 256, "num_position_embeddings": 144},
            "deepstack_visual_indexes": [1, 2],
        },
    },
    "qwen3_vl_moe": {
        "text_config": decoder("qwen3_vl_moe_text", **EXPERTS),
        "vision_config": {
            **QWEN,
            **{"out_hidden_size": 256, "num_position_embeddings": 144},
            "deepstack_visual_indexes": [2],
        },
    },
    "llava": {"text_config": decoder("llama"), "vision_config": image("clip_vision_model")},
    "llava, pixtral": {"text_config": decoder("mistral"), "vision_config": image("pixtral")},
    "llava, siglip": {
        "text_config": decoder("qwen2"),
        "vision_config": image("siglip_vision_model"),
        "multimodal_projector_bias": False,
        "vision_feature_layer": [-2, -1],
    },
    "gemma3": {
        "text_config": decoder("gemma3_text"),
        "vision_config": image("siglip_vision_model", image_size=112, vision_use_head=False),
        "mm_tokens_per_image": 16,
    },
    "internvl": {
        "text_config": decoder("qwen2"),
        "vision_config": image("internvl_vision", image_size=[56, 56], attention_bias=True),
    },
    "internvl, 6B": {
        "tie_word_embeddings": False,
        "text_config": decoder("qwen2"),
        "vision_config": image(
            "internvl_vision",
            use_qk_norm=True,
            norm_type="rms_norm",
            use_mask_token=True,
            use_mean_pooling=False,
        ),
    },
    "mistral3": {"text_config": decoder("mistral"), "vision_config": image("pixtral")},
    "qwen2_audio": {
        "text_config": decoder("qwen2"),
        "audio_config": {
            **{"model_type": "qwen2_audio_encoder", "num_mel_bins": 40, "encoder_layers": 3},
            **{"encoder_attention_heads": 4, "encoder_ffn_dim": 300, "d_model": 128},
            "max_source_positions": 100,
        },
    },
}
"""By `model_type`, and what is particular."""


def file_of(name):
    """The content of a `config.json`."""
    return {"model_type": name.split(",")[0], **CASES[name]}


def config_of(values):
    """The configuration of transformers for such a file."""
    fields = {name: value for name, value in values.items() if name != "model_type"}
    return transformers.CONFIG_MAPPING[values["model_type"]](**fields)


def model_of(values, **how):
    """The model of transformers for such a file."""
    config = config_of(values)
    if values["model_type"] == "qwen2_audio":
        return transformers.Qwen2AudioForConditionalGeneration._from_config(config, **how)
    return transformers.AutoModelForImageTextToText.from_config(config, **how)


def parameters_of(values):
    """Parameters of that model, which is not built."""
    with torch.device("meta"):
        model = model_of(values)
    return sum(weight.numel() for weight in model.parameters())
