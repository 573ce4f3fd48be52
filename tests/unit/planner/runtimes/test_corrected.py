"""A corrected command: changed options are replaced, dropped or added, the rest is as it was."""

import shlex
import subprocess

import pytest

from trainplan.planner.launch.config import EnvironmentVariable
from trainplan.planner.runtimes.corrected import SettingChange, corrected, corrected_script
from trainplan.planner.shell import COMMAND_LINE, Launch, Word, launch_of_command

TP = SettingChange("--tensor-model-parallel-size", "8", "4")
HOSTILE = 'it\'s $(touch pwned) `touch pwned` "x" \\ *'


def words(text):
    return tuple(Word(word, COMMAND_LINE) for word in shlex.split(text))


def texts(found):
    return [word.text for word in found]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("--tensor-model-parallel-size 8 --bf16", "--tensor-model-parallel-size 4 --bf16"),
        ("--tensor-model-parallel-size=8 --bf16", "--tensor-model-parallel-size 4 --bf16"),
        ("--bf16", "--bf16 --tensor-model-parallel-size 4"),
        (
            "--tensor-model-parallel-size 8 --bf16 --tensor-model-parallel-size 2",
            "--tensor-model-parallel-size 4 --bf16",
        ),
    ],
)
def test_a_value_is_replaced_once(before, after):
    assert texts(corrected(words(before), [TP])) == shlex.split(after)


def test_an_option_is_dropped_with_its_values():
    gone = SettingChange("--recompute-modules", "core_attn mlp", None)
    found = corrected(words("--recompute-modules core_attn mlp --bf16"), [gone])
    assert texts(found) == ["--bf16"]


def test_a_key_is_replaced_where_it_stands():
    change = SettingChange("model.tensor_model_parallel_size", "8", "4")
    found = corrected(words("--recipe x model.tensor_model_parallel_size=8 train.y=1"), [change])
    assert texts(found) == ["--recipe", "x", "model.tensor_model_parallel_size=4", "train.y=1"]


@pytest.mark.parametrize(
    "command",
    [
        "torchrun --nnodes 2 --nproc_per_node 8 train.py --a 1",
        "deepspeed --num_nodes 2 --num_gpus 8 train.py --a 1",
        "accelerate launch --num_machines 2 --num_processes 16 train.py --a 1",
        "mpirun -np 16 python train.py --a 1",
        "torchrun --nproc_per_node 8 -m package.train --a 1",
    ],
)
def test_a_script_starts_as_many_ranks_of_the_same_program(command):
    launch = launch_of_command(shlex.split(command), {})
    text = corrected_script(launch, [], (), ("what it is",))
    again = launch_of_command(shlex.split(text.splitlines()[-2][:-2] + " --a 1"), {})
    for name in ("starter", "is_module"):
        assert getattr(again, name) == getattr(launch, name)
    assert again.program.text == launch.program.text
    counts = ("nodes", "gpus_per_node", "ranks")
    for word, other in ((getattr(launch, n), getattr(again, n)) for n in counts):
        assert (word and word.text) == (other and other.text)


def test_values_stay_data_and_what_a_run_resolves_stays_as_written(tmp_path):
    open_word = Word("$DATA/x", COMMAND_LINE, ("DATA",))
    launch = Launch(
        starter="echo",
        program=Word(HOSTILE, COMMAND_LINE),
        is_module=False,
        arguments=(Word("--a", COMMAND_LINE), Word(HOSTILE, COMMAND_LINE), open_word),
        environment={"QUEUES": Word(HOSTILE, COMMAND_LINE)},
    )
    needed = EnvironmentVariable("QUEUES", "1", "needed")
    text = corrected_script(launch, [], [needed], (f"{HOSTILE}\ntouch pwned",))
    done = subprocess.run(
        ["bash", "-c", text],
        env={"DATA": "/data", "PATH": "/usr/bin:/bin"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"{HOSTILE} --a {HOSTILE} /data/x\n"
    assert "export QUEUES=1" in text
    assert not list(tmp_path.iterdir())
