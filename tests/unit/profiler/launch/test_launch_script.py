"""Scripts that start a profile on every node, run by bash beside stand-ins for Slurm."""

import subprocess
import sys

import pytest

from tests.e2e.command import plan
from tests.unit.profiler.journal.test_journal import DONE, START, journal
from trainplan.cli.commands import profile
from trainplan.cli.commands.profile import _command_line
from trainplan.profiler.launch.paths import Files, Launch
from trainplan.profiler.launch.script import launch_script

COMMAND = ("plan", "profile", "--output", "my $(touch bad) profile.json", "it's")
STUBS = {
    "plan": """#!/bin/sh\nprintf '%s\\n' "$@"\n""",
    "scontrol": "#!/bin/sh\necho node0; echo node1\n",
    # drops the options of srun, and runs the task of each node
    "srun": """#!/usr/bin/env bash
while [[ "$1" == --* ]]; do echo "srun $1"; shift; done
for SLURM_PROCID in 0 1; do export SLURM_PROCID; "$@"; done
""",
}


@pytest.fixture
def bash(tmp_path):
    """Runs a script in a folder in which nothing but the stand-ins is found first."""
    for name, text in STUBS.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)

    def run(script, **variables):
        (tmp_path / "run.sh").write_text(script)
        path = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
        subprocess.run(["bash", "-n", "run.sh"], cwd=tmp_path, check=True)
        done = subprocess.run(
            ["bash", "run.sh"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
            env=path | variables,
        )
        assert not (tmp_path / "bad").exists()
        return done.stdout.splitlines()

    return run


def words(node):
    """What `plan` is called with on a node."""
    return [
        *COMMAND[1:],
        *("--nnodes", "2", "--nproc-per-node", "8"),
        *("--node-rank", str(node), "--rdzv-endpoint", "node0:6000"),
    ]


def test_slurm_runs_the_command_once_on_every_node_and_values_stay_data(bash):
    written = bash(launch_script("slurm", COMMAND, 2, 8), SLURM_JOB_NODELIST="node[0-1]")
    options = ["srun --kill-on-bad-exit=1", "srun --cpu-bind=none"]
    assert written == [*options, *words(0), *words(1)]


def test_cores_that_were_asked_for_are_asked_for_the_step_too(bash):
    script = launch_script("slurm", COMMAND, 2, 8)
    written = bash(script, SLURM_JOB_NODELIST="node[0-1]", SLURM_CPUS_PER_TASK="96")
    assert written[2] == "srun --cpus-per-task=96"


def test_a_node_runs_the_command_with_its_number_and_values_stay_data(bash):
    script = launch_script("torchrun", COMMAND, 2, 8)
    assert bash(script, MASTER_ADDR="node0", NODE_RANK="1") == words(1)


def test_what_a_cluster_decides_is_a_line_to_fill():
    lines = launch_script("slurm", COMMAND, 2, 8).splitlines()
    wanted = [line for line in lines if line.startswith("#SBATCH")]
    assert {"#SBATCH --nodes=2", "#SBATCH --ntasks-per-node=1", "#SBATCH --gpus-per-node=8"} <= {
        *wanted
    }
    to_fill = [line.split("=")[0] for line in lines if line.startswith("##SBATCH")]
    assert to_fill == ["##SBATCH --time", "##SBATCH --partition", "##SBATCH --cpus-per-task"]
    assert "#export GLOO_SOCKET_IFNAME=eth0 NCCL_SOCKET_IFNAME=eth0" in lines


def test_processes_of_other_machines_are_never_guessed_from_this_one():
    stated = plan("profile", "--print-launch", "slurm", "--nnodes", "2")
    assert stated.code == 2
    assert "give --nproc-per-node" in stated.err


def test_the_script_has_the_words_that_were_typed_without_where_to_measure(monkeypatch):
    typed = "profile --nnodes 2 --nproc-per-node=8 --output a.json --print-launch slurm --quick"
    monkeypatch.setattr(sys, "argv", ["plan", *typed.split()])
    assert _command_line() == ("plan", "profile", "--output", "a.json", "--quick")


def test_the_limits_of_a_run_are_those_of_the_help_page():
    options = {option.name: option.default for option in profile.command.params}
    launch = Launch(1)
    found = (options["timeout"], options["start_timeout"])
    assert found == (launch.timeout_seconds, launch.start_seconds)


@pytest.mark.parametrize(
    ("records", "words"),
    [
        ((), "nothing was measured yet"),
        ((START,), "nothing was measured yet"),
        ((START, DONE), "1 task is kept in"),
        ((START, DONE, DONE.model_copy(update={"key": "norm"})), "2 tasks are kept in"),
    ],
)
def test_control_c_at_the_start_counts_the_tasks_of_earlier_runs(tmp_path, records, words):
    files = Files.of_output(tmp_path / "profile.json")
    files.journal.write_text(journal(*records))
    kept = profile._kept(KeyboardInterrupt(), files)
    assert words in kept
    assert ("goes on from there" in kept) == ("kept" in words)
    files.journal.write_text("damaged\n")
    assert "nothing was measured yet" in profile._kept(KeyboardInterrupt(), files)
