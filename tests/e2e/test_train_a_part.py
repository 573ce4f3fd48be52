"""`--train` and `--loss-tokens` as users type them."""

import json

import pytest

from tests.e2e.command import plan

JOB = (
    *("--model", "llama3.1-8b", "--cluster", "1x8:h100-sxm"),
    *("--global-batch-size", "32", "--seq-length", "4096"),
)
SHARDED = ("--runtime", "deepspeed", "--layout", "dp=8,zero_stage=1")
CHANGES = "changes the training: "


def test_a_plan_says_in_one_line_that_adapters_change_the_training():
    found = plan("estimate", *JOB, *SHARDED, "--train", "qlora:rank=16")
    lines = [line for line in found.out.splitlines() if line.startswith(CHANGES)]
    assert len(lines) == 1
    assert "4 bits" in lines[0]
    assert "qlora:rank=16,modules=all" in found.out
    assert CHANGES not in plan("estimate", *JOB, *SHARDED).out


def test_full_is_what_is_priced_without_the_option():
    usual, full = (
        json.loads(plan("estimate", *JOB, *SHARDED, *more, "--json").out)
        for more in ((), ("--train", "full"))
    )
    assert usual["estimate"] == full["estimate"]
    assert usual["model"] == full["model"]
    assert usual["model"]["trained"] is None


def test_an_exported_launch_is_checked_with_the_words_that_planned_it(tmp_path):
    train = ("--train", "lora:rank=16,modules=q,v")
    written = tmp_path / "plan.json"
    searched = plan("search", *JOB, "--runtime", "deepspeed", *train, "--output", str(written))
    assert searched.code == 0
    launch = tmp_path / "launch"
    assert plan("export", str(written), "--output-dir", str(launch)).code == 0
    assert 'target_modules=["q_proj", "v_proj"]' in (launch / "trained.py").read_text("utf-8")
    found = plan(
        *("check", "--model", "llama3.1-8b", *train, "--seq-length", "4096"),
        *("--cluster", "1x8:h100-sxm", str(launch / "ds_config.json")),
    )
    step = searched.out.splitlines()[1].split(" a step")[0]
    assert f"It runs and fits: {step} a step" in found.out


UNTRAINED = ("--layout", "dp=8", "--runtime", "megatron-lm")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("estimate", *JOB, *UNTRAINED, "--train", "qlora:rank=8"), "megatron-lm: use"),
        (("estimate", *JOB, *SHARDED, "--train", "frozen:tower"), "has no tower"),
        (("estimate", *JOB, *SHARDED, "--train", "lora:rank=8,modules=x"), "no layer has"),
        (("estimate", *JOB, *SHARDED, "--loss-tokens", "0"), "--loss-tokens"),
        (("estimate", *JOB, *SHARDED, "--loss-tokens", "nan"), "--loss-tokens"),
    ],
)
def test_what_cannot_be_trained_is_one_line(words, says):
    found = plan(*words)
    assert found.code == 2
    assert says in found.err
    assert found.err.count("\n") == 1
