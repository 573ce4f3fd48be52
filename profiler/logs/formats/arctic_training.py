"""ArcticTraining: a line for each micro batch, with the number of steps that are done.

    Train iter:  3/100   3% | loss: 10.1234 | iter time: 1.234s | iter tflops: 310.2 | lr: 3.000E-04
    | step time: 1.201s | epoch: 0 | MA 9.31 GB | Max_MA 40.50 GB | NV 45.10 GB | CPU mem: ...

A step is as long as the micro batches since the one before it. Source: snowflakedb/ArcticTraining
arctic_training/metrics.py `print_summary`, trainer/trainer.py `epoch`, utils.py
`human_format_secs` and debug/utils.py `get_mem_metrics` (a GB is 2^30 bytes).
"""

import re
from dataclasses import dataclass

from trainplan.costmodel.base import GIB
from trainplan.profiler.logs.formats.base import LogFormat, LogLine, StatedRun

ITERATION = re.compile(
    r"Train iter:\s*(?P<number>\d+)/\d+\s.*?\| iter time: (?P<time>\d+\.\d+(?=s)|\d+:\d+:\d+)"
)
PEAK = re.compile(r"\| Max_MA (?P<size>\d+\.\d+) GB")


@dataclass(slots=True)
class Trainer:
    """Reads the log of one trainer: the steps that are done, and the seconds since the last."""

    stated: StatedRun
    done: int = 0
    since: float = 0.0

    def __call__(self, line: str) -> LogLine | None:
        """A step where it ends, else memory alone."""
        found = ITERATION.search(line)
        if not found:
            return None
        for place, part in enumerate(reversed(found["time"].split(":"))):
            self.since += float(part) * 60**place
        peak = PEAK.search(line, found.end())
        allocated = float(peak["size"]) * GIB if peak else None
        number = int(found["number"])
        if number == self.done:
            return LogLine(allocated_bytes=allocated)
        seconds, self.done, self.since = self.since, number, 0.0
        return LogLine(number, seconds or None, allocated_bytes=allocated)


ARCTIC_TRAINING = LogFormat(
    name="arctic-training",
    begin=Trainer,
    looks_like="'Train iter: ... | iter time: ...' (ArcticTraining)",
    every_step="train_log_iter_interval of ArcticTraining",
    only_runtime="arctic-training",
)
