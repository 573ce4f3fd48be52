"""Formats of training logs, one module each.

To add one: a module with its `LogFormat`, and its line in `FORMATS`.
"""

from trainplan.profiler.logs.formats.arctic_training import ARCTIC_TRAINING
from trainplan.profiler.logs.formats.base import LogFormat, LogLine, Read, StatedRun
from trainplan.profiler.logs.formats.deepspeed import DEEPSPEED
from trainplan.profiler.logs.formats.fsdp2 import FSDP2
from trainplan.profiler.logs.formats.megatron import MEGATRON
from trainplan.profiler.logs.formats.nemo import NEMO
from trainplan.profiler.logs.formats.torchtitan import TORCHTITAN

__all__ = ["FORMATS", "LogFormat", "LogLine", "Read", "StatedRun"]

FORMATS: tuple[LogFormat, ...] = (MEGATRON, TORCHTITAN, ARCTIC_TRAINING, DEEPSPEED, NEMO, FSDP2)
"""All formats; of a log with steps of several the first counts."""
