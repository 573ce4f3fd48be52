"""Runs that name a model whose sizes are known."""

import pytest

from tests.unit.costmodel.validate.test_validate_unstated import case, run_of
from trainplan.costmodel.presets.presets import preset
from trainplan.costmodel.validate.cases.cases import case_of

NO_SIZES = dict.fromkeys(
    ("num_layers", "hidden_size", "intermediate_size", "num_attention_heads", "vocab_size")
)
SUPER = {**NO_SIZES, "head_dim": None, "name": "Nemotron-3-Super", "gated_mlp": False}


def test_a_run_without_sizes_takes_those_of_the_preset_it_names():
    found = case("megatron-bridge", model=SUPER).job.model
    known = preset("nemotron-3-super")
    assert found == known.model_copy(update={"name": "Nemotron-3-Super"})


def test_what_a_run_says_of_predictions_counts_more_than_its_preset():
    found = case("megatron-bridge", model=SUPER | {"mtp_layers": 2}).job.model
    assert (
        preset("nemotron-3-super").num_nextn_predict_layers,
        found.num_nextn_predict_layers,
    ) == (
        1,
        2,
    )


def test_a_run_that_states_one_size_states_all():
    assert case_of(run_of(model=SUPER | {"num_layers": 88})).reason == "incomplete"


def test_a_run_of_an_unknown_name_needs_its_sizes():
    found = case_of(run_of(model=SUPER | {"name": "Nemotron-3-Mega"}))
    assert found.detail == "model.num_attention_heads is not stated"


def test_experts_of_a_preset_are_spread_as_the_layout_says():
    layout = {"ep": 8, "tp": 1, "pp": 1, "micro_batch_size": 1}
    assert case("megatron-bridge", model=SUPER, layout=layout).layout.ep == 8


def wide(**values):
    training = {"precision": "mxfp8", "wide": values}
    return case("megatron-bridge", model=SUPER, training=training).job.model


def test_first_and_last_layers_may_multiply_in_16_bits():
    model = wide(layers_at_start=1, layers_at_end=14)
    found = [model.kinds[kind].wide_products for kind in model.kind_of_layer]
    assert found == [True] + [False] * 73 + [True] * 14


def test_layers_that_attend_may_multiply_in_16_bits():
    model = wide(attention=True)
    kinds = [model.kinds[kind] for kind in model.kind_of_layer]
    assert {(k.mixer, k.wide_products) for k in kinds} == {
        ("mamba", False),
        ("none", False),
        ("full_attention", True),
    }


def test_modules_of_prediction_may_multiply_in_16_bits():
    model = wide(layers_at_end=14, mtp=True, latent=True)
    module = [model.kinds[kind] for kind in model.kinds_of_module]
    assert [(k.mixer, k.wide_products) for k in module] == [
        ("full_attention", True),
        ("none", True),
    ]
    assert module[1].moe.wide_latent


@pytest.mark.parametrize(
    ("model", "values"),
    [({}, {"layers_at_end": 1}), (SUPER, {"mtp": True})],
)
def test_what_is_wide_is_needed_by_name_of_layers(model, values):
    training = {"precision": "mxfp8", "wide": values}
    found = case_of(run_of("megatron-bridge", model=model, training=training))
    assert found.reason == "incomplete"
    assert found.detail.startswith("training.wide")
