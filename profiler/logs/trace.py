"""Steps in a trace of the torch profiler.

`torch.profiler.profile(schedule=...)` marks each step by an event `ProfilerStep#N` with its `dur`
in microseconds, once for each process the trace is of; steps on a GPU's own track are named alike.

Source: pytorch/pytorch torch/profiler/profiler.py `step` and the Chrome trace event format.
"""

import json
import math
import re
from collections.abc import Mapping
from statistics import median

from trainplan.costmodel.base import MICROSECOND, SpecError

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
