"""Step time and peak memory out of a training log, or step time out of a profiler's trace.

Formats of logs: `profiler.logs.formats`. Of traces: `torch.profiler.profile(schedule=...)` marks
each step by an event `ProfilerStep#N` with its `dur` in microseconds, once for each process the
trace is of; steps on a GPU's own track are named alike. Source: pytorch/pytorch
torch/profiler/profiler.py `step` and the Chrome trace event format.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median

from trainplan.costmodel.base import MICROSECOND, SpecError
from trainplan.profiler.logs.formats import FORMATS, StatedRun
from trainplan.profiler.logs.reading import LogReading

STEP = re.compile(r"ProfilerStep#(?P<number>\d{1,9})")
GPU_TRACK = "gpu_user_annotation"
"""Category of the copy of the event on a GPU's track, from its first kernel to its last."""


def trace_steps(text: str) -> Mapping[int, float]:
    """Seconds by step of a Chrome trace, empty where the text is none.

    Raises:
        SpecError: The trace has no step, or a duration that is none.
    """
    if not text.lstrip().startswith(("{", "[")):
        return {}
    try:
        top = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    events = top.get("traceEvents") if isinstance(top, dict) else top
    if not isinstance(events, list) or not any(isinstance(event, dict) for event in events):
        return {}
    steps: dict[int, list[float]] = {}
    for event in events:
        found = STEP.fullmatch(str(event.get("name"))) if isinstance(event, dict) else None
        if found and event.get("cat") != GPU_TRACK and "dur" in event:
            steps.setdefault(int(found["number"]), []).append(_seconds(found[0], event["dur"]))
    if not steps:
        raise SpecError(
            "the trace has no event 'ProfilerStep#N': call step() of the torch profiler after each "
            "training step, with a schedule"
        )
    return {number: median(steps[number]) for number in sorted(steps)}


def _seconds(name: str, value: object) -> float:
    """Seconds of a step."""
    try:
        number = float(value) if isinstance(value, int | float) else math.nan
    except OverflowError:
        number = math.nan
    if not math.isfinite(number) or number <= 0:
        raise SpecError(f"{name} of the trace has dur {str(value)[:40]!r}: expected microseconds")
    return number * MICROSECOND


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
            f"requested is {stated_run.global_batch_size}: correct --global-batch-size"
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
