"""NeMo 2: means of what was logged since its last line, the time of a step among them.

    Training epoch 0, iteration 10/99 | lr: 1.5e-05 | global_batch_size: 128 | global_step: 10 |
    reduced_train_loss: 11.03 | train_step_timing in s: 1.234 | consumed_samples: 1280

Iterations count from 0. Source: NVIDIA/NeMo nemo/lightning/pytorch/callbacks/progress_printer.py
`format_string`.
"""

import re

from trainplan.profiler.logs.formats.base import LogFormat, LogLine, StatedRun, stateless, step

STEP = re.compile(
    r"Training epoch \d+, iteration (?P<number>\d+)/\d+ \|.*?"
    r"train_step_timing in s: (?P<seconds>\d+(?:\.\d+)?(?:e[+-]?\d+)?)"
)
BATCH = re.compile(r"global_batch_size: (?P<batch>\d+)\b")


def read(line: str, stated: StatedRun) -> LogLine | None:
    """A step and its batch."""
    del stated
    found = STEP.search(line)
    if not found:
        return None
    batch = BATCH.search(line)
    return LogLine(*step(found, float(found["seconds"])), int(batch["batch"]) if batch else None)


NEMO = LogFormat(
    name="nemo-2",
    begin=stateless(read),
    looks_like="'Training epoch ..., iteration ... train_step_timing in s: ...' (NeMo 2)",
    every_step="log_every_n_steps of NeMo",
)
