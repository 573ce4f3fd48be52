"""`plan check` as a user meets it: a launch read, judged, improved and written again."""

import json
from pathlib import Path

import pytest

from tests.e2e.command import TINY, plan, refused

GPT2 = """\
--num-layers 12 --hidden-size 768 --num-attention-heads 12 --seq-length 1024
--max-position-embeddings 1024 --vocab-size 50257 --tokenizer-type NullTokenizer --mock-data
--micro-batch-size 1 --global-batch-size 64 --train-iters 10 --lr 1e-4 --bf16
"""
SCRIPT = """\
#!/bin/bash
export CUDA_DEVICE_MAX_CONNECTIONS=1
GPUS=${GPUS:-8}
ARGS="
%s
"
torchrun --nproc_per_node $GPUS pretrain_gpt.py $ARGS \\
  --tensor-model-parallel-size %d
"""
QUICK = ("--time-limit", "5")


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.sh"
    path.write_text(SCRIPT % (GPT2.strip(), 4))
    return path


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, object], Path]:
    """What is answered of the script, and the launch that is written of it."""
    folder = tmp_path_factory.mktemp("written")
    path, fixed = folder / "train.sh", folder / "fixed.sh"
    path.write_text(SCRIPT % (GPT2.strip(), 4))
    return document(path, "--write", fixed), fixed


def document(*arguments: str | Path) -> dict[str, object]:
    done = plan("check", *QUICK, *arguments, "--json")
    assert done.code == 0, done.err
    return done.json


def test_the_answer_comes_first_then_what_each_slip_costs_then_the_edits(script: Path):
    done = plan("check", script, *QUICK)
    assert done.code == 0, done.err
    first = done.out.splitlines()[0]
    assert first.startswith("It runs and fits: ")
    assert "times as fast" in first
    assert "train.sh:10" in done.out
    assert max(len(line) for line in done.out.splitlines()) <= 100


def test_json_has_what_a_program_asks_for(written: tuple[dict[str, object], Path]):
    found, _ = written
    assert found["schema"] == "trainplan/check/v1"
    assert found["legal"] is True
    assert found["fits"] is True
    layout, job = found["layout"], found["job"]
    assert isinstance(layout, dict) and isinstance(job, dict)
    assert (layout["tp"], layout["dp"], layout["sequence_parallel"]) == (4, 2, False)
    assert job["training"]["global_batch_size"] == 64
    fields = {field["name"]: field for field in found["fields"]}
    assert fields["layout.tp"]["line"] == 10
    assert fields["layout.sequence_parallel"]["origin"] == "default"
    assert fields["cluster.gpu"]["origin"] == "assumed"
    edits = found["edits"]
    assert isinstance(edits, list) and edits
    assert all(edit["saved_s"] > 0 for edit in edits)


def test_a_command_is_read_as_a_script_is(
    written: tuple[dict[str, object], Path], tmp_path: Path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    words = (
        "env",
        "CUDA_DEVICE_MAX_CONNECTIONS=1",
        "torchrun",
        "--nproc_per_node",
        "8",
        "pretrain_gpt.py",
        *GPT2.split(),
    )
    words = ("--time-limit", "0.1", "--json", "--", *words, "--tensor-model-parallel-size", "4")
    done = plan("check", *words)
    assert done.code == 0, done.err
    assert done.json["layout"] == written[0]["layout"]


def test_the_launch_writes_the_best_it_prints(
    script: Path, written: tuple[dict[str, object], Path]
):
    fixed, edits = written[1], written[0]["edits"]
    assert isinstance(edits, list)
    again = document(fixed, "--time-limit", "0.1")
    assert again["legal"] is True
    assert again["layout"] == edits[0]["layout"]
    assert again["estimate"]["step_time_s"] == pytest.approx(edits[0]["step_time_s"], rel=1e-6)
    assert "exists" in refused(plan("check", script, *QUICK, "--write", fixed))


def test_an_illegal_launch_is_refused_with_its_line_and_with_what_makes_it_run(tmp_path: Path):
    path = tmp_path / "train.sh"
    path.write_text(SCRIPT % (GPT2.strip(), 8))
    found = document(path)
    assert found["legal"] is False
    (problem, *_) = [one for one in found["problems"] if one["verdict"] == "illegal"]
    assert problem["line"] == 10
    assert found["edits"]


def test_what_only_a_run_tells_is_asked_for_by_name(tmp_path: Path):
    path = tmp_path / "train.sh"
    text = (SCRIPT % (GPT2.strip(), 4)).replace("${GPUS:-8}", "$(touch pwned; nvidia-smi -L)")
    path.write_text(text)
    found = document(path)
    assert any("--set GPUS=VALUE" in one["says"] for one in found["problems"])
    given = document(path, "--set", "GPUS=8", "--time-limit", "0.1")
    assert given["layout"]["dp"] == 2
    assert not (tmp_path / "pwned").exists()


def test_the_machine_may_be_named(script: Path):
    found = document(script, "--cluster", "1x8:a100-sxm-80gb", "--time-limit", "0.1")
    assert found["job"]["cluster"]["groups"][0]["gpu"] == "a100-sxm-80gb"


def test_an_exported_plan_checks_as_itself(tmp_path: Path):
    made, launch = tmp_path / "plan.json", tmp_path / "launch"
    assert plan("search", *TINY, "--output", made).code == 0
    assert plan("export", made, "--output-dir", launch).code == 0
    found = document(launch / "run.sh", "--memory-margin", "0.05")
    assert found["legal"] is True
    best = json.loads(made.read_text())["best"]["layout"]
    names = ("tp", "pp", "vpp", "cp", "dp", "micro_batch_size", "recompute", "zero_stage")
    assert {name: found["layout"][name] for name in names} == {name: best[name] for name in names}
    assert found["edits"] == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("missing.sh",), ("missing.sh", "no such file")),
        (("--set", "x", "a.sh"), ("NAME=VALUE",)),
        (("--set", "X=1", "--set", "X=2", "a.sh"), ("given twice",)),
        (("--", "ls", "-l"), ("starts no training",)),
        (("helped.sh",), ("no runtime is known to start hello.py:",)),
        (("--", "torchrun", "hello.py"), ("no runtime is known to start hello.py",)),
    ],
)
def test_what_is_no_launch_is_said_in_one_line(arguments, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("helped.sh").write_text("python make.py\nsrun -N 2 --ntasks-per-node 8 python hello.py\n")
    refused(plan("check", *arguments), *words)


def test_adapters_without_a_narrow_format_are_read_and_not_priced():
    words = ("torchrun", "--nproc_per_node", "8", "train.py", "--fsdp", "full_shard", "--use_peft")
    more = ("--model_name_or_path", "Qwen/Qwen3-8B", "--max_length", "4096")
    done = plan("check", *QUICK, "--json", "--", *words, *more)
    assert done.code == 0, done.err
    assert (done.json["legal"], done.json["job"], done.json["estimate"]) == (None, None, None)
    assert any("16 bits" in one["says"] for one in done.json["problems"])
