"""Optimizers as users ask for them."""

import json
from pathlib import Path

import pytest

from tests.e2e.command import LLAMA, plan, refused, with_value
from trainplan.costmodel.optimizers.registry import OPTIMIZERS

SMALL = (
    *("--model", "llama2-7b", "--cluster", "1x1:rtx4090"),
    *("--global-batch-size", "16", "--seq-length", "256"),
)
"""What GaLore was made for: 7 B parameters on a card of 24 GB."""


def test_galore_trains_7b_on_24_gib_and_adamw_does_not():
    low_rank = ("--optimizer", "galore8bit:rank=1024", "--runtime", "torch-eager")
    found = plan("search", *SMALL, *low_rank, "--json").json
    best = found["best"]["estimate"]["memory"]
    assert best["fits"]
    assert best["peak_reserved_bytes"] < 24 * 2**30
    assert found["training"]["optimizer"] == "galore8bit:rank=1024"
    assert ["low-rank projections" in one for one in found["changes_training"]] == [True]
    usual = plan("search", *SMALL, "--runtime", "torch-eager", "--json")
    assert usual.json["schema"].startswith("trainplan/infeasible")
    assert usual.json["changes_training"] == []


def test_a_plan_says_what_changes_the_training_and_why_its_runtime():
    low_rank = ("--optimizer", "galore8bit:rank=1024", "--option", "liger=0.6")
    text = plan("search", *SMALL, *low_rank).out
    joined = " ".join(text.split())
    assert "changes the training: weights move along low-rank projections" in joined
    assert "runtime transformers, the Trainer of transformers" in joined
    assert "galore8bit:rank=1024 · transformers" in joined


def test_an_optimizer_that_the_runtime_lacks_is_refused_with_those_that_have_it():
    layout = ("--layout", "tp=8,pp=4,dp=2")
    given = ("--optimizer", "shampoo", "--runtime", "megatron-lm")
    refused(
        plan("estimate", *LLAMA, *given, *layout),
        "megatron-lm has no optimizer shampoo: use --runtime torch-eager",
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("galore", "optimizer galore needs a rank: write galore:rank=256"),
        ("moun", "unknown optimizer 'moun': did you mean 'muon'"),
        ("muon:rank=3", "optimizer muon has no setting rank: it takes none"),
        ("apollo:rank=0", "rank: must be above 0"),
    ],
)
def test_a_wrong_optimizer_is_one_line(text, says):
    refused(plan("estimate", *LLAMA, "--optimizer", text, "--layout", "tp=8,pp=4"), says)


def test_muon_is_planned_and_exported(tmp_path: Path):
    path = tmp_path / "plan.json"
    job = with_value(with_value(LLAMA, "--model", "llama3-8b"), "--cluster", "2x8:h100-sxm")
    wanted = (*job, "--optimizer", "muon")
    layout = "tp=2,dp=8,sequence_parallel=true,zero_stage=1"
    found = plan("search", *wanted, "--fix", "tp=2", "--fix", "pp=1", "--output", path, "--json")
    assert found.code == 0, found.err
    assert plan("explain", path).code == 0, "no setting of AdamW's is offered"
    assert plan("sweep", path, "--vary", "gpus=16,32").code == 0
    out = tmp_path / "launch"
    assert plan("export", path, "--output-dir", out).code == 0
    scripts = "".join(one.read_text() for one in out.iterdir() if one.is_file())
    assert "--optimizer muon" in scripts
    priced = plan("estimate", *wanted, "--layout", layout, "--json").json
    usual = plan("estimate", *wanted[:-2], "--layout", layout, "--json").json
    assert priced["estimate"]["terms"] != usual["estimate"]["terms"]
    assert (
        priced["estimate"]["memory"]["peak_reserved_bytes"]
        < usual["estimate"]["memory"]["peak_reserved_bytes"]
    )


def test_a_plan_of_before_optimizers_is_one_of_adamw(tmp_path: Path):
    path = tmp_path / "plan.json"
    wanted = with_value(LLAMA, "--model", "llama3-8b")
    plan("search", *wanted, "--fix", "tp=1", "--fix", "pp=1", "--output", path)
    document = json.loads(path.read_text())
    for name in ("optimizer", "state_precision"):
        del document["training"][name]
    del document["changes_training"]
    path.write_text(json.dumps(document))
    assert plan("export", path, "--output-dir", tmp_path / "launch").code == 0


def test_states_of_fp8_lm_are_asked_for_by_level():
    wanted = (*with_value(LLAMA, "--model", "gpt3-175b"), "--layout", "tp=8,pp=4,dp=2")
    wanted = with_value(wanted, "--seq-length", "2048")
    usual, lower = (
        plan("estimate", *wanted, "--state-precision", level, "--json").json
        for level in ("o0", "o2")
    )
    assert lower["training"]["state_precision"] == "o2"
    assert lower["changes_training"] == [
        "gradients, moments or weights are stored in 8 bits between steps"
    ]
    used = [one["estimate"]["memory"]["peak_reserved_bytes"] for one in (usual, lower)]
    assert used[1] < 0.6 * used[0]


def test_the_catalog_lists_every_optimizer_with_its_source():
    found = plan("catalog", "optimizers", "--json").json["optimizers"]
    assert list(found) == list(OPTIMIZERS)
    assert all(one["source"] and one["state"] and one["runtimes"] for one in found.values())
    assert found["adamw"]["bytes_per_param"] == 8
    assert found["adamw8bit"]["bytes_per_param"] == 2 * (1 + 4 / 256)
    assert found["galore"]["bytes_per_param"] == 2 * 256 * (4096 + 2 * 16384) / (4096 * 16384)
    assert found["muon"]["runtimes"]["megatron-lm"] == "muon"
    text = plan("catalog", "optimizers").out
    assert all(name in text for name in OPTIMIZERS)


def test_no_published_run_is_of_another_optimizer():
    """So the answer is beyond what was measured, whatever its layout."""
    wanted = (*with_value(LLAMA, "--model", "llama3-8b"), "--layout", "dp=64,zero_stage=1")
    evidence = plan("estimate", *wanted, "--optimizer", "muon", "--json").json["evidence"]
    assert "optimizer=muon" in [one["value"] for one in evidence["beyond"]]
    usual = plan("estimate", *wanted, "--json").json["evidence"]
    assert not any("optimizer" in str(one["value"]) for one in usual["beyond"])
