"""The example that solves other planners' problems runs as its README says."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "examples" / "home_ground" / "run.py"
PEER_QUERIES = ("galvatron", "sailor", "piper", "metis", "alpa", "zero-bubble")
PEERS = os.environ.get("TRAINPLAN_PEERS")


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, SCRIPT, *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / ".editable")},
        check=False,
    )


@pytest.mark.skipif(PEERS is None, reason="TRAINPLAN_PEERS names no folder with the checkouts")
def test_every_peers_problem_is_solved_with_proof_and_no_worse_than_by_the_peer():
    done = run("all", "--checkout", PEERS, "--json")
    assert done.returncode == 0, done.stderr
    answers = json.loads(done.stdout)["answers"]
    assert {one["peer"] for one in answers} == set(PEER_QUERIES)
    for one in answers:
        assert one["gap_fraction"] == pytest.approx(0, abs=1e-9)
        if one["peer"] != "metis":  # its answer does not fit
            assert one["ours_s"] <= one["theirs_s"] * (1 + 1e-6)


@pytest.mark.parametrize("peer", [*PEER_QUERIES, "all"])
def test_a_folder_that_is_no_checkout_is_answered_in_one_line(peer: str, tmp_path: Path):
    done = run(peer, "--checkout", tmp_path)
    assert done.returncode == 2
    assert not done.stdout
    assert done.stderr.startswith("run.py: error: ")
    assert done.stderr.count("\n") == 1
    assert str(tmp_path) in done.stderr


def test_the_readme_names_a_command_for_every_peer():
    text = (SCRIPT.parent / "README.md").read_text("utf-8")
    for peer in (*PEER_QUERIES, "all"):
        assert f"python examples/home_ground/run.py {peer} --checkout" in text
