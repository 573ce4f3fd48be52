"""Parameter counts of models with towers against transformers' own on the meta device."""

import json
from pathlib import Path

import pytest

from tests.conftest import SMALL_DENSE
from tests.oracles.towers import (
    CASES,
    config_of,
    file_of,
    image,
    parameters_of,
    torch,
    transformers,
)
from trainplan.costmodel.architecture.tower import TowerSpec
from trainplan.costmodel.families.reader import HfConfig
from trainplan.costmodel.families.reading import model_from_config
from trainplan.costmodel.families.towers import TOWERS
from trainplan.costmodel.families.towers.encoders import encoder_of
from trainplan.costmodel.model.params import num_parameters
from trainplan.costmodel.towers.tower import tower_params

pytestmark = pytest.mark.oracle
RECORDED = json.loads((Path(__file__).parents[1] / "golden" / "towers.json").read_text())


@pytest.mark.parametrize("name", CASES)
def test_a_model_with_a_tower_has_as_many_parameters_as_in_transformers(name):
    values = file_of(name)
    assert num_parameters(model_from_config(values, name)) == parameters_of(values)


@pytest.mark.parametrize("name", CASES)
def test_a_file_that_transformers_wrote_is_read_the_same(name):
    written = json.loads(config_of(file_of(name)).to_json_string(use_diff=False))
    assert num_parameters(model_from_config(written, name)) == parameters_of(file_of(name))


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_counts_are_those_of_transformers(name):
    assert parameters_of(RECORDED[name]["config"]) == RECORDED[name]["parameters"]


def test_the_tower_of_llama_4_has_as_many_parameters():
    vision = image("llama4_vision_model", intermediate_size=512, projector_input_dim=96)
    vision |= {"projector_output_dim": 96, "vision_output_dim": 96}
    text = {"hidden_size": SMALL_DENSE.hidden_size, "num_hidden_layers": 1}
    file = {"vision_config": vision, "text_config": {**text, "vocab_size": 100}}
    with torch.device("meta"):
        config = config_of({"model_type": "llama4", **file})
        model = transformers.Llama4ForConditionalGeneration(config)
    parts = (model.vision_model, model.multi_modal_projector)
    own = sum(weight.numel() for part in parts for weight in part.parameters())
    read = HfConfig("", "llama4", file)
    fields = encoder_of(read.section("vision_config"), "llama4_vision_model")
    joined = TOWERS["llama4"].joined(read, fields, SMALL_DENSE)
    assert tower_params(TowerSpec.model_validate(fields | joined)) == own
