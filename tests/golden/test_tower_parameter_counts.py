"""Published models with towers have as many parameters as transformers 5.24 builds them with.

Sizes are those of the published config.json of each model; counts are of transformers' models on
the meta device, which tests/oracles/test_tower_parameters.py builds again.
"""

import json
from pathlib import Path

import pytest

from trainplan.costmodel.families.reading import model_from_config
from trainplan.costmodel.model.params import num_parameters

RECORDED = json.loads((Path(__file__).parent / "towers.json").read_text())


@pytest.mark.parametrize("name", RECORDED)
def test_a_published_model_with_a_tower_is_counted_to_the_digit(name):
    model = model_from_config(RECORDED[name]["config"], name)
    assert model.tower is not None
    assert num_parameters(model) == RECORDED[name]["parameters"]
