"""Models so small that any device trains their layers in no time."""

from trainplan.costmodel.architecture.model import ModelSpec, MoeSpec

DENSE = ModelSpec(
    name="tiny",
    num_hidden_layers=2,
    hidden_size=64,
    intermediate_size=160,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=16,
    vocab_size=500,
    max_position_embeddings=128,
)
EXPERTS = MoeSpec(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=96)


def changed(**fields):
    return ModelSpec.model_validate({**DENSE.model_dump(), **fields})
