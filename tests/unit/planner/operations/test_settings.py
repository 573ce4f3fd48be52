"""Operations of a production launch: every word is the runtime's own, every launcher starts it."""

import os
import re
import signal
import subprocess
import tomllib
from importlib import resources
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

from tests.unit.planner.runtimes.test_megatron_export import DENSE
from trainplan.costmodel import catalog
from trainplan.costmodel.hardware import CPU
from trainplan.costmodel.job.job import Job, RuntimeOptions, TrainingSpec
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.presets.clusters import cluster_of
from trainplan.costmodel.presets.presets import preset
from trainplan.planner.launchers.registry import LAUNCHERS
from trainplan.planner.operations import with_operations
from trainplan.planner.runtimes import EXPORTERS, TRAINERS

TABLE = tomllib.loads(
    resources.files("trainplan.planner.operations").joinpath("settings.toml").read_text("utf-8")
)
NOT_RUNTIMES = {"name", "reason", "source", "given", "unless", "already", "notes", "saves"}
STEP_S = 9.0
NODES = "2x8:h100-sxm"
SRUN = """#!/usr/bin/env bash
while [[ "$1" == --* ]]; do shift; done
SLURM_PROCID=0 "$@"
"""
TORCHRUN = """#!/usr/bin/env bash
printf '%s\\n' "$@" > "$RECORD/argv"
env > "$RECORD/env"
kill -USR1 $$  # as Slurm sends it to every process of a step
echo survived > "$RECORD/after"
"""
SCONTROL = """#!/usr/bin/env bash
if [[ "$1" == requeue ]]; then echo "$2" > "$RECORD/requeued"; else echo first-node; fi
"""


def launched(runtime="megatron-lm", cluster=NODES, launcher="slurm", **fields):
    clusters = cluster_of(cluster)
    options = RuntimeOptions(**fields.pop("options", {}))
    job = Job(
        model=fields.pop("model", DENSE),
        training=TrainingSpec(seq_length=2048, global_batch_size=64),
        cluster=clusters,
        runtime=runtime,
        options=options,
    )
    layout = Layout(**{"dp": clusters.num_gpus, "zero_stage": 1} | fields)
    config = EXPORTERS[runtime](job, layout)
    return with_operations(config, job, layout, launcher, STEP_S), clusters


def words_of(row):
    return [(runtime, text) for runtime in row.keys() - NOT_RUNTIMES for text in row[runtime]]


@pytest.mark.parametrize(
    ("runtime", "text"), [one for row in TABLE["setting"] for one in sorted(words_of(row))]
)
def test_every_word_is_an_option_of_the_release_that_is_exported(runtime, text):
    flag = re.split("[= ]", text)[0]
    if runtime == "huggingface":
        assert flag.removeprefix("--") in hf_keys()
        return
    assert flag in EXPORTERS[runtime].flags


def hf_keys():
    """Keys of what is written for a trainer over transformers."""
    return dict(of_trainer("llama-factory")[0].keys)


def of_trainer(name, launcher="slurm", runtime="deepspeed"):
    clusters = cluster_of(NODES)
    job = Job(
        model=preset("llama3-8b"),
        training=TrainingSpec(seq_length=2048, global_batch_size=64),
        cluster=clusters,
        runtime=runtime,
    )
    layout = Layout(dp=16, zero_stage=3 if runtime == "deepspeed" else 1)
    config = TRAINERS[name](job, layout)
    return with_operations(config, job, layout, launcher, STEP_S), clusters


def test_trainers_over_transformers_save_by_time():
    in_file, _ = of_trainer("llama-factory")
    assert any("\nsave_steps: 200\n" in file.text for file in in_file.files)
    assert not any(one.group == "operations" for one in in_file.arguments)
    in_words, _ = of_trainer("ms-swift")
    assert [one.values for one in in_words.arguments if one.flag == "--save_steps"] == [("200",)]
    for config in (in_file, in_words):
        (line,) = (note for note in config.notes if note.startswith("set in the files of "))
        assert "save interval" not in line


def test_arguments_of_the_trainer_itself_save_by_time():
    config, _ = launched("transformers", model=preset("llama3-8b"), zero_stage=3)
    assert any("save_steps: 200\n" in file.text for file in config.files)
    assert any(note.startswith("set in your TrainingArguments: ") for note in config.notes)
    assert not any("save interval" in one for one in config.notes if one.startswith("set in"))


def test_trainers_over_megatron_are_given_none_of_its_options():
    config, clusters = of_trainer("verl", runtime="megatron-lm")
    assert not any(one.group == "operations" for one in config.arguments)
    assert any(note.startswith("set in the files of verl: save interval") for note in config.notes)
    assert any(note.startswith("Ray starts the ranks") for note in config.notes)
    text = LAUNCHERS["slurm"](config, clusters).text
    assert "#SBATCH --requeue" in text
    assert "--numa_binding" not in text


def test_every_runtime_has_a_verdict_on_every_operation():
    for runtime in EXPORTERS:
        stated = {row["name"] for row in TABLE["setting"] if runtime in row}
        assert stated or runtime in TABLE["yours"]


def test_every_launcher_has_a_verdict():
    assert set(TABLE["launcher"]) == set(LAUNCHERS)
    assert all(way.get("restarts") or way["without"] for way in TABLE["launcher"].values())
    keys = {"signal", "signal_notes", "notes", "without", "restarts", "binds"}
    assert all(way.keys() <= keys for way in TABLE["launcher"].values())


@pytest.mark.parametrize("launcher", ["kubernetes", "pytorchjob"])
def test_the_grace_period_of_a_pod_is_noted_with_its_exit_signal(launcher):
    notes = launched(launcher=launcher)[0].notes
    assert any("terminationGracePeriodSeconds" in one for one in notes)


@pytest.mark.parametrize("cluster", ["1x8:h100-sxm", NODES])
def test_mpirun_restarts_nothing_on_any_number_of_nodes(cluster):
    config, _ = launched(cluster=cluster, launcher="mpi")
    assert config.operations.restarts == 0
    assert any(one.startswith("mpirun restarts no process") for one in config.notes)


@pytest.fixture
def machine(tmp_path: Path) -> dict[str, str]:
    tools = tmp_path / "bin"
    tools.mkdir()
    commands = {"torchrun": TORCHRUN, "srun": SRUN, "scontrol": SCONTROL}
    for name, text in commands.items():
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    (tmp_path / "pretrain_gpt.py").touch()
    return {
        "PATH": f"{tools}{os.pathsep}{os.defpath}",
        "RECORD": str(tmp_path),
        "MEGATRON_PATH": str(tmp_path),
        "TOKENIZER_MODEL": "tokenizer",
        "DATA_PATH": "/data",
        "CHECKPOINT_PATH": "/checkpoints",
        "SLURM_JOB_NODELIST": "node[1-2]",
        "SLURM_JOB_ID": "17",
        "MASTER_ADDR": "node-1",
        "NODE_RANK": "0",
        "RDZV_ENDPOINT": "node-1:29500",
        "RDZV_ID": "run-7",
    }


def started(folder: Path, machine, config, cluster, launcher="slurm") -> list[str]:
    script = folder / LAUNCHERS[launcher].file
    script.write_text(LAUNCHERS[launcher](config, cluster).text, "utf-8")
    subprocess.run(["bash", str(script)], env=machine, cwd=folder, check=True)
    return (folder / "argv").read_text("utf-8").splitlines()


def test_a_slurm_job_has_what_the_70b_sbatch_of_a_national_lab_has(machine, tmp_path):
    """NUMA binding, manual GC, asynchronous saves, TensorBoard, W&B, exit handler, --signal,
    requeue and NCCL_*: the nine of swiss-ai/Megatron-LM @81d44dbe."""
    config, cluster = launched()
    machine |= {"WANDB_PROJECT": "70b"}
    words = started(tmp_path, machine, config, cluster)
    pairs = dict(pairwise(words))
    assert pairs["--numa_binding"] == "node"
    assert pairs["--max_restarts"] == "3"
    assert pairs["--rdzv_endpoint"] == "first-node:6000"
    assert {"--manual-gc", "--async-save", "--use-persistent-ckpt-worker"} <= set(words)
    assert pairs["--exit-signal"] == "SIGUSR1"
    assert pairs["--tensorboard-dir"] == "/checkpoints/tensorboard"
    assert (pairs["--wandb-project"], pairs["--wandb-exp-name"]) == ("70b", "trainplan")
    assert pairs["--save-interval"] == str(round(1800 / STEP_S))
    text = (tmp_path / "run.sbatch").read_text("utf-8")
    directives = [line.split()[1] for line in text.splitlines() if line.startswith("#SBATCH")]
    assert {"--requeue", "--open-mode=append", "--signal=USR1@600"} <= set(directives)
    assert text.splitlines()[1 : 1 + len(directives)] == [f"#SBATCH {one}" for one in directives]
    assert "NCCL_IB_TIMEOUT=22" in (tmp_path / "env").read_text("utf-8").splitlines()


def test_what_the_user_does_not_set_is_not_logged(machine, tmp_path):
    config, cluster = launched()
    words = started(tmp_path, machine, config, cluster)
    assert not [word for word in words if word.startswith(("--wandb", "--exit-duration"))]


@pytest.mark.parametrize("launcher", ["slurm", "torchrun", "torchrun-c10d"])
def test_the_signal_ends_no_process_but_the_program(launcher, machine, tmp_path):
    """What ignores a signal hands that down; a program that handles it does so anyway."""
    config, cluster = launched(launcher=launcher)
    started(tmp_path, machine, config, cluster, launcher)
    assert (tmp_path / "after").exists()
    handled = "import os, signal; signal.signal(signal.SIGUSR1, lambda *_: print('handled'))"
    command = f"trap '' USR1; exec python3 -c \"{handled}; os.kill(os.getpid(), {signal.SIGUSR1})\""
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert done.stdout == "handled\n"


@pytest.mark.parametrize(
    ("seconds_left", "seconds_run", "requeued"),
    [(600, 80_000, True), (40_000, 80_000, False), (600, 700, False)],
)
def test_a_job_goes_on_where_its_time_ended_and_not_where_it_was_done(
    seconds_left, seconds_run, requeued, machine, tmp_path
):
    """One that is shorter than what is kept for the last save never comes back."""
    config, cluster = launched()
    text = LAUNCHERS["slurm"](config, cluster).text
    now = int(subprocess.run(["date", "+%s"], capture_output=True, check=True).stdout)
    script = tmp_path / "run.sbatch"
    script.write_text(text.replace("set -euo", f"SECONDS={seconds_run}\nset -euo", 1), "utf-8")
    subprocess.run(
        ["bash", str(script)],
        env=machine | {"SLURM_JOB_END_TIME": str(now + seconds_left)},
        cwd=tmp_path,
        check=True,
    )
    assert (tmp_path / "requeued").exists() == requeued
    words = (tmp_path / "argv").read_text("utf-8").splitlines()
    minutes = int(words[words.index("--exit-duration-in-mins") + 1])
    assert minutes in {seconds_left // 60 - 15, (seconds_left - 1) // 60 - 15, -6}


@pytest.mark.parametrize("cluster", ["16x4:gb200", "2x8:h100-sxm+2x8:a100-sxm-80gb"])
def test_nodes_that_slurm_numbers_are_not_numbered_by_their_names(cluster):
    clusters = cluster_of(cluster)
    fields = {"dp": clusters.num_gpus}
    if len(clusters.groups) > 1:
        fields = {"pp": 1, **fields}
    config, clusters = launched(cluster=cluster, **fields)
    text = LAUNCHERS["slurm"](config, clusters).text
    assert "--max_restarts" not in text
    assert '--node_rank "$SLURM_PROCID"' in text
    assert any("a failed process ends the job" in note for note in config.notes)


@pytest.mark.parametrize("launcher", LAUNCHERS)
@pytest.mark.parametrize("cluster", ["1x8:h100-sxm", NODES])
def test_every_launcher_writes_valid_bash(launcher, cluster):
    config, clusters = launched(cluster=cluster, launcher=launcher)
    text = LAUNCHERS[launcher](config, clusters).text
    if launcher == "kubernetes":
        text = yaml.safe_load(text)["spec"]["trainer"]["args"][0]
    elif launcher == "pytorchjob":
        document = yaml.safe_load(text)
        assert document["spec"]["runPolicy"] == {"backoffLimit": 3}
        master = document["spec"]["pytorchReplicaSpecs"]["Master"]
        text = master["template"]["spec"]["containers"][0]["args"][0]
    elif launcher == "skypilot":
        document = yaml.safe_load(text)
        assert document["resources"]["job_recovery"] == {"max_restarts_on_errors": 3}
        text = document["run"]
    done = subprocess.run(["bash", "-n"], input=text, text=True, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert ("--exit-signal SIGTERM" in text) == (
        launcher in {"kubernetes", "pytorchjob", "skypilot"}
    )
    assert ("--numa_binding node" in text) == (launcher != "mpi")


def test_no_process_of_a_cpu_is_bound_to_the_node_of_a_gpu():
    """torch 2.14 stops there: "No accelerator available for NUMA binding"."""
    cluster = cluster_of(NODES)
    group = cluster.groups[0]
    device = catalog.device(group).model_copy(update={"vendor": CPU})
    cpus = cluster.model_copy(update={"groups": (group.model_copy(update={"device": device}),)})
    job = Job(model=DENSE, training=TrainingSpec(seq_length=64, global_batch_size=64), cluster=cpus)
    config = with_operations(launched()[0], job, Layout(dp=16), "slurm", STEP_S)
    assert config.operations.torchrun == " --max_restarts 3"
    assert "--numa_binding" in launched()[0].operations.torchrun


def names_of(config):
    return {one.name: one.value for one in config.environment}


@pytest.mark.parametrize(
    ("cluster", "there", "absent"),
    [
        (NODES, {"NCCL_IB_TIMEOUT"}, {"FI_PROVIDER"}),
        ("2xp5.48xlarge", {"FI_PROVIDER", "FI_EFA_USE_HUGE_PAGE"}, {"NCCL_IB_TIMEOUT"}),
        ("1x8:h100-sxm", {"NCCL_DEBUG"}, {"NCCL_IB_TIMEOUT", "FI_PROVIDER"}),
        ("2xgb200-nvl72", {"NCCL_NET_GDR_C2C"}, {"FI_PROVIDER"}),
    ],
)
def test_variables_follow_the_fabric(cluster, there, absent):
    names = names_of(launched(cluster=cluster)[0])
    assert there <= names.keys()
    assert not absent & names.keys()


def test_hybridep_is_given_its_domain():
    config, _ = launched(
        cluster="16x4:gb200", model=preset("qwen3-30b-a3b"), ep=64,
        options={"moe_dispatcher": "hybridep"},
    )  # fmt: skip
    names = names_of(config)
    assert names["NUM_OF_HYBRID_EP_RANKS_PER_NVLINK_DOMAIN"] == "64"
    assert names["USE_MNNVL"] == "1"


def test_what_a_runtime_has_no_option_for_is_noted_in_a_line():
    notes = launched("torchtitan", model=preset("llama3-8b"), zero_stage=2)[0].notes
    assert "torchtitan has no option for: exit handler, straggler log, NaN check" in notes
    notes = launched("deepspeed", model=preset("llama3-8b"), zero_stage=3)[0].notes
    assert any(note.startswith("set in your training script: save interval") for note in notes)


def test_what_clashes_with_the_launch_is_left_out_with_a_line():
    config, _ = launched(options={"cuda_graph": "full_iteration"})
    assert "--log-straggler" not in {one.flag for one in config.arguments}
    assert any(note.startswith("straggler log: left out with") for note in config.notes)
