"""Packages outside the project, installed beside it: `plan` has what they add."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

from tests.plugged import simumax_profile

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "plug-in"
IMPORTERS = ROOT / "examples" / "importers"
SIMUMAX = ROOT / "tests" / "replay" / "simumax_b200.json"
PACKAGE = EXAMPLE / "trainplan_example"
WHO = "plug-in trainplan-example 1.0"
RUNS = """
import contextlib, io, json, sys
from trainplan.cli.commands.plugged import say_warnings
from trainplan.cli.main import run
say_warnings()
for command in json.load(sys.stdin):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(command)
    print(json.dumps([code, out.getvalue(), err.getvalue()]))
"""
"""`plan`, several times in one process."""


NCCL = """\
# Collective test starting: all_reduce_perf
#  Rank  0 Group  0 Pid 1 on node0 device  0 [0x00] H100
#  Rank  1 Group  0 Pid 1 on node0 device  1 [0x00] H100
  1048576   262144  float  sum  -1  100.0  10.49  10.49  0  100.0  10.49  10.49  0
  8388608  2097152  float  sum  -1  200.0  41.94  41.94  0  200.0  41.94  41.94  0
"""
LAUNCH = """\
torchrun --nnodes 1 --nproc_per_node 8 pretrain_lamb.py --num-layers 12 --hidden-size 768 \\
  --num-attention-heads 12 --seq-length 1024 --max-position-embeddings 1024 \\
  --micro-batch-size 1 --global-batch-size 8 --bf16 --vocab-size 50257 \\
  --tensor-model-parallel-size 2 --train-iters 10 --lr 1e-4 --mock-data \
  --tokenizer-type NullTokenizer
"""


TAKES = """\
import click
from trainplan.costmodel.plugins.plugins import Plugin, PluginCommand
@click.command()
def breaks(): raise KeyError("what it lacks")
PLUGIN = Plugin(
    gpus="gpus.toml",
    launchers={"slurm": "takes:PLUGIN"},
    commands={
        "search": PluginCommand("a:b", "x"),
        "falls": PluginCommand("falls:x", "y"),
        "breaks": PluginCommand("takes:breaks", "z"),
    },
)
"""
FILES = {
    "hosts.toml": '[our-node.memory_gib]\nvalue = 512\nsource = "our machine room"\n',
    "falls.py": "import nothing_of_that_name\n",
    "takes.py": TAKES,
    "gpus.toml": '[torn]\nvendor = "x"\n[h100-sxm]\nvendor = "x"\n',
    "nccl.txt": NCCL,
    "run_lamb.sh": LAUNCH,
}


def plans(site, *commands):
    """(exit code, stdout, stderr) of each command where `site` is installed."""
    path = os.pathsep.join((str(site), str(ROOT / ".editable")))
    done = subprocess.run(
        [sys.executable, "-c", RUNS],
        env={**os.environ, "PYTHONPATH": path},
        input=json.dumps([list(map(str, command)) for command in commands]),
        cwd=site,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    return [json.loads(line) for line in done.stdout.splitlines()]


def record(site, package, module):
    """Record an installation as pip does."""
    folder = site / f"{package}-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text(f"[trainplan.plugins]\na = {module}:PLUGIN\n")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Where the wheels of both examples are installed, one of every other kind, two broken."""
    folder = tmp_path_factory.mktemp("site")
    for project in (EXAMPLE, IMPORTERS):
        (wheel,) = WheelBuilder(str(project)).build(directory=str(folder), versions=["standard"])
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)
    source = Path(__file__).with_name("plug_in_of_every_kind.py").read_text(encoding="utf-8")
    (folder / "every_kind.py").write_text(source)
    for name, text in FILES.items():
        (folder / name).write_text(text)
    for package, module in (("every", "every_kind"), ("falls", "falls"), ("takes", "takes")):
        record(folder, package, module)
    return folder


@pytest.fixture(scope="module")
def outcomes(site):
    """How commands end there, by name."""
    plan, lamb = site / "plan.json", site / "lamb.json"
    batch = ("--global-batch-size", "16", "--seq-length", "1024")
    job = ("--model", "example-1b", "--cluster", "2x8:example-96gb", *batch)
    other = ("--model", "gpt2", "--cluster", "1x8:h100-sxm@our-node", *batch)
    measured = (site / "nccl.txt", "--gpu", "h100-sxm", "--output", site / "profile.json")
    short = ("--time-limit", "0.1")
    few = ("--fix", "pp=1", "--fix", "cp=1", "--search-options", "none")
    commands = {
        "help": ("--help",),
        "gpus": ("catalog", "gpus"),
        "gpu": ("catalog", "gpus", "example-96gb", "--json"),
        "hosts": ("catalog", "hosts", "--json"),
        "models": ("catalog", "models"),
        "search": ("search", *job, *few, "--output", plan),
        "export": ("export", plan, "--launcher", "pbs", "--output-dir", site / "launch"),
        "degrees": ("degrees", plan),
        "optimizer": ("search", *other, "--optimizer", "lamb", *few, "--output", lamb),
        "runtime": ("export", lamb, "--output-dir", site / "lamb"),
        "schedule": ("schedule", "--kind", "our-schedule", "--pp", "4", "--num-microbatches", "8"),
        "import": ("import", "our-tests", *measured),
        "simumax": ("import", "simumax", SIMUMAX, "--gpu", "b200", "--output", site / "b200.json"),
        "format": ("import", "simumx", *measured),
        "check": ("check", site / "run_lamb.sh", "--cluster", "1x8:h100-sxm", *short),
        "falls": ("falls",),
        "breaks": ("breaks",),
        "mistyped": ("degree",),
        "doctor": ("doctor",),
    }
    return dict(zip(commands, plans(site, *commands.values()), strict=True))


def test_its_gpu_and_model_are_planned_for(outcomes):
    code, out, err = outcomes["search"]
    assert code == 0, err
    assert "example-1b, 1.1 B parameters · 16 x example-96gb" in out


def test_the_catalog_says_which_plug_in_an_entry_is_from(outcomes):
    assert f"example-96gb: {WHO}" in outcomes["gpus"][1]
    assert f"example-1b: {WHO}" in outcomes["models"][1]


def test_each_number_of_its_gpu_names_the_plug_in_and_what_is_not_fitted_stands_in(outcomes):
    gpu = json.loads(outcomes["gpu"][1])
    assert gpu["memory_gib"] == {"value": 96.0, "source": f"made up ({WHO})"}
    assert gpu["stand_in"] == "h100-sxm"


def test_its_launcher_writes_a_script_that_a_shell_reads(site, outcomes):
    code, out, err = outcomes["export"]
    assert code == 0, err
    assert "qsub" in out
    script = site / "launch" / "run.pbs"
    assert "#PBS -l select=2:ngpus=8\n" in script.read_text()
    subprocess.run(["bash", "-n", script], check=True)


def test_its_command_is_listed_and_answers(outcomes):
    assert "degrees  Degrees of a plan. (trainplan-example)" in outcomes["help"][1]
    code, out, _ = outcomes["degrees"]
    degrees = dict(line.split("=") for line in out.splitlines())
    assert code == 0
    assert set(degrees) == {"TP", "PP", "CP", "DP", "EP"}
    assert int(degrees["TP"]) * int(degrees["PP"]) * int(degrees["CP"]) * int(degrees["DP"]) == 16


def test_a_mistyped_command_of_it_is_corrected(outcomes):
    code, _, err = outcomes["mistyped"]
    assert code == 2
    assert "did you mean 'degrees'?" in err


def test_doctor_lists_it_with_all_it_adds(outcomes):
    text = " ".join(outcomes["doctor"][1].split())
    adds = "gpus example-96gb; models example-1b; launchers pbs; commands degrees"
    formats = "importers aceso, galvatron, metis, sailor, simumax"
    assert f"ok {WHO} {adds} ok plug-in trainplan-importers 1.0 {formats} MISSING" in text


def test_a_host_is_known(outcomes):
    hosts = json.loads(outcomes["hosts"][1])["hosts"]
    assert hosts["our-node"]["memory_gib"] == {
        "value": 512.0,
        "source": "our machine room (plug-in every 1.0)",
    }


def test_an_optimizer_picks_the_runtime_that_has_it_and_is_exported(site, outcomes):
    assert outcomes["optimizer"][0] == 0, outcomes["optimizer"][2]
    assert "megatron-lamb" in outcomes["optimizer"][1]
    assert outcomes["runtime"][0] == 0, outcomes["runtime"][2]
    assert "# runtime: megatron-lamb " in (site / "lamb" / "run.sh").read_text()


@pytest.mark.parametrize("command", ["schedule", "import", "check"])
def test_a_schedule_an_importer_and_a_reader_answer(outcomes, command):
    code, out, err = outcomes[command]
    assert code == 0, err
    assert out


def test_the_formats_of_other_planners_are_read_once_their_plug_in_is_there(site, outcomes):
    code, out, err = outcomes["simumax"]
    assert code == 0, err
    assert "b200" in out
    assert "plan doctor" in out
    simumax_profile(SIMUMAX, site / "expected.json")
    assert (site / "b200.json").read_text() == (site / "expected.json").read_text()
    code, _, err = outcomes["format"]
    assert code == 2
    assert "did you mean 'simumax'? known: nccl-tests, our-tests, aceso, galva" in " ".join(
        err.split()
    )


def test_what_is_broken_is_left_out_in_one_line_each_that_names_the_package(outcomes):
    lines = [line for outcome in outcomes.values() for line in outcome[2].splitlines()]
    written = sorted(line for line in lines if " is left out: " in line)
    starts = (
        "plan: plug-in falls 1.0: all of it is left out: ModuleNotFoundError",
        "plan: plug-in takes 1.0: commands.search is left out: trainplan itself has that name",
        "plan: plug-in takes 1.0: gpus.h100-sxm is left out: trainplan itself has that name",
        "plan: plug-in takes 1.0: gpus.torn is left out: SpecError: ",
        "plan: plug-in takes 1.0: launchers.slurm is left out: trainplan itself has that name",
    )
    assert len(written) == len(starts)
    assert [line[: len(start)] for line, start in zip(written, starts, strict=True)] == [*starts]


def test_a_command_that_does_not_load_is_refused_with_its_package(outcomes):
    code, out, err = outcomes["falls"]
    assert (code, out) == (2, "")
    last = err.splitlines()[-1]
    assert last.startswith("plan: error: plug-in takes 1.0: command falls does not load")
    assert "Traceback" not in err


def test_a_bug_in_a_plug_in_is_reported_as_its_own(outcomes):
    code, out, err = outcomes["breaks"]
    assert (code, out) == (1, "")
    bug = "this is a bug in plug-in takes 1.0, please report it there: KeyError: 'what it lacks'"
    assert err.startswith(f"plan: error: {bug}")


def test_doctor_says_what_is_left_out(outcomes):
    code, out, _ = outcomes["doctor"]
    assert code == 2
    text = " ".join(out.split())
    assert "ok plug-in every 1.0 hosts our-node; optimizers lamb; schedules our-schedule" in text
    assert "MISSING plug-in falls 1.0 all of it is left out" in text
    assert "MISSING plug-in takes 1.0 gpus.h100-sxm is left out" in text
    assert "MISSING plug-in takes 1.0 command falls does not load" in text
