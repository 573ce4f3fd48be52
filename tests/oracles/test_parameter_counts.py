"""Parameter counts against models built in torch on the meta device."""

import pytest

from tests.oracles.decoder import Decoder, torch
from trainplan.costmodel.model.params import num_parameters
from trainplan.costmodel.presets.presets import preset, preset_names

pytestmark = pytest.mark.oracle


PLAIN = [
    name
    for name in preset_names()
    if {kind.mixer for kind in preset(name).kinds} <= {"full_attention", "sliding_attention"}
    and preset(name).tower is None
]
"""Presets of one decoder layer of attention without a tower; tests/golden counts the others."""


@pytest.mark.parametrize("name", PLAIN)
def test_a_model_built_in_torch_has_as_many_parameters(name):
    model = preset(name)
    with torch.device("meta"):
        decoder = Decoder(model)
    assert sum(weight.numel() for weight in decoder.parameters()) == num_parameters(model)
