"""`--report` of commands whose answer is no plan, and `plan report` of what they printed."""

import json
from pathlib import Path

import pytest

from tests.e2e.command import TINY, plan, refused

PROFILE = Path(__file__).parents[2] / "examples" / "accuracy" / "profiles" / "sailor-gh200.json"


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("plan") / "plan.json"
    assert plan("search", *TINY, "--output", path).code == 0
    return path


@pytest.mark.parametrize(
    "command",
    [("compare", "PLAN", "PLAN"), ("sweep", "PLAN", "--vary", "gpus=8")],
    ids=lambda command: command[0],
)
def test_the_option_writes_what_plan_report_makes_of_the_json(command, written, tmp_path):
    words = [written if word == "PLAN" else word for word in command]
    outcome = plan(*words, "--json", "--report", tmp_path / "beside.html")
    assert (outcome.code, outcome.err.splitlines()[-1]) == (0, f"wrote {tmp_path / 'beside.html'}")
    (tmp_path / "answer.json").write_text(outcome.out)
    assert plan("report", tmp_path / "answer.json", "--output", tmp_path / "of.html").code == 0
    alongside, of = ((tmp_path / name).read_text() for name in ("beside.html", "of.html"))
    assert alongside == of
    assert outcome.json["verdict"] in of


def test_a_report_that_exists_is_refused_before_anything_is_done(written, tmp_path):
    path = tmp_path / "report.html"
    path.write_text("mine")
    wanted = ("sweep", written, "--vary", "gpus=8", "--report", path)
    refused(plan(*wanted), "exists; --force replaces it")
    assert path.read_text() == "mine"
    assert plan(*wanted, "--force").code == 0
    assert path.read_text().startswith("<!doctype html>")


def test_a_document_with_a_wrong_field_is_refused_with_its_name(written, tmp_path):
    document = plan("compare", written, written, "--json").json
    document["first"]["estimate"]["memory"]["pipeline_ranks"] = []
    path = tmp_path / "compare.json"
    path.write_text(json.dumps(document))
    where = "first.estimate: memory.pipeline_ranks is empty"
    refused(plan("report", path, "--output", tmp_path / "x.html"), f"{path}", where)
    assert not (tmp_path / "x.html").exists()


def test_a_profile_whose_curve_cannot_be_is_refused(tmp_path):
    document = json.loads(PROFILE.read_text())
    document["fitted"]["collectives"]["p2p_2"]["bus_gb_per_s"] = 0
    path = tmp_path / "profile.json"
    path.write_text(json.dumps(document))
    refused(plan("report", path, "--output", tmp_path / "x.html"), "fitted.collectives.p2p_2")


def test_the_folder_of_a_tuning_run_has_a_report(written, tmp_path):
    machine, folder = tmp_path / "machine.json", tmp_path / "tuned"
    machine.write_text(json.dumps({"schema": "trainplan/simulated-machine/v1", "seed": 1}))
    wanted = ("--simulate", machine, "--trials", "1", "--output-dir", folder)
    assert plan("tune", written, *wanted, "--report", tmp_path / "beside.html").code == 0
    assert plan("report", folder, "--output", tmp_path / "of.html").code == 0
    assert "What remains possible" in (tmp_path / "of.html").read_text()
    assert "What remains possible" in (tmp_path / "beside.html").read_text()
