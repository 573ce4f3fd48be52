"""`plan simulate`: answers, files, JSON keys, refusals."""

import json
from pathlib import Path

import pytest

from tests.e2e.command import TINY, plan, refused
from trainplan.cli.words import seconds

SIZES = ("--pp", "4", "--num-microbatches", "8")
UNEVEN = ("--forward", "3", "--input-grad", "4", "--weight-grad", "2")
SIMULATED = [
    "trainplan_version",
    "schedule",
    "pp",
    "vpp",
    "num_microbatches",
    "makespan_s",
    "bubble_fraction",
    "lower_bound_s",
    "gap_fraction",
    "optimal",
    "pipeline_ranks",
    "dp_comm_s",
    "optimizer_s",
    "overhead_s",
    "step_time_s",
    "lanes",
]


@pytest.fixture(scope="module")
def plan_file(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("plan") / "plan.json"
    outcome = plan("search", *TINY, "--fix", "pp=4", "--top", "3", "--output", path)
    assert outcome.code == 0, outcome
    return path


def test_a_plan_is_simulated_as_it_was_estimated(plan_file: Path):
    best = json.loads(plan_file.read_text())["best"]
    outcome = plan("simulate", plan_file, "--json")
    assert outcome.err == ""
    found = outcome.json
    assert list(found) == SIMULATED
    assert found["schedule"] == best["layout"]["schedule"]
    assert found["step_time_s"] == pytest.approx(best["estimate"]["step_time_s"])
    terms = best["estimate"]["terms"]
    assert found["dp_comm_s"] == pytest.approx(terms["dp_comm"])
    assert found["optimizer_s"] == pytest.approx(terms["optimizer"] + terms["offload"])
    assert found["overhead_s"] == pytest.approx(terms["overhead"])
    parts = ("makespan_s", "dp_comm_s", "optimizer_s", "overhead_s")
    assert sum(found[part] for part in parts) == pytest.approx(found["step_time_s"])
    assert len(found["pipeline_ranks"]) == 4


def test_another_candidate_of_a_plan_is_simulated(plan_file: Path):
    second = json.loads(plan_file.read_text())["candidates"][1]
    found = plan("simulate", plan_file, "--candidate", "2", "--json").json
    assert found["step_time_s"] == pytest.approx(second["estimate"]["step_time_s"])
    refused(plan("simulate", plan_file, "--candidate", "99"), "no candidate 99")


def test_the_trace_of_a_plan_ends_with_the_optimizer(plan_file: Path, tmp_path: Path):
    trace, order = tmp_path / "trace.json", tmp_path / "schedule.csv"
    outcome = plan("simulate", plan_file, "--trace", trace, "--csv", order)
    assert outcome.code == 0
    assert f"wrote {trace}" in outcome.err
    assert max(map(len, outcome.out.splitlines())) <= 100
    found = plan("simulate", plan_file, "--json").json
    events = json.loads(trace.read_text())["traceEvents"]
    updates = [event for event in events if event["name"] == "optimizer"]
    assert len(updates) == 4
    ends = max(event["ts"] + event["dur"] for event in updates) / 1e6
    whole = found["makespan_s"] + found["dp_comm_s"] + found["optimizer_s"]
    assert ends == pytest.approx(whole)
    scored = plan("schedule", "--from-csv", order, "--json").json
    assert scored["num_microbatches"] == found["num_microbatches"]
    refused(plan("simulate", plan_file, "--trace", trace), "exists; --force replaces it")


def test_a_simulation_says_what_is_proved_and_what_traffic_is(plan_file: Path):
    text = plan("simulate", plan_file).out
    bound = plan("simulate", plan_file, "--json").json["lower_bound_s"]
    proof = text.splitlines()[1]
    assert proof.startswith("No order of ")
    assert proof.endswith(f"ends before {seconds(bound)}.")
    assert "\ntraffic: gradients and weights a rank still sends" in text
    assert "\nthe mean rank waits " in text


def test_the_two_files_of_a_simulation_have_two_names(plan_file: Path, tmp_path: Path):
    both = ("--csv", tmp_path / "x", "--trace", tmp_path / "x")
    refused(plan("simulate", plan_file, *both), "choose two names")
    assert not list(tmp_path.iterdir())


def test_a_plan_made_with_other_numbers_is_remarked_on(plan_file: Path, tmp_path: Path):
    document = json.loads(plan_file.read_text())
    document["best"]["estimate"]["step_time_s"] *= 2
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(document))
    assert "give the --profile it was made with" in plan("simulate", path).err


@pytest.mark.parametrize("text", ["[]", "{}", '{"schema": "x"}', "{", '{"best": 3}'])
def test_no_plan_is_no_plan(tmp_path: Path, text: str):
    path = tmp_path / "plan.json"
    path.write_text(text)
    refused(plan("simulate", path))
    refused(plan("simulate", path, "--candidate", "1"))
