"""Launches as people have them, and the right answer to each."""

import json
import os
import tomllib
from functools import cache
from pathlib import Path

import pytest

from tests.e2e.command import plan

FOLDER = Path(__file__).parent / "launches"
CASES = tomllib.loads((FOLDER / "cases.toml").read_text(encoding="utf-8"))["case"]
DEGREES = ("tp", "pp", "vpp", "cp", "dp", "micro_batch_size", "recompute", "zero_stage")
QUICK = ("--time-limit", "0.01", "--json")


def job_of(document):
    """What of a job the cases name."""
    job = document["job"]
    training = {name: job["training"][name] for name in ("seq_length", "global_batch_size")}
    return {"model": job["model"]["name"], **training}


def cluster_of(document):
    [group] = document["job"]["cluster"]["groups"]
    return f"{group['num_nodes']}x{group['gpus_per_node']}:{group['gpu']}"


@pytest.mark.parametrize("case", CASES, ids=lambda one: one["id"])
def test_a_launch_is_read_as_its_runtime_would(case, monkeypatch):
    monkeypatch.chdir(FOLDER / case["id"])
    done = plan("check", *case["run"].split(), *QUICK)
    text = done.out + done.err
    for word in case.get("never", ()):
        assert word not in text
    for word in case.get("says", ()):
        assert word in text
    if done.code and not {"layout", "legal", "job"} & case.keys():
        return  # refused by name
    found = done.json
    assert found["legal"] is case["legal"] if "legal" in case else found["legal"] is not False
    if "runtime" in case:
        assert found["runtime"] == case["runtime"]
    layout = case.get("layout", {})
    assert {name: found["layout"][name] for name in layout} == layout
    if "job" in case:
        assert {name: job_of(found)[name] for name in case["job"]} == case["job"]
    if "cluster" in case:
        assert cluster_of(found).startswith(case["cluster"])


def test_adapters_of_a_launch_are_trained_alone(monkeypatch):
    monkeypatch.chdir(FOLDER / "hf_lora_flags")
    found = plan("check", "train.sh", "--model", "llama3.1-70b", *QUICK).json
    assert found["job"]["model"]["trained"]["rank"] == 16


@pytest.mark.parametrize("name", ["fifo.sh", "fifo.yaml"])
def test_what_is_no_regular_file_is_refused_at_once(name, tmp_path):
    os.mkfifo(tmp_path / name)
    done = plan("check", tmp_path / name)
    assert done.code and name in done.err


def test_a_yaml_of_two_megabytes_is_refused_at_once(tmp_path):
    path = tmp_path / "long.yaml"
    path.write_text("".join(f"key{n}: {n}\n" for n in range(150_000)))
    done = plan("check", path)
    assert done.code and len(done.err.splitlines()) == 1


@pytest.fixture(scope="module")
def planned(tmp_path_factory):
    """Of a runtime the file of a plan, searched once."""

    @cache
    def made(runtime):
        path = tmp_path_factory.mktemp(runtime) / "plan.json"
        words = ("--model", "llama3-8b", "--cluster", "2x8:h100-sxm", "--seq-length", "4096")
        more = ("--global-batch-size", "64", "--runtime", runtime, "--output", path)
        assert not plan("search", *words, *more, "--fix", "stages=even", "--slack", "0").code
        return path

    return made


@pytest.mark.grid
@pytest.mark.parametrize("launcher", ["slurm", "mpi", "kubernetes", "pytorchjob", "skypilot"])
@pytest.mark.parametrize("runtime", ["megatron-lm", "deepspeed"])
def test_an_export_for_a_launcher_comes_back(planned, runtime, launcher, tmp_path):
    made, folder = planned(runtime), tmp_path / "launch"
    assert not plan("export", made, "--launcher", launcher, "--output-dir", folder).code
    written = json.loads(made.read_text())
    [file] = [one for one in folder.iterdir() if one.suffix in (".sh", ".yaml", ".sbatch")]
    found = plan("check", file, *QUICK).json
    assert found["legal"] is True
    layout = written["best"]["layout"]
    assert {name: found["layout"][name] for name in DEGREES} == {n: layout[n] for n in DEGREES}
    step = written["best"]["estimate"]["step_time_s"]
    assert found["estimate"]["step_time_s"] == pytest.approx(step, rel=1e-12)


def test_a_search_plans_nothing_that_its_runtime_cannot_be_given(tmp_path):
    words = ("--model", "qwen3-30b-a3b", "--cluster", "2x8:h100-sxm", "--seq-length", "4096")
    more = ("--global-batch-size", "256", "--runtime", "megatron-zero-bubble", "-o", "p.json")
    done = plan("search", *words, *more)
    assert done.code == 2 and "experts" in done.err and "megatron-lm" in done.err
