"""A runtime with config files, started as a module or by a program of its own: scripts find both.

The exporter is one of a made-up runtime; the scripts run against tools that record what they get.
"""

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tests.e2e.command import TINY, plan
from tests.unit.planner.launchers.test_launchers import script_of
from trainplan.costmodel.layout.layout import Layout
from trainplan.planner.launch.config import (
    ConfigFile,
    EnvironmentVariable,
    LaunchConfig,
    ModuleEntry,
    RequiredVariable,
    option,
)
from trainplan.planner.launchers.registry import LAUNCHERS

RECORDER = """#!/usr/bin/env bash
printf '%s\\0' "$@" > "$RECORD/argv"
"""
SRUN = """#!/usr/bin/env bash
while [[ "$1" == --* ]]; do shift; done
SLURM_PROCID=0 "$@"
"""
MPIRUN = """#!/usr/bin/env bash
while [[ "$1" != bash ]]; do shift; done
OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_LOCAL_RANK=0 OMPI_COMM_WORLD_SIZE=1 "$@"
"""
SCONTROL = """#!/usr/bin/env bash
if [[ "$2" == job ]]; then printf 'JobId=7\\n   Command=%s\\n   WorkDir=/\\n' "$SUBMITTED"
else printf 'first-node\\nsecond-node\\n'; fi
"""
HOSTILE = "[model]\nname = 'it\\'s $(touch pwned)'\n"


def export(job, layout):
    """One module and one file, as a runtime without options of its own would have it."""
    file = ConfigFile("train.toml", f"{HOSTILE}[parallel]\ntp = {layout.tp}\n")
    return LaunchConfig(
        runtime=job.runtime,
        runtime_version="0.1",
        summary=(f"model: {job.model.name}",),
        environment=(EnvironmentVariable("NCCL_DEBUG", "WARN", "says what goes wrong"),),
        required_environment=(RequiredVariable("DATA_PATH", "the tokenized data"),),
        entry_point=ModuleEntry("toy.train"),
        arguments=(option("layout", "--config", file),),
        notes=(),
        files=(file,),
    )


@pytest.fixture
def machine(tmp_path: Path) -> dict[str, str]:
    tools = tmp_path / "bin"
    tools.mkdir()
    names = {"torchrun": RECORDER, "srun": SRUN, "scontrol": SCONTROL, "toy-train": RECORDER}
    for name, text in (names | {"mpirun": MPIRUN, "python": RECORDER}).items():
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    return {
        "PATH": f"{tools}{os.pathsep}{os.defpath}",
        "RECORD": str(tmp_path),
        "DATA_PATH": "/data",
        "MASTER_ADDR": "first-node",
        "NODE_RANK": "0",
        "SLURM_JOB_ID": "7",
        "SLURM_JOB_NODELIST": "node[1-2]",
        "MASTER_PORT": "6000",
        "RDZV_ENDPOINT": "first-node:29500",
        "RDZV_ID": "7",
        "HOSTFILE": "hosts",
        "PET_NODE_RANK": "0",
        "SKYPILOT_NODE_RANK": "0",
        "SKYPILOT_NODE_IPS": "10.0.0.1",
    }


@pytest.fixture
def job(make_job):
    return make_job("small-dense", "2x8:h100-sxm")


@pytest.fixture
def config(job):
    return export(job, Layout(tp=2, dp=8))


def write(launcher, config, job, folder: Path, *, files=True) -> Path:
    written = LAUNCHERS[launcher](config, job.cluster)
    for file in (written, *(config.files if files else ())):
        (folder / file.name).write_text(file.text, encoding="utf-8")
    return folder / written.name


def start(path: Path, environment, *, spooled: Path | None = None):
    """Run a script; Slurm runs a copy of what was submitted."""
    if spooled is not None:
        spooled.write_text(path.read_text(encoding="utf-8"), encoding="utf-8")
    return subprocess.run(
        ["bash", str(spooled or path)],
        env={**environment, "SUBMITTED": str(path)},
        cwd=path.parent.parent,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "launch 'x' $(touch pwned)"
    path.mkdir()
    return path


def argv(machine) -> list[str]:
    return (Path(machine["RECORD"]) / "argv").read_text(encoding="utf-8").split("\0")[:-1]


ALONGSIDE = [name for name, launcher in LAUNCHERS.items() if not launcher.carries_files]
"""Launchers whose files lie beside the script."""


@pytest.mark.parametrize("launcher", LAUNCHERS)
@pytest.mark.parametrize("program", [None, "toy-train"])
def test_scripts_are_valid_bash(launcher, program, config, job):
    config = replace(config, entry_point=ModuleEntry("toy.train", program))
    text = script_of(launcher, config, job.cluster)
    checked = subprocess.run(
        ["bash", "-n"], input=text, text=True, capture_output=True, check=False
    )
    assert (checked.returncode, checked.stderr) == (0, "")


@pytest.mark.parametrize("launcher", ALONGSIDE)
def test_a_module_gets_the_path_of_its_file(launcher, config, job, machine, folder):
    path = write(launcher, config, job, folder)
    done = start(path, machine, spooled=folder.parent / "copy" if launcher == "slurm" else None)
    assert (done.returncode, done.stderr) == (0, "")
    assert argv(machine)[-4:] == ["-m", "toy.train", "--config", f"{folder}/train.toml"]
    assert not list(folder.parent.rglob("pwned"))


@pytest.mark.parametrize("launcher", sorted({*ALONGSIDE} - {"mpi"}))
def test_a_program_runs_in_place_of_its_module(launcher, config, job, machine, folder):
    config = replace(config, entry_point=ModuleEntry("toy.train", "toy-train"))
    path = write(launcher, config, job, folder)
    assert start(path, machine).returncode == 0
    assert argv(machine)[-4:-1] == ["--no-python", "toy-train", "--config"]
    (folder.parent / "bin" / "toy-train").unlink()
    done = start(path, machine)
    assert done.returncode == 2
    assert "no toy-train on PATH" in done.stderr


def test_mpi_runs_a_program_in_place_of_its_module(config, job, machine, folder):
    config = replace(config, entry_point=ModuleEntry("toy.train", "toy-train"))
    assert start(write("mpi", config, job, folder), machine).returncode == 0
    assert argv(machine) == ["--config", f"{folder}/train.toml"]


@pytest.mark.parametrize("launcher", sorted({*LAUNCHERS} - {*ALONGSIDE}))
def test_a_manifest_carries_the_files(launcher, config, job, machine, folder):
    path = folder / "script.sh"
    path.write_text(script_of(launcher, config, job.cluster), encoding="utf-8")
    scratch = folder / "tmp"
    scratch.mkdir()
    done = start(path, machine | {"TMPDIR": str(scratch)})
    assert (done.returncode, done.stderr) == (0, "")
    assert Path(argv(machine)[-1]).read_text(encoding="utf-8") == config.files[0].text
    assert not list(folder.parent.rglob("pwned"))


@pytest.mark.parametrize("launcher", ALONGSIDE)
def test_a_missing_file_stops_with_a_sentence(launcher, config, job, machine, folder):
    done = start(write(launcher, config, job, folder, files=False), machine)
    assert done.returncode == 2
    assert "There is no train.toml in" in done.stderr


def test_export_writes_the_files_beside_the_script(monkeypatch, tmp_path: Path):
    made, launch = tmp_path / "plan.json", tmp_path / "launch"
    assert plan("search", *TINY, "--output", made).code == 0
    monkeypatch.setattr("trainplan.cli.commands.export.EXPORTERS", {"megatron-lm": export})
    done = plan("export", made, "--output-dir", launch)
    assert done.code == 0
    assert "train.toml" in done.out
    assert {path.name for path in launch.iterdir()} == {"run.sh", "train.toml", "plan.json"}
    text = (launch / "train.toml").read_text(encoding="utf-8")
    assert text.startswith(HOSTILE)
    (launch / "train.toml").write_text("mine", encoding="utf-8")
    assert plan("export", made, "--output-dir", launch).code == 2
    assert (launch / "train.toml").read_text(encoding="utf-8") == "mine"
    again = plan("export", made, "--output-dir", launch, "--launcher", "slurm", "--force")
    assert again.code == 0
    assert {path.name for path in launch.iterdir()} == {"run.sbatch", "train.toml", "plan.json"}
    assert (launch / "train.toml").read_text(encoding="utf-8") == text


def test_trials_write_a_folder_for_each_layout(tmp_path: Path):
    made, launch = tmp_path / "plan.json", tmp_path / "launch"
    assert plan("search", *TINY, "--output", made).code == 0
    done = plan("export", made, "--output-dir", launch, "--launcher", "slurm", "--trials", "2")
    assert done.code == 0
    assert {path.name for path in launch.iterdir()} == {
        *("trials.sbatch", "plan.json", "trial-1", "trial-2")
    }
    texts = [(launch / f"trial-{n}" / "run.sbatch").read_text(encoding="utf-8") for n in (1, 2)]
    assert texts[0] != texts[1]
    alone = plan("export", made, "--output-dir", tmp_path / "one", "--trials", "2")
    assert alone.code == 2
    assert "--launcher slurm" in alone.err


def test_mpi_tells_other_nodes_where_a_module_beside_the_script_is(config, job):
    module = ConfigFile("own.py", "")
    assert "-x PYTHONPATH" not in LAUNCHERS["mpi"](config, job.cluster).text
    assert "-x PYTHONPATH" in LAUNCHERS["mpi"](replace(config, files=(module,)), job.cluster).text
