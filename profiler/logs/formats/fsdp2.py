"""The program that `plan export` writes for PyTorch's FSDP2 prints each step.

    step 3: loss 10.123456, gradient norm 1.000000, 0.123 s, peak 123456789 bytes

Source: planner/runtimes/fsdp2/train_fsdp2.txt, `train`; the peak is of memory allocated on the
GPU of rank 0, and 0 without one.
"""

import re

from trainplan.profiler.logs.formats.base import LogFormat, LogLine, StatedRun, stateless, step

STEP = re.compile(
    r"step (?P<number>\d+): loss \S+, gradient norm \S+, "
    r"(?P<seconds>\d+\.\d+) s, peak (?P<peak>\d+) bytes"
)


def read(line: str, stated: StatedRun) -> LogLine | None:
    """A step and its peak."""
    del stated
    found = STEP.search(line)
    if not found:
        return None
    number, seconds = step(found, float(found["seconds"]))
    return LogLine(number, seconds, allocated_bytes=float(found["peak"]) or None)


FSDP2 = LogFormat(
    name="fsdp2",
    begin=stateless(read),
    looks_like="'step ...: loss ..., ... s, peak ... bytes' (exported for FSDP2)",
    every_step="nothing of FSDP2's, which logs each",
    only_runtime="fsdp2",
)
