"""DeepSpeed's engine, in any script: samples per second of the last step.

    [2026-01-01 10:00:00] [INFO] [timer.py:264:stop] epoch=0/micro_step=24/global_step=3,
    RunningAvgSamplesPerSec=98.1, CurrSamplesPerSec=101.2, MemAllocated=9.31GB,
    MaxMemAllocated=40.0GB

Steps are timed from the third on, and told where `steps_per_print` is set and DeepSpeed's logger
tells what is no warning (`deepspeed.utils.set_log_level_from_string("info")`). A pipeline prints

    steps: 3 loss: 10.1 iter time (s): 1.234 samples/sec: 103.7

The samples of a step are those the engine counts, which it prints at the start: under AutoTP it
takes all ranks for replicas. Source: deepspeedai/DeepSpeed deepspeed/utils/timer.py
`ThroughputTimer.stop` (a GB is 1024^3 bytes), runtime/pipe/engine.py `train_batch`, and
runtime/config.py `DeepSpeedConfig.print`, `world_size`.
"""

import re
from dataclasses import dataclass

from trainplan.costmodel.base import GIB
from trainplan.profiler.logs.formats.base import LogFormat, LogLine, StatedRun, step

NUMBER = r"\d+(?:\.\d+)?(?:e[+-]?\d+)?"
STEP = re.compile(
    r"global_step=(?P<number>\d+), RunningAvgSamplesPerSec=\S+, "
    rf"CurrSamplesPerSec=(?P<rate>{NUMBER})"
)
PEAK = re.compile(rf"MaxMemAllocated=(?P<size>{NUMBER})GB")
PIPELINE = re.compile(rf"steps: (?P<number>\d+) loss: .*?iter time \(s\): (?P<seconds>{NUMBER})")
COUNTED = re.compile(r"\btrain_batch_size \.+ (?P<batch>\d+)")


@dataclass(slots=True)
class Engine:
    """Reads the log of one engine."""

    stated: StatedRun
    counted: int | None = None
    """Samples the engine says a step has."""

    def __call__(self, line: str) -> LogLine | None:
        """Samples of a step, the rate of one, or the time of a pipeline's."""
        if found := COUNTED.search(line):
            self.counted = int(found["batch"])
            return None
        if found := PIPELINE.search(line):
            return LogLine(*step(found, float(found["seconds"])), self._batch())
        found = STEP.search(line)
        if not found:
            return None
        rate = float(found["rate"])
        samples = self.counted or self.stated.global_batch_size
        number, seconds = step(found, samples / rate if rate else 0.0)
        peak = PEAK.search(line, found.end())
        allocated = float(peak["size"]) * GIB if peak else None
        return LogLine(number, seconds, self._batch(), allocated or None)

    def _batch(self) -> int | None:
        """The batch that ran; replicas that are ranks of AutoTP count once."""
        batch = self.stated.global_batch_size
        if self.counted is None:
            return None
        ranks, rest = divmod(self.counted, batch)
        counted_twice = ranks > 0 and rest == 0 and self.stated.num_gpus % ranks == 0
        return batch if counted_twice else self.counted


DEEPSPEED = LogFormat(
    name="deepspeed",
    begin=Engine,
    looks_like="'global_step=..., CurrSamplesPerSec=...' (DeepSpeed)",
    every_step="steps_per_print of DeepSpeed, and its logger at the level info",
)
