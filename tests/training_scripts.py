"""Launches of training scripts under DeepSpeed and Accelerate, as exporters write them."""

from trainplan.planner.launch.config import ConfigFile
from trainplan.planner.runtimes import Request
from trainplan.planner.shell import COMMAND_LINE, Launch, Word


def word(text):
    return Word(str(text), COMMAND_LINE)


def launch(*arguments, starter="torchrun", nodes=1, gpus=8, ranks=None, program="train.py",
           environment=(), starter_arguments=()):  # fmt: skip
    counts = [None if number is None else word(number) for number in (nodes, gpus, ranks)]
    return Launch(
        starter=starter,
        program=word(program),
        is_module=False,
        arguments=tuple(map(word, arguments)),
        environment={name: word(value) for name, value in dict(environment).items()},
        nodes=counts[0],
        gpus_per_node=counts[1],
        ranks=counts[2],
        starter_arguments=tuple(map(word, starter_arguments)),
    )


def launch_of(config, job, *, by_file=False):
    """The launch of an export, and what the user says beside it; `by_file`: its YAML is named."""
    words = [
        value.name if isinstance(value, ConfigFile) else value
        for argument in config.arguments
        for value in (argument.flag, *argument.values)
    ]
    (group,) = job.cluster.groups
    counts = {"nodes": group.num_nodes, "gpus": group.gpus_per_node}
    if by_file:
        more = {"starter": "accelerate", "starter_arguments": ("--config_file", "accelerate.yaml")}
        made = launch(*words, nodes=None, gpus=None, **more)
    else:
        variables = {variable.name: variable.value for variable in config.environment}
        made = launch(*words, **counts, environment=variables)
    files = {file.name: file.text for file in config.files}
    wanted = Request(
        cluster=job.cluster,
        model=job.model,
        seq_length=job.training.seq_length,
        global_batch_size=job.training.global_batch_size,
        text_of=files.get,
    )
    return made, wanted
