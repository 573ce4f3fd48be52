"""Names as newcomers type them, through the commands."""

import json
from pathlib import Path

import pytest

from tests.e2e.command import TINY, plan, with_value
from trainplan.costmodel.presets.clusters import machines
from trainplan.costmodel.presets.presets import preset_names, repositories


def test_a_name_of_hugging_face_is_said_and_answers_as_its_preset():
    named = plan("search", *with_value(TINY, "--model", "OpenAI-Community/gpt2"), "--json")
    assert named.err == "model gpt2 (openai-community/gpt2)\n"
    plain = plan("search", *TINY, "--json")
    assert plain.err == ""
    first, second = ({**done.json, "certificate": None} for done in (named, plain))
    assert first == second


def test_a_variant_is_said_to_have_the_architecture_and_what_is_left_out():
    done = plan("catalog", "models", "google/gemma-3-27b-it")
    assert "On Hugging Face: google/gemma-3-27b-pt" in done.out
    job = with_value((*TINY, "--layout", "tp=8,sp=true"), "--model", "google/gemma-3-27b-it")
    assert plan("estimate", *job).err == (
        "model gemma3-27b (google/gemma-3-27b-pt), the architecture of google/gemma-3-27b-it: "
        "the language model alone; config.json has its vision tower too\n"
    )


def test_the_catalog_shows_the_name_of_every_model_and_the_source_of_every_machine():
    page = plan("catalog", "models").out
    for name in preset_names():
        assert all(one[:20] in page for one in repositories(name)[:1]), name
    shown = json.loads(plan("catalog", "clusters", "--json").out)["machines"]
    assert shown.keys() == machines().keys()
    assert all(entry["source"] for entry in shown.values())
    page = plan("catalog", "clusters").out
    assert all(name[:20] in page for name in machines())


def test_the_catalog_knows_a_gpu_by_its_short_name():
    assert plan("catalog", "gpus", "h100").out == plan("catalog", "gpus", "h100-sxm").out


def test_a_folder_with_the_name_of_a_machine_is_no_cluster_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "p5").mkdir()
    monkeypatch.chdir(tmp_path)
    assert plan("estimate", *with_value((*TINY, "--layout", "tp=1"), "--cluster", "p5")).code == 0


def test_a_machine_of_a_cloud_is_planned_with_its_host():
    job = with_value((*TINY, "--layout", "tp=1"), "--cluster", "p5.48xlarge")
    done = plan("estimate", *job, "--json")
    assert "1 node of 8 h100-sxm, 50 GB/s of network (efa) for each GPU" in done.err
    assert '"like": "p5"' in done.out
