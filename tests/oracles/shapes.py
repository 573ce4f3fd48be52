"""Models the formulas of `torch-eager` are held against, and how each is run.

The formulas were derived on `SMALL` alone; every other shape was run once they stood.
"""

from typing import NamedTuple

from trainplan.costmodel.architecture.model import ModelSpec
from trainplan.costmodel.architecture.moe import MoeSpec
from trainplan.costmodel.presets.presets import preset

SMALL = ModelSpec(
    name="small",
    num_hidden_layers=3,
    hidden_size=512,
    intermediate_size=1408,
    num_attention_heads=8,
    num_key_value_heads=2,
    head_dim=64,
    vocab_size=4096,
    max_position_embeddings=4096,
)


class Case(NamedTuple):
    model: ModelSpec
    micro_batch_size: int
    seq_length: int


def changed(model: ModelSpec, **fields) -> ModelSpec:
    """Another model, checked again."""
    return ModelSpec.model_validate({**model.model_dump(), **fields})


def layers(name: str, count: int, **fields) -> ModelSpec:
    """The first layers of a preset."""
    return changed(preset(name), num_hidden_layers=count, **fields)


def experts(count: int, chosen: int, width: int, shared: int = 0) -> MoeSpec:
    return MoeSpec(
        num_experts=count,
        num_experts_per_tok=chosen,
        moe_intermediate_size=width,
        shared_expert_intermediate_size=shared,
    )


def latent(name: str, count: int) -> ModelSpec:
    """Layers of a preset with latent attention, all of them mixtures of experts."""
    model = preset(name)
    moe = {**model.moe.model_dump(), "first_k_dense_replace": 0}
    return changed(model, num_hidden_layers=count, num_nextn_predict_layers=0, moe=moe)


GPT_LIKE = {
    "gated_mlp": False,
    "activation": "gelu",
    "norm": "layernorm",
    "num_key_value_heads": 8,
    "qkv_bias": True,
    "mlp_bias": True,
    "attention_output_bias": True,
    "position_embedding": "learned",
    "tie_word_embeddings": True,
}
UNEQUAL = ModelSpec(
    name="unequal",
    num_hidden_layers=5,
    hidden_size=352,
    intermediate_size=1160,
    num_attention_heads=15,
    num_key_value_heads=3,
    head_dim=40,
    vocab_size=1152,
    max_position_embeddings=4096,
)
"""No two sizes are equal, and none is the product of others: a swap of two shows."""
FEW_WORDS = {"vocab_size": 256}
"""So few that the fullest moment is in a layer, not in the loss."""

DENSE = {
    "small": Case(SMALL, 2, 512),
    "small, few words": Case(changed(SMALL, **FEW_WORDS), 2, 512),
    "small, few words and tokens": Case(changed(SMALL, **FEW_WORDS), 1, 128),
    "small like GPT": Case(changed(SMALL, **GPT_LIKE), 2, 512),
    "small, plain ReLU": Case(
        changed(SMALL, gated_mlp=False, activation="relu", **FEW_WORDS), 2, 512
    ),
    "small, squared ReLU": Case(
        changed(SMALL, gated_mlp=False, activation="relu2", **FEW_WORDS), 2, 512
    ),
    "unequal": Case(UNEQUAL, 7, 416),
    # held out
    "llama2-7b": Case(layers("llama2-7b", 2), 2, 2048),
    "llama3-70b": Case(layers("llama3-70b", 2), 1, 8192),
    "llama3-70b, few tokens": Case(layers("llama3-70b", 2), 1, 1024),
    "llama3.2-1b": Case(layers("llama3.2-1b", 5), 3, 4096),
    "qwen2.5-7b": Case(layers("qwen2.5-7b", 4), 1, 16384),
    "phi3-mini": Case(layers("phi3-mini", 3, sliding_window=None, mixer="full_attention"), 4, 2048),
    "gpt2-xl": Case(layers("gpt2-xl", 6), 4, 1024),
    "gpt3-6.7b": Case(layers("gpt3-6.7b", 2), 1, 2048),
    "opt-6.7b": Case(layers("opt-6.7b", 3), 2, 2048),
    "narrow, few words": Case(
        layers("llama3.2-3b", 7, vocab_size=1024, tie_word_embeddings=False), 2, 4096
    ),
    "gelu, few words": Case(layers("gpt3-6.7b", 4, vocab_size=512), 2, 2048),
    # norms of queries and keys, norms behind the halves, halves in parallel
    "qwen3-8b": Case(layers("qwen3-8b", 2), 1, 4096),
    "olmo2-7b": Case(layers("olmo2-7b", 2), 2, 4096),
    "glm4-9b": Case(layers("glm4-9b", 2), 1, 8192),
    "gpt-neox-20b": Case(layers("gpt-neox-20b", 2), 4, 2048),
}
MOE = {
    "small": Case(changed(SMALL, moe=experts(16, 4, 256)), 2, 512),
    "small, shared expert": Case(changed(SMALL, moe=experts(16, 4, 256, 512), **FEW_WORDS), 2, 512),
    "small, many experts": Case(changed(SMALL, moe=experts(64, 8, 256), **FEW_WORDS), 4, 512),
    "unequal": Case(changed(UNEQUAL, moe=experts(13, 3, 168, 248)), 7, 416),
    # held out
    "mixtral-8x7b": Case(layers("mixtral-8x7b", 2), 1, 4096),
    "mixtral-8x7b, few words": Case(layers("mixtral-8x7b", 3, vocab_size=1024), 2, 8192),
    "qwen3-30b-a3b": Case(layers("qwen3-30b-a3b", 2), 1, 4096),
    "many narrow experts": Case(
        layers("llama3.2-1b", 3, moe=experts(128, 8, 768), vocab_size=32_000), 1, 4096
    ),
    "shared expert": Case(
        layers("llama3.2-1b", 3, moe=experts(32, 4, 1536, 3072), vocab_size=1024), 2, 4096
    ),
    "deepseek-v2-lite": Case(latent("deepseek-v2-lite", 3), 1, 4096),
    "deepseek-v3": Case(latent("deepseek-v3", 2), 1, 4096),
}
