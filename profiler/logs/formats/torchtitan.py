"""torchtitan: tokens per second of one GPU since its last line, and the peak reserved.

    step: 10  loss:  8.1  memory: 45.21GiB(57.1%)  tps: 5,762  mfu: 33.1%

Also after `validate step:`, which is no training step. Source: pytorch/torchtitan
torchtitan/components/metrics.py `log`; until 2025 `wps` for `tps`.
"""

import re

from trainplan.costmodel.base import GIB
from trainplan.profiler.logs.formats.base import LogFormat, LogLine, StatedRun, stateless, step

STEP = re.compile(
    r"(?<!validate )step:\s*(?P<number>\d+)\s.*?memory:\s*(?P<gib>\d+(?:\.\d+)?)GiB.*?"
    r"\b(?:tps|wps):\s*(?P<tokens>[\d,]+)"
)


def read(line: str, stated: StatedRun) -> LogLine | None:
    """Tokens of a step over tokens per second of all GPUs."""
    found = STEP.search(line)
    if not found:
        return None
    rate = float(found["tokens"].replace(",", ""))
    tokens = stated.global_batch_size * stated.seq_length / stated.num_gpus
    number, seconds = step(found, tokens / rate if rate else 0.0)
    reserved = float(found["gib"]) * GIB
    return LogLine(number, seconds, reserved_bytes=reserved or None)


TORCHTITAN = LogFormat(
    name="torchtitan",
    begin=stateless(read),
    looks_like="'step: ... memory: ... tps: ...' (torchtitan)",
    every_step="metrics.log_freq of torchtitan",
    only_runtime="torchtitan",
)
