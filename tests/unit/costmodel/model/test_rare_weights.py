"""Weights that few families have, counted by hand, and what they cost."""

import pytest

from trainplan.costmodel.architecture.model import ModelSpec
from trainplan.costmodel.model.flops import layer_matrix_params_per_token
from trainplan.costmodel.model.params import num_active_parameters, num_parameters
from trainplan.costmodel.presets.presets import preset

LLAMA = preset("llama3-8b")
H, HEADS, GROUPS, D, LAYERS, VOCAB = 4096, 32, 8, 128, 32, 128256
NORMS = 2 * LAYERS + 1


def changed(**fields: object) -> ModelSpec:
    return ModelSpec.model_validate(LLAMA.model_dump() | fields)


@pytest.mark.parametrize(
    ("fields", "more"),
    [
        ({"norm": "layernorm"}, NORMS * H),
        ({"norm": "layernorm", "norm_weights": "scale"}, 0),
        ({"norm_weights": "none"}, -NORMS * H),
        ({"parallel_residual": True, "shared_norm": True}, -LAYERS * H),
        ({"embedding_norm": True}, H),
        ({"embedding_weights": 12345}, 12345),
        ({"head_bias": True}, VOCAB),
        ({"layer_weights": 7}, LAYERS * 7),
        ({"side_products": ((H, 16), (16, H))}, LAYERS * 2 * 16 * H),
        ({"value_head_dim": 64}, -LAYERS * (GROUPS + HEADS) * 64 * H),
        ({"key_value_projections": "keys"}, -LAYERS * GROUPS * D * H),
        ({"key_value_projections": "none"}, -LAYERS * 2 * GROUPS * D * H),
        ({"qk_norm": "each"}, LAYERS * (HEADS + GROUPS) * D),
        ({"qk_norm": "head", "key_value_projections": "none"}, LAYERS * (D - 2 * GROUPS * D * H)),
        (
            {"low_rank": {"query_rank": 512}},
            LAYERS * (512 * (H + HEADS * D) - H * HEADS * D),
        ),
        (
            {"low_rank": {"query_rank": 512, "output_rank": 1024, "output_groups": 4}},
            LAYERS * (512 * (H + HEADS * D) + 1024 * (HEADS * D // 4 + H) - 2 * H * HEADS * D),
        ),
        ({"scaled_branches": True, "position_embedding": "alibi"}, 0),
    ],
)
def test_a_field_adds_exactly_its_weights(fields: dict[str, object], more: int) -> None:
    assert num_parameters(changed(**fields)) == num_parameters(LLAMA) + more


def test_zero_experts_have_rows_in_the_router_and_no_weights() -> None:
    mixtral = preset("mixtral-8x7b")
    assert mixtral.moe
    moe = mixtral.moe.model_copy(update={"num_zero_experts": 4})
    more = mixtral.model_copy(update={"moe": moe})
    rows = mixtral.num_hidden_layers * 4 * mixtral.hidden_size
    assert num_parameters(more) == num_parameters(mixtral) + rows
    fewer = mixtral.num_hidden_layers * (2 - 2 * 8 / 12) * 3 * 4096 * 14336
    assert num_active_parameters(more) == num_active_parameters(mixtral) + rows - fewer


def test_a_token_meets_the_weights_of_side_products_but_none_of_no_product() -> None:
    model = changed(side_products=((H, 16),), layer_weights=7)
    assert layer_matrix_params_per_token(model) == layer_matrix_params_per_token(LLAMA) + 16 * H
