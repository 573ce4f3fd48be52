"""A head whose values are narrower than its keys: every width has its own product."""

from tests.conftest import SMALL_DENSE
from trainplan.costmodel.model.params import (
    attention_matrix_params,
    grouped_columns,
    projected_columns,
    query_columns,
    value_columns,
)

HIDDEN, HEADS, GROUPS, KEY, VALUE = 1024, 15, 5, 64, 40
MODEL = SMALL_DENSE.model_copy(
    update={
        "hidden_size": HIDDEN,
        "num_attention_heads": HEADS,
        "num_key_value_heads": GROUPS,
        "head_dim": KEY,
        "value_head_dim": VALUE,
    }
)


def test_queries_and_keys_have_one_width_and_values_another():
    assert query_columns(MODEL) == HEADS * KEY
    assert grouped_columns(MODEL) == GROUPS * (KEY + VALUE)
    assert value_columns(MODEL) == HEADS * VALUE


def test_projections_are_those_of_their_widths():
    inwards = HEADS * KEY + GROUPS * (KEY + VALUE)
    assert projected_columns(MODEL) == inwards
    assert attention_matrix_params(MODEL) == HIDDEN * (inwards + HEADS * VALUE)


def test_a_projection_that_a_layer_lacks_is_left_out_by_its_own_width():
    keys = MODEL.model_copy(update={"key_value_projections": "keys"})
    assert projected_columns(keys) == HEADS * KEY + GROUPS * KEY
    none = MODEL.model_copy(update={"key_value_projections": "none"})
    assert projected_columns(none) == HEADS * KEY
