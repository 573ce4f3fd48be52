"""Every decoder class of transformers is read to its exact count, or refused by a field."""

import re

import pytest

from tests.golden import composites
from tests.golden.decoder_counts import Recorded, recorded
from trainplan.costmodel.base import PlanError
from trainplan.costmodel.families.reading import model_from_config
from trainplan.costmodel.families.registry import NOT_MODELLED, READ_BY_NAME, SAME
from trainplan.costmodel.model.params import num_parameters
from trainplan.costmodel.presets.presets import preset_config, preset_names

RECORDED = recorded()
LEAST_READ = 0.9
"""Of all classes, read whole by default and small, with every number equal."""


def count(one: Recorded) -> int | None:
    """Parameters as counted here; null: refused with a sentence."""
    try:
        return num_parameters(model_from_config(one.config, one.model_type))
    except PlanError as error:
        assert re.search(r"'[\w.]+'", str(error)) or one.model_type in NOT_MODELLED
        return None


@pytest.mark.parametrize("one", RECORDED, ids=lambda one: f"{one.model_type}-{one.variant}")
def test_a_configuration_has_the_count_of_transformers_or_is_refused(one: Recorded) -> None:
    assert count(one) in (one.parameters, None)


def test_nine_of_ten_classes_are_read() -> None:
    small = [one for one in RECORDED if one.variant == "small"]
    read = [one for one in small if count(one) == one.parameters]
    assert len(read) >= LEAST_READ * len(small)


NO_FIELD_SAYS = 0.002
"""Norms of heads, and biases, that code has and no field names: their share of small models."""


@pytest.mark.parametrize(
    "one", [one for one in RECORDED if one.variant == "small"], ids=lambda one: one.model_type
)
def test_a_configuration_of_an_unheard_of_name_is_refused_or_right_but_for_norms_and_biases(
    one: Recorded,
) -> None:
    renamed = {**one.config, "model_type": "unheard_of"}
    try:
        model = model_from_config(renamed, "renamed")
    except PlanError:
        return
    assert model.read_by_fields
    assert num_parameters(model) == pytest.approx(one.parameters, rel=NO_FIELD_SAYS)


def test_every_family_of_the_tables_has_a_record() -> None:
    """Or a preset, or a larger model; but for older names of a class, and four that have none."""
    presets = {preset_config(name)["model_type"] for name in preset_names()}
    inside = {one["config"][one["section"]]["model_type"] for one in composites.recorded().values()}
    missing = READ_BY_NAME - {one.model_type for one in RECORDED} - presets - inside - set(SAME)
    assert missing == {"bailing_moe", "bailing_moe_v2", "step3_text", "glm_image_text"}, (
        "record its class or add a preset: docs/how-to/add-a-rule-or-exporter.md"
    )


@pytest.mark.parametrize("name", sorted(SAME))
def test_a_decoder_under_another_name_has_the_same_count(name: str) -> None:
    one = next(one for one in RECORDED if one.model_type == SAME[name])
    renamed = Recorded(name, one.variant, {**one.config, "model_type": name}, one.parameters)
    assert count(renamed) == one.parameters
