"""A model whose tower is not priced is not said to fit, in any answer."""

import json

import pytest

from tests.e2e.command import TINY, plan, with_value
from trainplan.costmodel.families.reading import model_from_config

TEXT = {
    "model_type": "llama",
    "hidden_size": 256,
    "intermediate_size": 704,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "vocab_size": 1024,
    "max_position_embeddings": 4096,
}
TOWERS = {
    "vision tower": {"vision_config": {"depth": 3}},
    "audio tower": {"audio_config": {}},
    "vision and audio towers": {"vision_config": {}, "audio_config": {"a": 1}},
    "other parts": {"protein_encoder_config": {"a": 1}},
}


def config(others):
    return {"model_type": "seeing", "text_config": TEXT, **others}


@pytest.mark.parametrize("what", TOWERS)
def test_other_parts_that_a_file_describes_are_named(what):
    assert model_from_config(config(TOWERS[what]), "x").left_out == what


def test_a_file_with_its_decoder_alone_leaves_nothing_out():
    assert model_from_config(config({}), "x").left_out is None
    assert model_from_config(TEXT, "x").left_out is None
    assert model_from_config({**TEXT, "rope_parameters": {"rope_theta": 1e4}}, "x").left_out is None


def test_a_tower_that_is_read_is_not_left_out():
    vision = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4}
    seeing = {"model_type": "llava", "text_config": TEXT, "vision_config": vision}
    model = model_from_config(seeing, "x")
    assert model.tower
    assert model.left_out is None


@pytest.fixture
def job(tmp_path):
    path = tmp_path / "seeing.json"
    path.write_text(json.dumps(config(TOWERS["vision tower"])))
    return with_value(TINY, "--model", str(path))


@pytest.mark.parametrize("command", [["search"], ["estimate", "--layout", "tp=1"]])
def test_the_first_line_with_memory_and_the_job_say_without_which_tower(job, command):
    page = " ".join(plan(*command, *job).out.split())
    assert "GiB without its vision tower" in page
    assert "without its vision tower, which is not priced" in page
    assert "Fits, with" not in page


def test_the_documents_say_it_in_a_field_and_a_note(job):
    found = plan("estimate", *job, "--layout", "tp=1", "--json").json
    assert found["model"]["left_out"] == "vision tower"
    assert "not known whether all of it fits" in str(found["provenance"])
