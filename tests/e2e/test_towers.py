"""Models that see, as users type them: searched, written, exported or refused."""

import json
from pathlib import Path

import pytest

from tests.e2e.command import plan

CONFIG = {
    "model_type": "qwen2_5_vl",
    "hidden_size": 1024,
    "intermediate_size": 2816,
    "max_position_embeddings": 32_768,
    "num_attention_heads": 16,
    "num_hidden_layers": 6,
    "num_key_value_heads": 4,
    "vocab_size": 32_000,
    "vision_config": {
        **{"depth": 8, "hidden_size": 640, "intermediate_size": 1710, "num_heads": 8},
        **{"out_hidden_size": 1024, "fullatt_block_indexes": [3, 7]},
    },
}


@pytest.fixture(name="wanted")
def _requested(tmp_path: Path):
    """Options of a search for a small model that sees."""
    folder = tmp_path / "my-vl"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    machine = ("--cluster", "1x4:h100-sxm", "--search-options", "none")
    return "--model", folder, *machine, "--global-batch-size", "16", "--seq-length", "2048"


def test_a_page_says_what_the_model_sees(wanted):
    page = plan("search", *wanted, "--tower", "samples=2,patches=256").out
    assert "with a vision tower of" in page
    assert "2 samples a sequence, each of 256 patches and 64 tokens · trained" in " ".join(
        page.split()
    )
    assert "runtime megatron-bridge, which" in page
    assert "megatron-lm cannot express a vision tower" in " ".join(page.split())
    assert "assumed: a sample" not in page


def test_patches_that_nobody_stated_are_said_to_be_assumed(wanted):
    page = " ".join(plan("search", *wanted).out.split())
    assert "assumed: a sample has 1,024 patches, 256 tokens" in page


def test_a_plan_with_a_tower_is_read_back_and_exported(wanted, tmp_path):
    file, folder = tmp_path / "plan.json", tmp_path / "launch"
    more = ("--runtime", "accelerate", "--tower", "frozen=encoder", "--output", file)
    plan("search", *wanted, *more)
    assert json.loads(file.read_text())["model"]["tower"]["frozen"] == "encoder"
    stated = plan("export", file, "--launcher", "torchrun", "--output-dir", folder).out
    assert "requires_grad to False for all of it but the projectors" in " ".join(stated.split())


def test_a_tower_apart_is_told_and_not_exported(wanted, tmp_path):
    file = tmp_path / "plan.json"
    fix = ("--fix", "tower=apart", "--output", file)
    page = " ".join(plan("search", *wanted, *fix).out.split())
    apart = json.loads(file.read_text())["apart"]
    assert "Tower on its own GPUs:" in page
    assert "Unified, on the first stage of all GPUs, a step takes" in page
    assert "GPUs of the tower bound step" in page
    assert apart["tower_gpus"] + apart["decoder_gpus"] == 4
    for command in (("export", file), ("tune", file, "--launcher", "torchrun")):
        refused = plan(*command, "--output-dir", tmp_path / "x")
        assert refused.code != 0
        assert f"{file}: no launch files are written for a tower on GPUs of its" in refused.err
    explained = plan("explain", file, "--time-limit", "0.1")
    assert explained.code == 0
    assert "this version" not in explained.err, "its numbers are those of this version"
