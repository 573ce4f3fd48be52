"""`plan verify`: real processes, lines of JSON, exit codes, refusals."""

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.e2e.command import TINY, plan, plan_process, refused, with_value
from trainplan.profiler.train import trainers


@pytest.fixture(scope="module")
def plan_file(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("plan") / "plan.json"
    job = with_value(TINY, "--cluster", "1x4:h100-sxm")
    fixed = ("--fix", "pp=4", "--fix", "vpp=1", "--fix", "recompute=none")
    found = plan("search", *job, *fixed, "--top", "1", "--output", path)
    assert found.code == 0, found
    return path


@pytest.mark.skipif(find_spec("megatron") is None, reason="needs megatron-core: '.[train]'")
def test_a_plan_computes_what_one_process_does(plan_file: Path):
    found = plan_process("verify", plan_file, "--nproc", "2", "--steps", "1", "--json")
    assert found.code == 0, found
    events = [json.loads(line) for line in found.out.splitlines()]
    assert [event["event"] for event in events] == ["started", "ran", "ended"]
    (one,) = events[-1]["combinations"]
    assert (events[-1]["equal"], events[-1]["complete"]) == (True, True)
    assert events[-1]["verdict"] == "equal: 1 of 1 run"
    assert (one["name"], one["equal"], one["differences"]) == ("pp 2 · uneven", True, [])
    assert one["parameters_equal"]
    assert one["sent_equal"]
    assert one["saved_difference"] == 0
    assert one["seconds"] > 0


def test_a_layout_of_more_gpus_than_the_cluster_has_is_refused_as_by_other_commands(
    plan_file: Path, tmp_path: Path
):
    document = json.loads(plan_file.read_text("utf-8"))
    document["best"]["layout"] |= {"tp": 3}
    path = tmp_path / "edited.json"
    path.write_text(json.dumps(document), "utf-8")
    for command in ("verify", "simulate", "explain"):
        refused(plan(command, path), str(path), "needs tp * cp * pp * dp = 12 GPUs", "has 4")


@pytest.mark.parametrize(
    ("keys", "name"),
    [
        (("memory", "peak_allocated_bytes"), "memory.peak_allocated_bytes"),
        (("memory", "pipeline_ranks", 1, "weights_bytes"), "pipeline_ranks.1.weights_bytes"),
        (("terms", "p2p"), "terms.p2p"),
    ],
)
def test_numbers_that_are_not_those_of_this_version_are_remarked_on(
    plan_file: Path, tmp_path: Path, monkeypatch, keys, name
):
    monkeypatch.setattr(trainers, "find_spec", lambda name: None)
    document = json.loads(plan_file.read_text("utf-8"))
    inner = document["best"]["estimate"]
    for key in keys[:-1]:
        inner = inner[key]
    inner[keys[-1]] *= 10
    path = tmp_path / "edited.json"
    path.write_text(json.dumps(document), "utf-8")
    questions = (("verify", path), ("simulate", path), ("compare", path, path))
    for question in (*questions, ("explain", path, "--time-limit", "0.01")):
        outcome = plan(*question)
        assert f"of {name}, this version " in outcome.err.replace("memory.pipeline", "pipeline")
        assert "states" in outcome.err


def test_without_the_libraries_one_line_says_what_to_install(plan_file: Path, monkeypatch):
    monkeypatch.setattr(trainers, "find_spec", lambda name: None)
    refused(plan("verify", plan_file), "pip install 'trainplan[train]'")


def test_a_file_that_is_no_plan_is_refused(tmp_path: Path):
    path = tmp_path / "none.json"
    path.write_text("{}", "utf-8")
    refused(plan("verify", path), "none.json")
