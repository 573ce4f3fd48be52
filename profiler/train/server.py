"""Imports a trainer once and forks the ranks of each request: `python -m ...server TRAINER`.

Requests come one a line on stdin, answers go one a line to stdout; what libraries print goes to
stderr. It ends when stdin does.
"""

import os
import sys
import warnings
from typing import cast

from trainplan.profiler.train.comm_volume import watch_operations
from trainplan.profiler.train.ranks import ParentGoneError, run_ranks
from trainplan.profiler.train.request import TrainerName, TrainOrder
from trainplan.profiler.train.trainers import train_of


def serve(trainer: TrainerName) -> None:
    """Answer requests until there are no more."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb", buffering=0)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    warnings.simplefilter("ignore")
    import torch  # noqa: PLC0415 (here and nowhere else in the process that forks)

    torch.set_num_threads(1)
    watch_operations()
    train = train_of(trainer)
    while line := sys.stdin.buffer.readline():
        order = TrainOrder.model_validate_json(line)
        answered = run_ranks(order, train, alive=sys.stdin.fileno())
        answers.write(answered.model_dump_json().encode() + b"\n")


if __name__ == "__main__":
    try:
        serve(cast("TrainerName", sys.argv[1]))
    except (ParentGoneError, BrokenPipeError):
        sys.exit(1)
