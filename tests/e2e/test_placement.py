"""Measured links in the cluster file: the order of the nodes, from search to launch files."""

import json
import sys
from pathlib import Path

import pytest

from tests.e2e.command import Outcome, plan, refused

JOB = ("--model", "gpt2", "--global-batch-size", "64", "--seq-length", "1024")
NAMES = ("slow-1.site", "fast-1.site", "slow-2.site", "fast-2.site")


def cluster_file(folder: Path, nodes: str = ", ".join(NAMES), slow: float = 2.0) -> Path:
    """Two pairs of nodes with a slow cut between them."""
    path = folder / "cluster.yaml"
    rows = [
        f"    - [{', '.join(str(40.0 if (i - j) % 2 == 0 else slow) for j in range(4))}]"
        for i in range(4)
    ]
    path.write_text(
        "groups:\n  - {gpu: h100-sxm, num_nodes: 4, gpus_per_node: 8}\n"
        f"links:\n  nodes: [{nodes}]\n  gb_per_s:\n" + "\n".join(rows) + "\n"
    )
    return path


def searched(folder: Path, *more: str | Path) -> Outcome:
    fixed = ("--fix", "pp=2", "--fix", "tp=1", "--fix", "vpp=1", "--fix", "recompute=none")
    return plan("search", *JOB, "--cluster", cluster_file(folder), *fixed, *more)


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A plan document whose nodes are placed."""
    folder = tmp_path_factory.mktemp("placed")
    assert searched(folder, "--output", folder / "plan.json").code == 0
    return (folder / "plan.json").read_text()


@pytest.fixture
def made(text: str, tmp_path: Path) -> Path:
    """The plan as a file of its own."""
    path = tmp_path / "plan.json"
    path.write_text(text)
    return path


def test_the_answer_says_where_the_nodes_go_and_what_that_gains(tmp_path: Path):
    outcome = searched(tmp_path)
    assert outcome.code == 0
    assert "faster than the given order" in outcome.out
    lines = [line for line in outcome.out.splitlines() if line.startswith("Place nodes as ")]
    assert [sorted(line.split()[3:5]) for line in lines] in (
        [["slow-1", "slow-2"]],
        [["fast-1", "fast-2"]],
    )
    assert max(len(line) for line in outcome.out.splitlines()) <= 100


def test_without_the_solver_the_order_is_the_same_and_said_to_be_unproved(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, "ortools", None)
    monkeypatch.setattr("trainplan.planner.questions.placement.least_seconds", lambda *_: 1e-3)
    document = searched(tmp_path, "--json").json
    proved, found = json.loads(text)["placement"], document["placement"]
    assert found["nodes"] == proved["nodes"]
    assert found["lower_bound_s"] == 1e-3 < proved["lower_bound_s"]
    (note,) = (one for one in document["provenance"]["notes"] if "without a proof" in one)
    assert "pip install 'trainplan[schedules]'" in note


def test_the_plan_carries_order_bound_and_gap(made: Path):
    document = json.loads(made.read_text())
    placement = document["placement"]
    assert sorted(placement) == [
        "gap_fraction",
        "identity_step_time_s",
        "lower_bound_s",
        "nodes",
        "step_time_s",
    ]
    assert sorted(placement["nodes"]) == sorted(NAMES)
    nominal = document["best"]["estimate"]["step_time_s"]
    assert nominal <= placement["lower_bound_s"] <= placement["step_time_s"]
    assert placement["step_time_s"] < placement["identity_step_time_s"]
    assert document["certificate"]["lower_bound_s"] <= placement["step_time_s"]


def test_a_placed_plan_has_the_numbers_of_this_version(made: Path):
    assert plan("compare", made, made).err == ""


def test_a_cluster_of_another_size_has_no_links(made: Path):
    outcome = plan("sweep", made, "--vary", "gpus=16,32", "--json")
    assert outcome.code == 0, outcome.err


def test_without_links_there_is_no_placement():
    outcome = plan("search", *JOB, "--cluster", "1x8:h100-sxm", "--json")
    assert outcome.json["placement"] is None


@pytest.mark.parametrize("launcher", ["torchrun", "slurm"])
def test_launch_files_follow_the_order(made: Path, tmp_path: Path, launcher: str):
    launch = tmp_path / "launch"
    assert plan("export", made, "--launcher", launcher, "--output-dir", launch).code == 0
    order = json.loads(made.read_text())["placement"]["nodes"]
    hosts = (launch / "hostfile").read_text().splitlines()
    assert hosts == [f"{name} slots=8" for name in order]
    script = (launch / ("run.sh" if launcher == "torchrun" else "run.sbatch")).read_text()
    places = [script.index(name) for name in order]
    assert places == sorted(places)


def test_another_layout_finds_the_nodes_in_the_order_of_the_cluster(made: Path, tmp_path: Path):
    launch, document = tmp_path / "launch", json.loads(made.read_text())
    layouts = [candidate["layout"] for candidate in document["candidates"]]
    best = layouts.index(document["best"]["layout"]) + 1
    words = ("export", made, "--output-dir", launch, "--force", "--candidate")
    assert plan(*words, str(best)).code == 0
    assert (launch / "hostfile").exists()
    assert plan(*words, str(2 if best == 1 else 1)).code == 0
    assert not (launch / "hostfile").exists()


def test_a_plan_without_order_takes_an_old_hostfile_away(made: Path, tmp_path: Path):
    launch = tmp_path / "launch"
    plan("export", made, "--output-dir", launch)
    document = json.loads(made.read_text())
    made.write_text(json.dumps(document | {"placement": None}))
    assert plan("export", made, "--output-dir", launch, "--force").code == 0
    assert not (launch / "hostfile").exists()


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        (["slow-1.site"], "does not name every node"),
        (["a b"], "placement.nodes.0"),
        (["$(touch pwned)"], "placement.nodes.0"),
        ("x", "placement.nodes"),
    ],
)
def test_an_order_that_was_edited_wrongly_is_refused(made: Path, tmp_path: Path, nodes, words):
    document = json.loads(made.read_text())
    document["placement"]["nodes"] = nodes
    made.write_text(json.dumps(document))
    refused(plan("export", made, "--output-dir", tmp_path / "launch"), words)


def test_a_matrix_with_a_hole_is_refused_with_its_line(tmp_path: Path):
    path = cluster_file(tmp_path, nodes="a, b, c")
    refused(plan("search", *JOB, "--cluster", path), str(path), "gb_per_s")


def test_the_proof_is_of_the_row_that_it_names(text: str):
    document = json.loads(text)
    rows, objective = document["candidates"], document["certificate"]["objective"]
    assert document["best"]["layout"] == rows[0]["layout"]
    assert (objective["rank"] == 1) == (objective["of_answer"] is None)
    assert objective["value"] == rows[objective["rank"] - 1]["estimate"]["step_time_s"]
