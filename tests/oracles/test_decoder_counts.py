"""Parameter counts against every decoder class of the installed transformers."""

import pytest

from tests.oracles.decoder_configs import (
    CONFIG_MAPPING,
    built,
    model_types,
    parameters,
    variants,
    written,
)
from trainplan.costmodel.base.errors import PlanError
from trainplan.costmodel.families.reading import model_from_config
from trainplan.costmodel.families.registry import FAMILIES, class_defaults
from trainplan.costmodel.model.params import num_parameters

pytestmark = pytest.mark.oracle
CANNOT_BE_BUILT = ("qwen4_exp_text",)
"""By transformers itself."""


@pytest.mark.parametrize("model_type", sorted(set(model_types()) - {*CANNOT_BE_BUILT}))
def test_a_class_has_as_many_parameters_or_is_refused(model_type):
    for variant, changes in variants(model_type).items():
        config = built(model_type, changes)
        try:
            ours = num_parameters(model_from_config(written(config), model_type))
        except PlanError:
            continue
        unused = _unused_weights(config)
        assert ours == parameters(config) - unused, variant


def _unused_weights(config):
    """Projections that transformers gives to experts which return their input (LongCat)."""
    if config.model_type != "longcat_flash":
        return 0
    one = 2 * config.expert_ffn_hidden_size * config.hidden_size
    return config.num_layers * config.zero_expert_num * one


@pytest.mark.parametrize("model_type", sorted(set(FAMILIES) & set(CONFIG_MAPPING)))
def test_the_recorded_defaults_are_those_of_the_class(model_type):
    fields = CONFIG_MAPPING[model_type].__dataclass_fields__
    for name, value in class_defaults().get(model_type, {}).items():
        if name in fields:
            assert fields[name].default == value, name
