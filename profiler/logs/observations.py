"""Step time and peak memory out of a training log, or step time out of a profiler's trace.

Formats of logs: `profiler.logs.formats`. Traces: `profiler.logs.trace`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median

from trainplan.costmodel.base import SpecError
from trainplan.profiler.logs.formats import FORMATS, StatedRun
from trainplan.profiler.logs.reading import LogReading
from trainplan.profiler.logs.trace import trace_steps

__all__ = ["LogObservation", "StatedRun", "observe"]

WARM_UP_FRACTION = 0.1
MOST_WARM_UP = 10


@dataclass(frozen=True, slots=True)
class LogObservation:
    """What a log says."""

    format: str
    """Name of a format in `profiler.logs.formats`, or `torch-profiler`."""
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
    only_runtime: str | None = None
    """The runtime that alone writes such logs; null: several do."""


def observe(text: str, stated_run: StatedRun) -> LogObservation:
    """Step time of a training log or a trace, without its warm-up.

    Raises:
        SpecError: No line with a step time, only that of the first step, another batch size, or a
            trace without steps.
    """
    traced = trace_steps(text)
    if traced:
        return _observation("torch-profiler", traced)
    reading = LogReading(stated_run)
    reading.feed(text.splitlines())
    if reading.other_batches:
        raise SpecError(
            f"the log ran with global batch size {' and '.join(map(str, reading.other_batches))}, "
            f"asked for is {stated_run.global_batch_size}: correct --global-batch-size"
        )
    found = reading.found
    if found is None:
        known = ", ".join(one.looks_like for one in FORMATS)
        raise SpecError(
            f"no step line found: expected one of {known}, or a trace of the torch profiler"
        )
    steps = found.steps()
    if len(steps) == 1 and max(steps) <= 1:
        raise SpecError(
            "only the first step is logged, and it includes start-up: let the run log a few more "
            f"({found.format.every_step})"
        )
    return _observation(
        found.format.name,
        steps,
        reading.allocated_bytes,
        reading.reserved_bytes,
        found.format.only_runtime,
    )


def _observation(
    name: str,
    steps: Mapping[int, float],
    allocated: float | None = None,
    reserved: float | None = None,
    only_runtime: str | None = None,
) -> LogObservation:
    """Median of the steps without the first ones."""
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
        peak_allocated_bytes=allocated,
        peak_reserved_bytes=reserved,
        only_runtime=only_runtime,
    )
