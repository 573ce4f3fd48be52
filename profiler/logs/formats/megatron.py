"""Megatron-LM and what prints as it does: its zero-bubble fork and Megatron-Bridge.

It prints the mean time of the iterations since its last line:

    iteration       10/     100 | consumed samples: 1280 | elapsed time per iteration (ms): 1234.5 |
    ... | global batch size:   128 | ...
    [Rank 0] (after 2 iterations) memory (MB) | ... | max allocated: 15754.88 | ... |
    max reserved: 16334.00

Source: NVIDIA/Megatron-LM megatron/training/training.py `training_log` and
utils/common_utils.py `report_memory` (a MB is 1024 * 1024 bytes); NVIDIA-NeMo/Megatron-Bridge
src/megatron/bridge/training/utils/train_utils.py `training_log` (which says `Step Time : 1.23s`
before the same line) and `report_memory` (`mem-max-reserved-gigabytes`, 10^9).
"""

import re

from trainplan.costmodel.base import GB
from trainplan.profiler.logs.formats.base import (
    LogFormat,
    LogLine,
    StatedRun,
    largest,
    numbers,
    stateless,
    step,
)

ITERATION = re.compile(
    r"iteration\s+(?P<number>\d+)\s*/\s*\d+\s*\|.*?"
    r"elapsed time per iteration \(ms\):\s*(?P<ms>\d+(?:\.\d+)?)"
)
BATCH = re.compile(r"global batch size:\s*(?P<batch>\d+)")
MEGABYTES = re.compile(
    r"max allocated:\s*(?P<allocated>\d+(?:\.\d+)?)\s*\|"
    r".*?max reserved:\s*(?P<reserved>\d+(?:\.\d+)?)"
)
ALLOCATED = re.compile(r"mem-max-allocated-gigabytes:\s*(?P<size>\d+(?:\.\d+)?)")
RESERVED = re.compile(r"mem-max-reserved-gigabytes:\s*(?P<size>\d+(?:\.\d+)?)")
MEGABYTE = 1024**2


def read(line: str, stated: StatedRun) -> LogLine | None:
    """Iteration and batch, or memory of ranks."""
    del stated
    if found := ITERATION.search(line):
        number, seconds = step(found, float(found["ms"]) / 1000)
        batch = BATCH.search(line, found.end())
        return LogLine(number, seconds, int(batch["batch"]) if batch else None)
    if "max" not in line:
        return None
    allocated = largest(
        (
            *(size * MEGABYTE for size in numbers(MEGABYTES, line, "allocated")),
            *(size * GB for size in numbers(ALLOCATED, line, "size")),
        )
    )
    reserved = largest(
        (
            *(size * MEGABYTE for size in numbers(MEGABYTES, line, "reserved")),
            *(size * GB for size in numbers(RESERVED, line, "size")),
        )
    )
    if allocated is None and reserved is None:
        return None
    return LogLine(allocated_bytes=allocated, reserved_bytes=reserved)


MEGATRON = LogFormat(
    name="megatron-lm",
    begin=stateless(read),
    looks_like="'elapsed time per iteration (ms): ...' (Megatron-LM, Megatron-Bridge)",
    every_step="--log-interval 1 of Megatron-LM",
)
