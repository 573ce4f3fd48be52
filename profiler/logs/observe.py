"""Step time and peak memory out of a training log, or step time out of a profiler's trace.

Megatron-LM (and what is built on it) prints the mean time of the iterations since its last line:

    iteration       10/     100 | consumed samples: 1280 | elapsed time per iteration (ms): 1234.5 |
    ... | global batch size:   128 | ...
    [Rank 0] (after 2 iterations) memory (MB) | ... | max allocated: 15754.88 | ... |
    max reserved: 16334.00

Source: NVIDIA/Megatron-LM megatron/training/training.py `training_log` and utils.py `report_memory`
(a MB is 1024 * 1024 bytes; Megatron Bridge and NeMo print `mem-max-reserved-gigabytes`, 10^9).

torchtitan prints tokens per second of one GPU since its last line, and the peak reserved (also
after `validate step:`, which is no training step):

    step: 10  loss:  8.1  memory: 45.21GiB(57.1%)  tps: 5,762  mfu: 33.1%

Source: pytorch/torchtitan torchtitan/components/metrics.py `log`; until 2025 `wps` for `tps`.
Colours, ranks and time stamps around a line do not matter. Traces: `profiler.logs.trace`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from trainplan.costmodel.base import GB, GIB, SpecError
from trainplan.profiler.logs.trace import trace_steps

MEGATRON_ITERATION = re.compile(
    r"iteration\s+(?P<number>\d+)\s*/\s*\d+\s*\|.*?"
    r"elapsed time per iteration \(ms\):\s*(?P<ms>\d+(?:\.\d+)?)"
)
MEGATRON_BATCH = re.compile(r"global batch size:\s*(?P<batch>\d+)")
MEGATRON_MEMORY = re.compile(
    r"max allocated:\s*(?P<allocated>\d+(?:\.\d+)?)\s*\|"
    r".*?max reserved:\s*(?P<reserved>\d+(?:\.\d+)?)"
)
GIGABYTES = re.compile(r"mem-max-(?P<kind>allocated|reserved)-gigabytes:\s*(?P<size>\d+(?:\.\d+)?)")
TORCHTITAN_STEP = re.compile(
    r"(?<!validate )step:\s*(?P<number>\d+)\s.*?memory:\s*(?P<gib>\d+(?:\.\d+)?)GiB.*?"
    r"\b(?:tps|wps):\s*(?P<tokens>[\d,]+)"
)
COLOUR = re.compile(r"\x1b\[[0-9;]*m")

MEGABYTE = 1024**2

WARM_UP_FRACTION = 0.1
MOST_WARM_UP = 10


@dataclass(frozen=True, slots=True)
class StatedRun:
    """What turns tokens per second into a step time, and tells whether the log is of this job."""

    global_batch_size: int
    seq_length: int
    num_gpus: int


WRITTEN_BY_ONE = frozenset({"torchtitan"})
"""Formats named after the one runtime that has them; the first is that of all on Megatron Core."""


@dataclass(frozen=True, slots=True)
class LogObservation:
    """What a log says."""

    format: str
    """`megatron-lm`, `torchtitan` or `torch-profiler`."""
    step_time_s: float
    """Median of the lines used."""
    lowest_s: float
    highest_s: float
    num_lines: int
    """Lines used."""
    num_warm_up: int
    """Lines before them, left out."""
    peak_allocated_bytes: float | None
    """Largest of all ranks that report; null where the log does not say."""
    peak_reserved_bytes: float | None

    @property
    def only_runtime(self) -> str | None:
        """The runtime that alone writes such logs; null: several do."""
        return self.format if self.format in WRITTEN_BY_ONE else None


def observe(text: str, stated_run: StatedRun) -> LogObservation:
    """Step time of a training log or a trace, without its warm-up.

    Raises:
        SpecError: No line with a step time, only that of the first step, another batch size, or a
            trace without steps.
    """
    traced = trace_steps(text)
    if traced:
        return _observation("torch-profiler", traced, ())
    lines = [COLOUR.sub("", line) for line in text.splitlines()]
    megatron = _megatron_steps(lines, stated_run)
    steps = megatron or _torchtitan_steps(lines, stated_run)
    if not steps:
        raise SpecError(
            "no step line found: expected 'elapsed time per iteration (ms): ...' (Megatron-LM) or "
            "'step: ... memory: ... tps: ...' (torchtitan), or a trace of the torch profiler"
        )
    if list(steps) == [1]:
        raise SpecError(
            "only the first step is logged, and it includes start-up: let the run log a few more "
            "(--log-interval of Megatron-LM, metrics.log_freq of torchtitan)"
        )
    return _observation("megatron-lm" if megatron else "torchtitan", steps, lines)


def _observation(name: str, steps: Mapping[int, float], lines: Sequence[str]) -> LogObservation:
    """Median of the steps without the first ones, and the memory that lines report."""
    warm_up = 0
    if len(steps) > 1:
        warm_up = min(MOST_WARM_UP, max(1, int(len(steps) * WARM_UP_FRACTION)))
    used = list(steps.values())[warm_up:]
    return LogObservation(
        format=name,
        step_time_s=median(used),
        lowest_s=min(used),
        highest_s=max(used),
        num_lines=len(used),
        num_warm_up=warm_up,
        peak_allocated_bytes=max(_allocated(lines), default=None),
        peak_reserved_bytes=max(_reserved(lines), default=None),
    )


def _megatron_steps(lines: Sequence[str], stated_run: StatedRun) -> Mapping[int, float]:
    """Seconds by iteration, of the lines with the batch size asked for.

    Raises:
        SpecError: All lines have another batch size.
    """
    steps: dict[int, list[float]] = {}
    others: set[int] = set()
    for line in lines:
        found = MEGATRON_ITERATION.search(line)
        if not found:
            continue
        batch = MEGATRON_BATCH.search(line, found.end())
        if batch and int(batch["batch"]) != stated_run.global_batch_size:
            others.add(int(batch["batch"]))
        else:
            _add(steps, found["number"], float(found["ms"]) / 1000)
    if others and not steps:
        raise SpecError(
            f"the log ran with global batch size {' and '.join(map(str, sorted(others)))}, "
            f"asked for is {stated_run.global_batch_size}: correct --global-batch-size"
        )
    return _by_step(steps)


def _torchtitan_steps(lines: Sequence[str], stated_run: StatedRun) -> Mapping[int, float]:
    """Seconds by step: tokens of a step over tokens per second of all GPUs."""
    tokens = stated_run.global_batch_size * stated_run.seq_length / stated_run.num_gpus
    steps: dict[int, list[float]] = {}
    for found in filter(None, map(TORCHTITAN_STEP.search, lines)):
        rate = float(found["tokens"].replace(",", ""))
        _add(steps, found["number"], tokens / rate if rate else 0.0)
    return _by_step(steps)


def _add(steps: dict[int, list[float]], number: str, seconds: float) -> None:
    if seconds > 0:
        steps.setdefault(int(number), []).append(seconds)


def _by_step(steps: Mapping[int, Sequence[float]]) -> Mapping[int, float]:
    """One time for each step: several ranks, or a restart, log it more than once."""
    return {number: median(steps[number]) for number in sorted(steps)}


def _allocated(lines: Sequence[str]) -> Iterator[float]:
    for line in lines:
        yield from (float(m["allocated"]) * MEGABYTE for m in MEGATRON_MEMORY.finditer(line))
        yield from _gigabytes(line, "allocated")


def _reserved(lines: Sequence[str]) -> Iterator[float]:
    for line in lines:
        yield from (float(m["reserved"]) * MEGABYTE for m in MEGATRON_MEMORY.finditer(line))
        yield from _gigabytes(line, "reserved")
        titan = TORCHTITAN_STEP.search(line)
        if titan and float(titan["gib"]):
            yield float(titan["gib"]) * GIB


def _gigabytes(line: str, kind: str) -> Iterator[float]:
    for found in GIGABYTES.finditer(line):
        if found["kind"] == kind:
            yield float(found["size"]) * GB
