"""`plan replan`: the answer, its files, what it refuses."""

import json
from typing import get_args

import pytest

from tests.e2e.command import SMALLER, plan, refused, with_value
from trainplan.cli.options.names import SAVED, TAKEN
from trainplan.planner.replan import Replan, Saved

TIMES = ("--since-save", "12m", "--restart", "10m", "--repair", "2h")
QUICK = ("--search-options", "none", "--top", "3", "--fix", "stages=even", "--slack", "0")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    path = tmp_path_factory.mktemp("plans") / "plan.json"
    assert plan("search", *SMALLER, *QUICK, "--output", path).code == 0
    return path


def test_the_answer_is_a_plan_that_is_exported(made, tmp_path):
    path, page = tmp_path / "next.json", tmp_path / "next.html"
    done = plan("replan", made, "--lost", "1", *TIMES, "--output", path, "--report", page, "--json")
    found = done.json
    assert found["lost_nodes"] == 1
    assert found[found["take"]]["plan"] == json.loads(path.read_text())
    assert [one["lost_s"] for one in found["ways"]] == sorted(o["lost_s"] for o in found["ways"])
    assert plan("export", path, "--output-dir", tmp_path / "launch").code == 0
    assert (tmp_path / "launch" / "run.sh").read_text()
    assert page.read_text().startswith("<!doctype html>")
    assert plan("replan", path, "--cluster", "2x8:h100-sxm").code == 0


def test_its_page_says_what_to_do_and_what_is_not_stated(made):
    shown = plan("replan", made, "--lost", "1").out
    assert shown.splitlines()[0].startswith("Go on with 8 GPUs at ")
    assert "How long a restart takes is not stated" in shown
    assert "not known" in shown
    spare = plan("replan", made, "--lost", "1", *TIMES, "--spare-nodes", "1").out
    assert spare.startswith("Spare nodes take their place, and the plan stays as it is.")
    brief = plan("replan", made, "--lost", "1", *TIMES[:4], "--repair", "1m").out
    assert brief.startswith("Wait for the nodes: that loses least.")
    assert "\non what is left: tp" in brief


def test_a_plan_that_stays_as_it_is_is_not_written_anew(made, tmp_path):
    path = tmp_path / "next.json"
    words = ("replan", made, "--lost", "1", *TIMES, "--spare-nodes", "1", "--output", path)
    done = plan(*words, "--json")
    assert (done.code, done.json["take"], path.exists()) == (0, None, False)
    assert "nothing is written: the plan stays as it is" in done.err
    assert plan(*words, "--take", "best").code == 0
    assert json.loads(path.read_text()) == done.json["best"]["plan"]


def test_spare_nodes_that_are_too_few_are_said(tmp_path):
    path = tmp_path / "plan.json"
    assert plan("search", *with_value(SMALLER, "--cluster", "4x2:h100-sxm"), *QUICK, "-o", path)
    done = plan("replan", path, "--lost", "3", "--spare-nodes", "2", "--json")
    assert "`--lost 1 --spare-nodes 0`" in done.err
    assert all(one["name"] != "spare nodes" for one in done.json["ways"])


def test_nodes_that_the_plan_leaves_idle_are_the_first_spares(tmp_path):
    path = tmp_path / "plan.json"
    job = ("--model", "gpt2", "--cluster", "3x2:h100-sxm", "--seq-length", "1024")
    assert plan("search", *job, "--global-batch-size", "4", *QUICK, "--output", path).code == 0
    done = plan("replan", path, "--lost", "1", *TIMES)
    assert done.out.startswith("Idle nodes take their place, and the plan stays as it is.")
    assert "The plan leaves 1 node idle: the first spares." in done.out
    two = plan("replan", path, "--lost", "2", *TIMES, "--json").json
    assert (two["lost_nodes"], two["idle_nodes"], two["left"]["groups"][0]["num_nodes"]) == (
        2,
        1,
        1,
    )
    assert all(one["name"] != "spare nodes" for one in two["ways"])
    assert "the plan has 3 such nodes" in refused(plan("replan", path, "--lost", "4"))


def test_where_nothing_loads_it_says_what_would(tmp_path):
    path = tmp_path / "plan.json"
    job = with_value(with_value(SMALLER, "--cluster", "4x1:h100-sxm"), "--model", "gpt2")
    held = ("--fix", "tp=4", "--fix", "zero_stage=1", "--fix", "pp=1")
    length = with_value(job, "--seq-length", "1024")
    assert plan("search", *length, *QUICK, *held, "--output", path).code == 0
    done = plan("replan", path, "--lost", "1", *TIMES)
    assert done.code == 2
    says = "Wait for the nodes: no layout of what is left loads and fits."
    assert done.out.splitlines()[0] == says
    assert "`--saved reshardable`" in done.out


def test_another_of_its_plans_may_be_taken(made, tmp_path):
    path = tmp_path / "next.json"
    shown = plan("replan", made, "--lost", "1", "--take", "best", "--output", path, "--json").json
    assert json.loads(path.read_text()) == shown["best"]["plan"]
    lacking = next(name for name in TAKEN if shown[name] is None)
    done = plan("replan", made, "--lost", "1", "--take", lacking, "--output", path, "--force")
    assert done.code == 2
    assert "nothing is written" in done.err


def test_islands_go_on_with_fewer_of_them(tmp_path):
    path, later = tmp_path / "plan.json", tmp_path / "next.json"
    job = ("--model", "llama3.2-1b", "--cluster", "6x2:h100-sxm", "--seq-length", "1024")
    held = ("--global-batch-size", "48", "--fix", "tp=1", "--fix", "pp=1", "--fix", "cp=1")
    outer = ("--runtime", "torchtitan", "--allow", "diloco", "--islands", "3")
    assert plan("search", *job, *held, *outer, *QUICK, "--output", path).code == 0
    done = plan("replan", path, "--lost", "1", *TIMES, "--take", "fewer", "--output", later)
    assert "Islands left of 3: 1 of 1 node, 2 of 2 nodes." in done.out
    assert "go on with one island alone" in done.out
    assert json.loads(later.read_text())["outer"]["islands"] == 2
    assert plan("export", later, "--output-dir", tmp_path / "launch").code == 0
    two = plan("replan", path, "--lost", "2", "--json")
    assert "of one island after another" in two.err
    assert [one["num_nodes"] for one in two.json["left"]["groups"]] == [2, 2]
    named = plan("replan", path, "--lost", "0:1", "--lost", "1:1", "--json").json
    assert [one["num_nodes"] for one in named["left"]["groups"]] == [1, 1, 2]
    assert named["fewer"] is None
    assert (named["lost_nodes"], named["alone"]["plan"]["outer"]) == (2, None)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "give the nodes that are lost"),
        (("--lost", "1", "--cluster", "1x8:h100-sxm"), "give the nodes that are lost"),
        (("--lost", "3"), "3 of h100-sxm are lost, and the plan has 2 such nodes"),
        (("--lost", "2"), "no node is left"),
        (("--lost", "1", "--repair", "-2h"), "-2h"),
        (("--lost", "1", "--repair", "9999999999999y"), "is longer than 1,000 years: give less"),
        (("--lost", "1", "--saved", "twice"), "twice"),
        (("--lost", "1", "--global-batch-size", "0"), "0"),
    ],
)
def test_bad_input_gets_a_sentence(made, words, says):
    assert says in refused(plan("replan", made, *words))


def test_help_lists_what_the_planner_has():
    assert get_args(Saved) == SAVED
    assert set(TAKEN) <= set(Replan.__slots__)
