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
    assert events[-1]["equal"] is True
    assert (one["name"], one["equal"], one["differences"]) == ("pp 2 · uneven", True, [])
    assert one["parameters_equal"]
    assert one["sent_equal"]
    assert one["saved_difference"] == 0
    assert one["seconds"] > 0


def test_without_the_libraries_one_line_says_what_to_install(plan_file: Path, monkeypatch):
    monkeypatch.setattr(trainers, "find_spec", lambda name: None)
    refused(plan("verify", plan_file), "pip install 'trainplan[train]'")


def test_a_file_that_is_no_plan_is_refused(tmp_path: Path):
    path = tmp_path / "none.json"
    path.write_text("{}", "utf-8")
    refused(plan("verify", path), "none.json")
