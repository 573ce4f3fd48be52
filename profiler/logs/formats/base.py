"""What a format of training logs is: a reader of its lines."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from re import Match, Pattern


@dataclass(frozen=True, slots=True)
class StatedRun:
    """What turns tokens per second into a step time, and tells whether the log is of this job."""

    global_batch_size: int
    seq_length: int
    num_gpus: int


@dataclass(frozen=True, slots=True)
class LogLine:
    """What a line says; null: not this."""

    number: int | None = None
    """Of the step."""
    seconds: float | None = None
    """Of one step."""
    batch: int | None = None
    """Global batch size that the line names."""
    allocated_bytes: float | None = None
    """Peak; the largest where a line is of several ranks."""
    reserved_bytes: float | None = None


Read = Callable[[str], LogLine | None]
"""Reads the lines of one log in their order; may remember earlier ones."""


@dataclass(frozen=True, slots=True)
class LogFormat:
    """One way to write training logs."""

    name: str
    begin: Callable[[StatedRun], Read]
    """Reader of a log of this run."""
    looks_like: str
    """Part of a line with a step time."""
    every_step: str
    """What has each step logged."""
    only_runtime: str | None = None
    """The runtime that alone writes such logs; null: several do."""


def largest(values: Iterable[float]) -> float | None:
    """The largest, null of none."""
    return max(values, default=None)


def numbers(pattern: Pattern[str], line: str, name: str) -> Iterator[float]:
    """Values of a group, of all matches in a line."""
    yield from (float(found[name]) for found in pattern.finditer(line))


def stateless(read: Callable[[str, StatedRun], LogLine | None]) -> Callable[[StatedRun], Read]:
    """Reader that remembers nothing."""
    return lambda stated: lambda line: read(line, stated)


def step(found: Match[str], seconds: float) -> tuple[int, float | None]:
    """Number and time of a step; a time of nothing is none."""
    return int(found["number"]), seconds if seconds > 0 else None
