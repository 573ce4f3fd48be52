"""Launch scripts: valid bash, values stay data, missing variables stop with a sentence."""

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.unit.planner.runtimes.test_megatron_export import DENSE
from trainplan.costmodel.base.errors import UnsupportedError
from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.costmodel.job.job import Job, TrainingSpec
from trainplan.costmodel.layout.layout import Layout
from trainplan.planner.launch.config import Argument, UserVariable
from trainplan.planner.launchers.registry import LAUNCHERS
from trainplan.planner.launchers.slurm import trials
from trainplan.planner.runtimes import EXPORTERS

HOSTILE = 'it\'s "quoted" $(touch pwned) `touch pwned`\n#SBATCH --account=x\ttab \\ ünï *'
USER = ("MEGATRON_PATH", "TOKENIZER_MODEL", "DATA_PATH", "CHECKPOINT_PATH")
RECORDER = """#!/usr/bin/env bash
printf '%s\\0' "$@" > "$RECORD/argv.${SLURM_PROCID:-0}"
env -0 > "$RECORD/env.${SLURM_PROCID:-0}"
"""
SRUN = """#!/usr/bin/env bash
while [[ "$1" == --* ]]; do shift; done
for task in 0 1; do SLURM_PROCID=$task "$@"; done
"""
MPIRUN = """#!/usr/bin/env bash
printf '%s\\0' "$@" > "$RECORD/mpirun"
while [[ "$1" != bash ]]; do shift; done
for rank in 0 1; do
  OMPI_COMM_WORLD_RANK=$rank OMPI_COMM_WORLD_LOCAL_RANK=$rank OMPI_COMM_WORLD_SIZE=2 \\
    SLURM_PROCID=$rank "$@"
done
"""
SCONTROL = "#!/usr/bin/env bash\nprintf 'first-node\\nsecond-node\\n'\n"


def config_of(cluster: str, name: str = HOSTILE):
    clusters = parse_cluster(cluster)
    job = Job(
        model=DENSE.model_copy(update={"name": name}),
        training=TrainingSpec(seq_length=2048, global_batch_size=64),
        cluster=clusters,
    )
    layout = Layout(tp=2, pp=2, dp=clusters.num_gpus // 4, sequence_parallel=True)
    return EXPORTERS["megatron-lm"](job, layout), clusters


@pytest.fixture
def machine(tmp_path: Path) -> dict[str, str]:
    """Environment of a machine that records what would run, with hostile folder names."""
    tools = tmp_path / "bin"
    tools.mkdir()
    commands = {"torchrun": RECORDER, "srun": SRUN, "scontrol": SCONTROL, "mpirun": MPIRUN}
    for name, text in (commands | {"python": RECORDER}).items():
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    checkout = tmp_path / "megatron $(touch pwned) 'x'"
    checkout.mkdir()
    (checkout / "pretrain_gpt.py").touch()
    return {
        "PATH": f"{tools}{os.pathsep}{os.defpath}",
        "RECORD": str(tmp_path),
        "MEGATRON_PATH": str(checkout),
        "TOKENIZER_MODEL": HOSTILE,
        "DATA_PATH": "/data/with space/$(touch pwned)",
        "CHECKPOINT_PATH": "/checkpoints/*",
        "SLURM_JOB_NODELIST": "node[1-2]",
        "MASTER_ADDR": "node-1",
        "MASTER_PORT": "6000",
        "RDZV_ENDPOINT": "node-1:29500",
        "RDZV_ID": "run-7",
        "HOSTFILE": "/etc/hosts $(touch pwned)",
        "PET_NODE_RANK": "1",
        "SKYPILOT_NODE_RANK": "1",
        "SKYPILOT_NODE_IPS": "10.0.0.1\n10.0.0.2",
    }


MANIFESTS = {
    "kubernetes": lambda job: job["spec"]["trainer"]["args"][0],
    "pytorchjob": lambda job: job["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"][
        "containers"
    ][0]["args"][0],
    "skypilot": lambda task: task["run"],
}
"""Where the script of a manifest is."""


def script_of(launcher: str, config, cluster) -> str:
    """The bash that a node runs."""
    text = LAUNCHERS[launcher](config, cluster).text
    return MANIFESTS[launcher](yaml.safe_load(text)) if launcher in MANIFESTS else text


def run(launcher: str, cluster: str, environment: dict[str, str], folder: Path):
    config, clusters = config_of(cluster)
    path = folder / LAUNCHERS[launcher].file
    path.write_text(script_of(launcher, config, clusters), encoding="utf-8")
    return subprocess.run(
        ["bash", str(path)],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def argv(folder: Path, task: int = 0) -> list[str]:
    return (folder / f"argv.{task}").read_text(encoding="utf-8").split("\0")[:-1]


@pytest.mark.parametrize("launcher", LAUNCHERS)
@pytest.mark.parametrize("cluster", ["1x8:h100-sxm", "2x8:h100-sxm"])
def test_scripts_are_valid_bash(launcher, cluster, tmp_path):
    config, clusters = config_of(cluster)
    text = script_of(launcher, config, clusters)
    checked = subprocess.run(
        ["bash", "-n"], input=text, text=True, capture_output=True, check=False
    )
    assert (checked.returncode, checked.stderr) == (0, "")


def test_files_have_the_names_of_the_contract():
    config, clusters = config_of("1x8:h100-sxm")
    files = {name: launcher(config, clusters) for name, launcher in LAUNCHERS.items()}
    assert {name: (f.name, f.executable) for name, f in files.items()} == {
        "torchrun": ("run.sh", True),
        "torchrun-c10d": ("run.sh", True),
        "slurm": ("run.sbatch", False),
        "mpi": ("run_mpi.sh", True),
        "kubernetes": ("job.yaml", False),
        "pytorchjob": ("job.yaml", False),
        "skypilot": ("task.yaml", False),
    }


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_hostile_names_never_leave_their_comment(launcher):
    config, clusters = config_of("1x8:h100-sxm")
    text = LAUNCHERS[launcher](config, clusters).text
    assert all(line.startswith("#") for line in text.splitlines() if "pwned" in line)
    assert "\n#SBATCH --account" not in text


def test_one_node_starts_torchrun_with_every_argument_as_written(machine, tmp_path):
    done = run("torchrun", "1x8:h100-sxm", machine, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    entry = f"{machine['MEGATRON_PATH']}/pretrain_gpt.py"
    head = ["--nnodes", "1", "--nproc_per_node", "8", "--standalone", entry]
    seen = argv(tmp_path)
    assert seen[: len(head)] == head
    assert sorted(seen[len(head) :]) == sorted(expected_arguments("1x8:h100-sxm", machine))
    assert not list(tmp_path.glob("**/pwned"))


def expected_arguments(cluster: str, machine: dict[str, str]) -> list[str]:
    config, _ = config_of(cluster)
    words = []
    for argument in config.arguments:
        words.append(argument.flag)
        words += [machine[v.name] if isinstance(v, UserVariable) else v for v in argument.values]
    return words


def test_several_nodes_meet_at_the_given_address(machine, tmp_path):
    several = machine | {"NODE_RANK": "1"}
    done = run("torchrun", "2x8:h100-sxm", several, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert argv(tmp_path)[:10] == shlex.split(
        "--nnodes 2 --nproc_per_node 8 --node_rank 1 --master_addr node-1 --master_port 6000"
    )


def test_slurm_gives_every_task_its_own_rank(machine, tmp_path):
    done = run("slurm", "2x8:h100-sxm", machine, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    for task in (0, 1):
        assert argv(tmp_path, task)[:10] == shlex.split(
            f"--nnodes 2 --nproc_per_node 8 --node_rank {task} "
            "--master_addr first-node --master_port 6000"
        )
        assert sorted(argv(tmp_path, task)[11:]) == sorted(
            expected_arguments("2x8:h100-sxm", machine)
        )
    assert not list(tmp_path.glob("**/pwned"))


def test_slurm_asks_for_one_task_and_all_gpus_of_every_node():
    config, clusters = config_of("2x8:h100-sxm")
    text = LAUNCHERS["slurm"](config, clusters).text
    directives = [line for line in text.splitlines() if line.startswith("#SBATCH")]
    assert {"#SBATCH --nodes=2", "#SBATCH --ntasks-per-node=1", "#SBATCH --gpus-per-node=8"} <= set(
        directives
    )
    assert text.splitlines()[1 : 1 + len(directives)] == directives


@pytest.mark.parametrize(
    ("cluster", "segment"),
    [("64x4:gb200", "16"), ("16x4:gb200", "16"), ("36x4:gb300", "18"), ("38x4:gb200", None)],
)
def test_slurm_is_given_the_segments_that_racks_are_priced_in(cluster, segment):
    config, clusters = config_of(cluster)
    text = LAUNCHERS["slurm"](config, clusters).text
    found = re.findall(r"^#SBATCH --segment=(\d+)$", text, re.MULTILINE)
    assert found == ([segment] if segment else [])
    assert ("#SBATCH --segment" in trials(clusters, (1, 2), "run.sbatch").text) == bool(segment)
    assert "--segment" not in LAUNCHERS["slurm"](*config_of("4x8:h100-sxm")).text


def test_variables_of_the_runtime_are_exported(machine, tmp_path):
    run("torchrun", "1x8:h100-sxm", machine, tmp_path)
    exported = (tmp_path / "env.0").read_text(encoding="utf-8").split("\0")
    assert "CUDA_DEVICE_MAX_CONNECTIONS=1" in exported


@pytest.mark.parametrize("launcher", LAUNCHERS)
@pytest.mark.parametrize("name", USER)
def test_a_missing_variable_stops_with_its_sentence(launcher, name, machine, tmp_path):
    del machine[name]
    done = run(launcher, "1x8:h100-sxm", machine, tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith(f"Set {name}: the ") or done.stderr.startswith(f"Set {name}: a ")
    assert done.stderr.count("\n") == 1
    assert not list(tmp_path.glob("argv*"))


@pytest.mark.parametrize("name", ["MASTER_ADDR", "NODE_RANK"])
def test_several_nodes_need_an_address_and_a_rank(name, machine, tmp_path):
    machine |= {"MASTER_ADDR": "node-1", "NODE_RANK": "0"}
    del machine[name]
    done = run("torchrun", "2x8:h100-sxm", machine, tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith(f"Set {name}: ")


def test_a_folder_without_the_runtime_stops_with_a_sentence(machine, tmp_path):
    machine["MEGATRON_PATH"] = str(tmp_path)
    done = run("torchrun", "1x8:h100-sxm", machine, tmp_path)
    assert done.returncode == 2
    assert "there is no pretrain_gpt.py in it" in done.stderr


def test_nodes_with_different_numbers_of_gpus_are_refused():
    config, _ = config_of("1x8:h100-sxm")
    with pytest.raises(UnsupportedError, match="mixes nodes"):
        LAUNCHERS["torchrun"](config, parse_cluster("1x8:h100-sxm+1x4:a100-sxm-80gb"))


def test_values_with_shell_meaning_are_quoted(machine, tmp_path):
    config, clusters = config_of("1x8:h100-sxm")
    hostile = Argument("--split", (HOSTILE,), "data")
    changed = type(config)(
        **{n: getattr(config, n) for n in config.__slots__ if n != "arguments"},
        arguments=(hostile,),
    )
    path = tmp_path / "run.sh"
    path.write_text(LAUNCHERS["torchrun"](changed, clusters).text, encoding="utf-8")
    subprocess.run(["bash", str(path)], env=machine, cwd=tmp_path, check=True)
    assert argv(tmp_path)[-2:] == ["--split", HOSTILE]
    assert not list(tmp_path.glob("**/pwned"))


@pytest.mark.parametrize(
    ("launcher", "address"),
    [("kubernetes", "node-1"), ("pytorchjob", "node-1"), ("skypilot", "10.0.0.1")],
)
def test_a_manifest_starts_torchrun_with_what_the_operator_sets(
    launcher, address, machine, tmp_path
):
    done = run(launcher, "2x8:h100-sxm", machine, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert argv(tmp_path)[:10] == shlex.split(
        f"--nnodes 2 --nproc_per_node 8 --node_rank 1 --master_addr {address} --master_port 6000"
    )
    assert sorted(argv(tmp_path)[11:]) == sorted(expected_arguments("2x8:h100-sxm", machine))
    assert not list(tmp_path.glob("**/pwned"))


def test_nodes_of_c10d_need_no_number(machine, tmp_path):
    done = run("torchrun-c10d", "2x8:h100-sxm", machine, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert argv(tmp_path)[:10] == shlex.split(
        "--nnodes 2 --nproc_per_node 8 --rdzv_backend c10d --rdzv_endpoint node-1:29500 "
        "--rdzv_id run-7"
    )


def test_mpi_gives_every_rank_its_numbers(machine, tmp_path):
    done = run("mpi", "2x8:h100-sxm", machine, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    for rank in (0, 1):
        assert argv(tmp_path, rank)[0] == "-u"
        assert sorted(argv(tmp_path, rank)[2:]) == sorted(
            expected_arguments("2x8:h100-sxm", machine)
        )
        exported = (tmp_path / f"env.{rank}").read_text(encoding="utf-8").split("\0")
        assert {f"RANK={rank}", f"LOCAL_RANK={rank}", "WORLD_SIZE=2"} <= set(exported)
    words = (tmp_path / "mpirun").read_text(encoding="utf-8").split("\0")
    assert words[:4] == ["-np", "16", "--map-by", "ppr:8:node"]
    assert words[words.index("--hostfile") + 1] == machine["HOSTFILE"]
    assert "CUDA_DEVICE_MAX_CONNECTIONS" in words
    assert not list(tmp_path.glob("**/pwned"))


def test_manifests_ask_for_all_gpus_of_every_node():
    config, clusters = config_of("4x8:h100-sxm")
    job = yaml.safe_load(LAUNCHERS["kubernetes"](config, clusters).text)
    trainer = job["spec"]["trainer"]
    assert (trainer["numNodes"], trainer["numProcPerNode"]) == (4, 8)
    assert trainer["resourcesPerNode"] == {"limits": {"nvidia.com/gpu": 8}}
    old = yaml.safe_load(LAUNCHERS["pytorchjob"](config, clusters).text)
    counts = {k: r["replicas"] for k, r in old["spec"]["pytorchReplicaSpecs"].items()}
    assert counts == {"Master": 1, "Worker": 3}
    assert old["spec"]["nprocPerNode"] == "8"
    task = yaml.safe_load(LAUNCHERS["skypilot"](config, clusters).text)
    assert (task["num_nodes"], task["resources"]) == (4, {"accelerators": "H100:8"})


def test_one_node_is_a_master_without_workers():
    config, clusters = config_of("1x8:mi300x")
    job = yaml.safe_load(LAUNCHERS["pytorchjob"](config, clusters).text)
    assert list(job["spec"]["pytorchReplicaSpecs"]) == ["Master"]
    container = job["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"][0]
    assert container["resources"] == {"limits": {"amd.com/gpu": 8}}


def test_gpus_that_skypilot_has_not_are_refused():
    config, clusters = config_of("1x8:h20")
    with pytest.raises(UnsupportedError, match="not h20"):
        LAUNCHERS["skypilot"](config, clusters)


@pytest.mark.parametrize("launcher", ["torchrun-c10d", "kubernetes", "pytorchjob", "skypilot"])
def test_who_numbers_nodes_itself_refuses_an_order(launcher):
    config, clusters = config_of("2x8:h100-sxm")
    with pytest.raises(UnsupportedError, match="numbers them itself"):
        LAUNCHERS[launcher](config, clusters, ("a", "b"))


def test_an_array_job_runs_one_trial_a_task():
    file = trials(parse_cluster("2x8:h100-sxm"), (1, 2, 4), "run.sbatch")
    assert "#SBATCH --array=1,2,4%1" in file.text
    assert "/trial-$SLURM_ARRAY_TASK_ID" in file.text
    checked = subprocess.run(["bash", "-n"], input=file.text, text=True, check=False)
    assert checked.returncode == 0
