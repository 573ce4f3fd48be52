"""Launches of torchtitan, as the exporter writes them and as the reader is handed them."""

from trainplan.planner.runtimes import Request
from trainplan.planner.shell import COMMAND_LINE, Launch, Word


def word(text):
    return Word(str(text), COMMAND_LINE)


def launch(*arguments, nodes=1, gpus=8, program="torchtitan.train"):
    """torchrun with these arguments behind the program."""
    ranks = [None if number is None else word(number) for number in (nodes, gpus)]
    return Launch(
        starter="torchrun",
        program=word(program),
        is_module=True,
        arguments=tuple(map(word, arguments)),
        environment={},
        nodes=ranks[0],
        gpus_per_node=ranks[1],
    )


def launch_of(config, cluster):
    """The launch of an export, and the files beside it."""
    words = [w for a in config.arguments for w in (a.flag, *a.values)]
    (group,) = cluster.groups
    files = {file.name: file.text for file in config.files}
    made = launch(*words, nodes=group.num_nodes, gpus=group.gpus_per_node)
    return made, Request(text_of=files.get)
