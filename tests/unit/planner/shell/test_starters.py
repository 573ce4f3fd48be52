"""Starters are told from the programs they start, and their nodes and ranks are counted."""

import shlex

import pytest

from trainplan.planner.shell import (
    COMMAND_LINE,
    Launch,
    Place,
    Word,
    launch_of_command,
    launches_of_script,
)
from trainplan.planner.shell.slurm import allocation_of
from trainplan.planner.shell.words import ShellError


def read(command: str) -> Launch:
    return launch_of_command(shlex.split(command), {})


def counts(launch: Launch) -> tuple[str | None, ...]:
    words = (launch.nodes, launch.gpus_per_node, launch.ranks)
    return tuple(word.text if word else None for word in words)


@pytest.mark.parametrize(
    ("command", "starter", "nodes", "per_node", "ranks"),
    [
        ("torchrun --nproc_per_node 8 x.py --tp 2", "torchrun", None, "8", None),
        ("torchrun --nproc-per-node=8 --nnodes=4 x.py --tp 2", "torchrun", "4", "8", None),
        ("torchrun --nproc 8 --nnodes 4 --nnodes 2 x.py --tp 2", "torchrun", "2", "8", None),
        ("torchrun --standalone -t 3 --nnodes 1 x.py --tp 2", "torchrun", "1", None, None),
        ("python -m torch.distributed.run --nnodes 2 x.py --tp 2", "torchrun", "2", None, None),
        ("python3.11 -u -m torch.distributed.launch --use-env x.py --tp 2", "torchrun")
        + (None,) * 3,
        ("/opt/bin/torchrun --nnodes 2 x.py --tp 2", "torchrun", "2", None, None),
        ("python /opt/bin/torchrun --nnodes 2 x.py --tp 2", "torchrun", "2", None, None),
        ("deepspeed x.py --tp 2", "deepspeed", None, None, None),
        ("uv run x.py --tp 2", "python", None, None, None),
        ("uv run --no-sync --extra gpu x.py --tp 2", "python", None, None, None),
        ("uv run --frozen torchrun --nnodes 2 x.py --tp 2", "torchrun", "2", None, None),
        (
            "deepspeed --num_nodes 2 --num_gpus=8 --hostfile h x.py --tp 2",
            "deepspeed",
            "2",
            "8",
            None,
        ),
        ("deepspeed --include a:0,1@b:0,1 x.py --tp 2", "deepspeed", "2", "2", None),
        ("accelerate launch x.py --tp 2", "accelerate", None, None, None),
        (
            "accelerate launch --multi_gpu --num_machines 2 --num_processes 16 x.py --tp 2",
            *("accelerate", "2", "8", "16"),
        ),
        ("srun -N 2 -n 16 -l python -u x.py --tp 2", "srun", "2", "8", "16"),
        (
            "srun -N2 --ntasks-per-node=8 --container-image a python x.py --tp 2",
            "srun",
            "2",
            "8",
            None,
        ),
        ("srun --nodes=2 torchrun --nnodes 2 x.py --tp 2", "torchrun", "2", None, None),
        ("mpirun -np 16 -npernode 8 -x A=b python x.py --tp 2", "mpirun", "2", "8", "16"),
        (
            "mpirun -n 16 --map-by ppr:8:node numactl -N 0 python x.py --tp 2",
            "mpirun",
            "2",
            "8",
            "16",
        ),
        ("python -u x.py --tp 2", "python", None, None, None),
        (
            "nohup env A=b nsys profile -o t torchrun --nnodes 2 x.py --tp 2",
            "torchrun",
            "2",
            None,
            None,
        ),
        ("exec uv run --no-sync python x.py --tp 2", "python", None, None, None),
        ("docker run --gpus all -e A=b image bash -c 'torchrun x.py --tp 2'", "torchrun")
        + (None,) * 3,
        ("ssh node1 'cd /x && torchrun --nnodes 2 x.py --tp 2'", "torchrun", "2", None, None),
        ("sudo singularity exec --nv i.sif torchrun x.py --tp 2", "torchrun", None, None, None),
    ],
)
def test_starters(command, starter, nodes, per_node, ranks):
    launch = read(command)
    assert launch.starter == starter
    assert counts(launch) == (nodes, per_node, ranks)
    assert (launch.program.text, launch.is_module) == ("x.py", False)
    assert [word.text for word in launch.arguments] == ["--tp", "2"]
    assert launch.problems == ()
    assert launch.program.place == COMMAND_LINE


@pytest.mark.parametrize(
    "command",
    [
        "torchrun --nnodes 2 -m a.train -m 3",
        "python -u -m a.train -m 3",
        "deepspeed --module a.train -m 3",
    ],
)
def test_modules(command):
    launch = read(command)
    assert (launch.program.text, launch.is_module) == ("a.train", True)
    assert [word.text for word in launch.arguments] == ["-m", "3"]


@pytest.mark.parametrize(
    ("command", "starter", "unread"),
    [
        ("srun -N 2 -n 16 bind.sh --cpu=x.sh python -u x.py --tp 2", "srun", True),
        ("catchsegv python -u x.py --tp 2", "python", True),
        ("wrap -- torchrun --nnodes 2 x.py --tp 2", "torchrun", True),
        ("torchrun --no-python numactl -N 0 python x.py --tp 2", "torchrun", False),
        ("xargs -n1 bash -c 'torchrun x.py --tp 2'", "torchrun", False),
        ("env A=1 accelerate launch --no_python python x.py --tp 2", "accelerate", False),
    ],
)
def test_what_stands_between_a_starter_and_the_program(command, starter, unread):
    launch = read(command)
    assert (launch.starter, launch.program.text) == (starter, "x.py")
    assert [problem.cause for problem in launch.problems] == ["starter_unread"] * unread


@pytest.mark.parametrize(
    "command",
    ["pkill -f python x.py", "pip install torchrun x.py", "chmod +x python x.py", "foo deepspeed"],
)
def test_tools_start_nothing_that_they_name(command):
    with pytest.raises(ShellError, match="starts no training"):
        read(command)


def test_counts_that_are_no_numbers_are_known_only_in_a_run():
    launch = read("torchrun --nnodes 1:4 --nproc_per_node gpu x.py")
    assert launch.nodes.unresolved == ("--nnodes 1:4",)
    assert launch.gpus_per_node.unresolved == ("--nproc_per_node gpu",)


def test_other_words_of_the_starter_are_kept():
    launch = read("accelerate launch --config_file c.yaml --use_fsdp --num_machines 2 x.py")
    assert [word.text for word in launch.starter_arguments] == [
        "--config_file",
        "c.yaml",
        "--use_fsdp",
    ]


@pytest.mark.parametrize(
    ("command", "image"),
    [
        ("srun --container-image=nvcr.io/nvidia/nemo:26.04 torchrun x.py", "nemo:26.04"),
        ("docker run --gpus all nvcr.io/nvidia/nemo:26.04 torchrun x.py", "nemo:26.04"),
        ("srun --container-image=ubuntu:24.04 torchrun x.py", None),
        ("torchrun x.py --data nemo:26.04", None),
    ],
)
def test_the_container_that_names_a_release_is_kept(command, image):
    found = read(command).container
    assert (found and found.text.rpartition("/")[2]) == image


def test_an_unresolved_rendezvous_address_is_no_problem():
    text = "A=$(hostname)\nN=$(hostname)\ntorchrun --master_addr $A --rdzv_id=$A {} x.py"
    assert launches_of_script(text.format(""), "run.sh", {})[0].problems == ()
    (problem,) = launches_of_script(text.format("--nnodes $N"), "run.sh", {})[0].problems
    assert "--set N=VALUE" in problem.says


def test_an_option_that_the_starter_does_not_know_is_a_problem():
    (problem,) = read("torchrun --tensor-parallel=8 x.py").problems
    assert (problem.cause, problem.verdict) == ("starter_option_unknown", "illegal")


def test_the_environment_is_that_of_the_command():
    text = "export A=1\nB=2\nexport C=$B D\nE=3 torchrun x.py"
    (launch,) = launches_of_script(text, "run.sh", {})
    assert {name: word.text for name, word in launch.environment.items()} == {
        "A": "1",
        "C": "2",
        "E": "3",
    }
    assert launch.environment["C"].place == Place("run.sh", 2)
    launch = read("F=4 env G=5 mpirun -x H=6 python x.py")
    assert {n: w.text for n, w in launch.environment.items()} == {"F": "4", "G": "5", "H": "6"}


@pytest.mark.parametrize(
    "command", ["ls -l", "python -c 'x'", "python -m pip install x", "bash x.sh"]
)
def test_a_command_that_starts_no_training_is_refused(command):
    with pytest.raises(ShellError, match="starts no training"):
        read(command)


def test_words_that_the_users_shell_has_split_are_not_expanded_again():
    launch = launch_of_command(["torchrun", "x.py", "--name", "$A $(b) `c`", ";", "#"], {"A": "1"})
    assert [word.text for word in launch.arguments] == ["--name", "$A $(b) `c`", ";", "#"]
    assert not any(word.unresolved for word in launch.arguments)


SBATCH = """#!/bin/bash
#SBATCH --nodes=4
##SBATCH --nodes=9
#SBATCH --ntasks-per-node 1 --gres=gpu:a100:8   # a comment
"""


def slurm(command: str, head: str = SBATCH) -> Launch:
    return launches_of_script(head + command, "run.sbatch", {})[0]


def test_what_slurm_is_asked_for_is_known_to_the_script():
    command = "srun torchrun --nnodes $SLURM_NNODES --nproc_per_node ${SLURM_GPUS_ON_NODE:-1} x.py"
    launch = slurm(command)
    assert counts(launch) == ("4", "8", None)
    assert launch.nodes.place == Place("run.sbatch", 2)
    assert launch.problems == ()
    launch = slurm("python x.py ${SLURM_PROCID:-0} ${SLURM_JOB_ID:-1}")
    assert [w.unresolved for w in launch.arguments] == [("SLURM_PROCID",), ("SLURM_JOB_ID",)]


@pytest.mark.parametrize(
    ("command", "verdict", "line"),
    [
        ("srun torchrun --nnodes 2 --nproc_per_node 8 x.py", "illegal", 5),
        ("srun torchrun --nproc_per_node 8 x.py", "unread", 2),
        ("srun --ntasks-per-node=8 torchrun --nnodes 4 --nproc_per_node 8 x.py", "illegal", 5),
        ("srun torchrun --nnodes 4 --nproc_per_node 16 x.py", "illegal", 5),
        ("srun torchrun --nnodes 4 --nproc_per_node 4 x.py", "ignored", 5),
        ("torchrun --nnodes 1 --nproc_per_node 8 x.py", "ignored", 5),
        ("torchrun --nnodes 8 --nproc_per_node 8 x.py", "illegal", 5),
    ],
)
def test_a_world_size_that_disagrees_with_slurm_is_a_problem(command, verdict, line):
    (problem,) = slurm(command).problems
    assert (problem.cause, problem.verdict) == ("world_size_disagrees", verdict)
    assert problem.place == Place("run.sbatch", line)


def test_srun_alone_takes_the_counts_of_the_job():
    head = "#SBATCH -N 2\n#SBATCH --ntasks=16\n"
    assert counts(slurm("srun python x.py", head)) == ("2", "8", "16")
    assert counts(slurm("srun -N 1 --ntasks-per-node=4 python x.py", head)) == ("1", "4", None)


def test_gpus_of_a_task_are_counted_for_the_node():
    head = "#SBATCH --nodes=4\n#SBATCH --ntasks=4\n#SBATCH --gpus-per-task=8\n"
    launch = slurm("srun torchrun --nnodes 4 --nproc_per_node 4 x.py", head)
    assert [problem.verdict for problem in launch.problems] == ["ignored"]


def test_directives_behind_a_command_and_arrays_are_said():
    head = "#SBATCH --array=0-3\nset -e\n#SBATCH --nodes=2\n"
    causes = [(p.cause, p.place.line) for p in slurm("srun python x.py", head).problems]
    assert causes == [("sbatch_ignored", 3), ("slurm_array", 1)]


@pytest.mark.parametrize(
    ("stated", "gpus"),
    [
        ("--gpus-per-task=2 --ntasks-per-node=4", "8"),
        ("--gpus-per-task=2 --ntasks=4", "4"),
        ("--gpus-per-task=2", "2"),
        ("--gpus-per-task=2 --ntasks=3", None),
        ("--gpus-per-node=4 --gpus-per-task=2 --ntasks-per-node=4", "4"),
        ("--gpus-per-node=4", "4"),
        ("--gres=gpu:a100:4", "4"),
        ("", None),
    ],
)
def test_gpus_of_a_node_are_those_stated_or_those_of_its_tasks(stated, gpus):
    words = [Word(text, COMMAND_LINE) for text in f"--nodes=2 {stated}".split()]
    found = allocation_of(words).gpus_per_node
    assert (found.text if found else None) == gpus


@pytest.mark.parametrize(
    ("head", "command", "expected"),
    [
        ("#SBATCH --gres=gpu:a100:8", "torchrun --nproc_per_node gpu x.py", (None, "8", None)),
        ("#SBATCH --gres=nvme:1,gpu:a100:4", "deepspeed x.py", (None, "4", None)),
        (
            "#SBATCH -N 2 -G 16",
            "srun torchrun --nnodes $N --nproc_per_node auto x",
            ("2", "8", None),
        ),
        ("#SBATCH -N 2 -n 16", "mpirun python x.py", ("2", "8", "16")),
        ("#PBS -l select=4:ngpus=8:mpiprocs=8", "mpirun -np 32 python x.py", ("4", "8", "32")),
        ("#BSUB -nnodes 4", "jsrun -n 16 -r 4 -a 2 -g 2 python x.py", ("4", "8", "32")),
        ("", "jsrun --nrs=4 -r1 -a8 python x.py", ("4", "8", "32")),
        ("", "flux run -N 4 -n 32 -g 1 python x.py", ("4", "8", "32")),
        ("", "aprun -n 32 -N 8 python x.py", ("4", "8", "32")),
        ("", "ray job submit -- torchrun --nproc_per_node 8 x.py", (None, "8", None)),
        ("export PET_NNODES=2 PET_NPROC_PER_NODE=8", "torchrun x.py", ("2", "8", None)),
        ("export WORLD_SIZE=16", "python x.py", (None, None, "16")),
    ],
)
def test_other_schedulers_count_as_well(head, command, expected):
    (launch,) = launches_of_script(f"{head}\n{command} --tp 2\n", "run.sbatch", {})
    assert counts(launch) == expected


@pytest.mark.parametrize(
    ("head", "gpu", "features"),
    [
        ("#SBATCH --gres=gpu:a100:8", "a100", None),
        ("#SBATCH --gres=gpu:v100-32g:4 -C ib", "v100-32g", "ib"),
        ("#SBATCH --gpus-per-node=h200:8", "h200", None),
        ("#SBATCH --gpus h100:16 --constraint='a100&nvlink'", "h100", "a100&nvlink"),
        ("#SBATCH --gres=gpu:8", None, None),
        ("#SBATCH --gres=gpu:h100", "h100", None),
        ("#PBS -l select=4:ngpus=8:gpu_type=A100", "A100", None),
        ("#BSUB -gpu 'num=8:gmodel=NVIDIAH100'", "H100", None),
        ("", None, None),
    ],
)
def test_the_gpu_that_a_scheduler_is_asked_for_is_kept(head, gpu, features):
    (launch,) = launches_of_script(f"{head}\nsrun python x.py --tp 2\n", "run.sbatch", {})
    words = (launch.gpu, launch.features)
    assert [word.text if word else None for word in words] == [gpu, features]


def test_options_of_a_module_are_not_options_of_python():
    (launch,) = launches_of_script("python -u -m my.train --size 3 --on", "x.sh", {})
    assert launch.problems == ()
    assert [word.text for word in launch.arguments] == ["--size", "3", "--on"]


def test_files_that_a_script_writes_come_with_its_launch():
    text = """F="$(mktemp -d)"
printf '%s' '{"a": 1}' > "$F/ds.json"
cat > /tmp/x.yaml <<EOF
b: 2
EOF
deepspeed x.py --deepspeed_config "$F/ds.json"
"""
    (launch,) = launches_of_script(text, "run.sh", {})
    assert launch.files == {"ds.json": '{"a": 1}', "x.yaml": "b: 2\n"}


def test_a_command_that_a_program_is_given_behind_two_dashes_is_the_launch():
    text = "python submit.py --nodes 2 -- accelerate launch --num_processes 8 a.py --x 1"
    (launch,) = launches_of_script(text, "x.sh", {})
    assert (launch.starter, launch.program.text, launch.ranks.text) == ("accelerate", "a.py", "8")
    assert [one.cause for one in launch.problems] == ["starter_unread"]


def test_a_program_that_starts_its_ranks_by_itself_is_on_what_the_job_has():
    head = "#SBATCH -N 1\n#SBATCH --gres=gpu:a100:8\ncommand -v arctic_training || exit 2\n"
    (launch,) = launches_of_script(f"{head}arctic_training run.yaml\n", "run.sh", {})
    assert (launch.starter, *counts(launch)) == ("console", "1", "8", None)
    assert launch.gpu.text == "a100"
    (launch,) = launches_of_script(
        "mpirun -np 16 -npernode 8 arctic_training_run --config c", "r", {}
    )
    assert (launch.starter, *counts(launch)) == ("mpirun", "2", "8", "16")
