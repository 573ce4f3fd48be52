"""How a task ended on one rank: its points, or the reason why there are none."""

import gc
import re
from dataclasses import dataclass, replace
from time import monotonic

from trainplan.costmodel.base import PlanError
from trainplan.costmodel.profiles import Point
from trainplan.profiler.host import DeviceClock
from trainplan.profiler.journal import Book, Samples, labelled
from trainplan.profiler.task import MeasurementTask
from trainplan.profiler.torch_on_use import torch

LEFT_ALONE = re.compile(
    r"timed? ?out|connection (closed|reset|refused)|by peer|broken pipe|failed to recv|"
    r"recvValue failed|sendBytes failed|pair closure|remote (process|error)|network error|"
    r"communicator was aborted",
    re.IGNORECASE,
)
"""What torch, gloo and NCCL say on a rank that waited for another one in vain."""
UNSUPPORTED = re.compile(
    r"not (yet )?(supported|implemented)|unsupported|does not support|no backend", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a task ended on this rank."""

    points: tuple[Point, ...] = ()
    samples: tuple[Samples, ...] = ()
    error: str = ""
    alone: bool = False
    """The error is that other ranks did not take part."""
    seconds: float = 0.0


def attempt(task: MeasurementTask, clock: DeviceClock) -> Outcome:
    """Measure on this rank; an error is an outcome, too."""
    begin, book = monotonic(), Book()
    try:
        points = tuple(task.measure(replace(clock, book=book)))
    except Exception as error:  # noqa: BLE001 (whatever a kernel raises is listed, and on)
        alone = not isinstance(error, PlanError) and bool(LEFT_ALONE.search(str(error)))
        outcome = Outcome(error=described(error), alone=alone)
    else:
        samples = tuple(labelled(book.taken, points))
        return Outcome(points, samples, seconds=monotonic() - begin)
    _free_memory()
    return outcome


def described(error: Exception) -> str:
    """Reason and first line of an error."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    name = type(error).__name__
    if isinstance(error, PlanError):
        return lines[0]
    if isinstance(error, MemoryError) or name == "OutOfMemoryError":
        return f"out of memory: {lines[0]}"
    if isinstance(error, NotImplementedError) or UNSUPPORTED.search(lines[0]):
        return f"unsupported: {lines[0]}"
    return f"{name}: {lines[0]}"


def _free_memory() -> None:
    """Give back what the failed task held, so that the next ones have room."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
