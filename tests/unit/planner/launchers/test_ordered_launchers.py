"""Launch files of a plan whose nodes are placed."""

import subprocess

import pytest

from tests.unit.planner.launchers.test_launchers import argv, config_of, machine
from trainplan.planner.launchers.registry import LAUNCHERS, hostfile

__all__ = ["machine"]
ORDER = ("node-b.cluster", "node-a.cluster")
SRUN = """#!/usr/bin/env bash
printf '%s\\n' "$@" > "$RECORD/srun"
cp "$SLURM_HOSTFILE" "$RECORD/slurm_hostfile"
while [[ "$1" == --* ]]; do shift; done
for task in 0 1; do SLURM_PROCID=$task "$@"; done
"""


def started(launcher, environment, folder):
    config, cluster = config_of("2x8:h100-sxm")
    file = LAUNCHERS[launcher](config, cluster, ORDER)
    path = folder / file.name
    path.write_text(file.text, encoding="utf-8")
    return subprocess.run(
        ["bash", str(path)],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def test_slurm_starts_tasks_in_the_order_of_the_plan(machine, tmp_path):
    (tmp_path / "bin" / "srun").write_text(SRUN)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    done = started("slurm", machine | {"TMPDIR": str(scratch)}, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "slurm_hostfile").read_text().split() == list(ORDER)
    assert "--distribution=arbitrary" in (tmp_path / "srun").read_text().splitlines()
    for task in (0, 1):
        words = argv(tmp_path, task)
        assert words[words.index("--node_rank") + 1] == str(task)
        assert words[words.index("--master_addr") + 1] == ORDER[0]
    assert not [*scratch.iterdir()]


def test_slurm_asks_for_the_nodes_that_were_measured():
    text = LAUNCHERS["slurm"](*config_of("2x8:h100-sxm"), ORDER).text
    assert "#SBATCH --nodelist=node-b.cluster,node-a.cluster" in text.splitlines()[:8]


def test_torchrun_says_which_node_has_which_number():
    text = LAUNCHERS["torchrun"](*config_of("2x8:h100-sxm"), ORDER).text
    numbered = [f"#   {number} on {name}" for number, name in enumerate(ORDER)]
    assert [line for line in text.splitlines() if line in numbered] == numbered


@pytest.mark.parametrize("launcher", ["torchrun", "slurm"])
def test_without_an_order_nothing_is_said_of_nodes(launcher):
    text = LAUNCHERS[launcher](*config_of("2x8:h100-sxm")).text
    assert not any(word in text for word in ("HOSTFILE", "nodelist", "arbitrary", "NODE_RANK is"))


def test_the_hostfile_has_a_node_a_line_with_its_slots():
    _, cluster = config_of("2x8:h100-sxm")
    assert hostfile(cluster, ORDER).text == "node-b.cluster slots=8\nnode-a.cluster slots=8\n"


def test_mpi_takes_the_nodes_from_the_hostfile_beside_it():
    text = LAUNCHERS["mpi"](*config_of("2x8:h100-sxm"), ORDER).text
    assert '/hostfile}"' in text
    assert "require HOSTFILE" not in text
