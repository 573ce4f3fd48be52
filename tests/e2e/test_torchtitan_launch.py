"""From a plan to a launch of torchtitan, and back."""

import shlex
import subprocess

import pytest

from tests.e2e.command import plan
from tests.torchtitan_jobs import launch
from trainplan.planner.runtimes import Request
from trainplan.planner.runtimes.torchtitan.read import TORCHTITAN

SEARCH = (
    *("search", "--model", "llama2-7b", "--cluster", "1x8:h100-sxm", "--runtime", "torchtitan"),
    *("--global-batch-size", "64", "--seq-length", "4096"),
    *("--fix", "pp=4", "--fix", "schedule=zb-h2"),
)


@pytest.mark.parametrize(("launcher", "script"), [("torchrun", "run.sh"), ("slurm", "run.sbatch")])
def test_a_searched_plan_is_exported_and_its_launch_read_back(tmp_path, launcher, script):
    document, folder = tmp_path / "plan.json", tmp_path / "launch"
    searched = plan(*SEARCH, "--output", str(document), "--json")
    assert searched.code == 0, searched.err
    stated = plan("export", str(document), "--launcher", launcher, "--output-dir", str(folder))
    assert stated.code == 0, stated.err
    assert "HF_ASSETS_PATH" in stated.out
    assert subprocess.run(["bash", "-n", folder / script], check=False).returncode == 0
    words = shlex.split((folder / script).read_text("utf-8"), comments=True)
    assert words[words.index("-m") + 1] == "torchtitan.train"
    start = words.index("--module")
    arguments = launch(*words[start : start + 4], nodes=1, gpus=8)
    wanted = Request(text_of=lambda name: text(folder / name))
    reading = TORCHTITAN.read(arguments, wanted)
    assert reading.problems == ()
    assert reading.layout.schedule == "zb-h2"
    assert reading.job.model.name == "llama2-7b"


def text(path):
    return path.read_text("utf-8") if path.is_file() else None
