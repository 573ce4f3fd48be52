"""A training log that is read as it grows.

Colours, ranks and time stamps around a line do not matter.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from trainplan.profiler.logs.formats import FORMATS, LogFormat, LogLine, StatedRun

COLOUR = re.compile(r"\x1b\[[0-9;]*m")
NO_NUMBER = re.compile(
    r"loss['\"]?\s*[:=]?\s*(?:tensor\()?[+-]?(?:nan|inf)\b"
    r"|number of nan iterations:\s*[1-9]"
    r"|found (?:NaN|Inf) in local",
    re.IGNORECASE,
)
"""A loss that is no number; Megatron-LM does not print one, it counts it or stops with a sentence.

Source: NVIDIA/Megatron-LM megatron/training/training.py `training_log`, pretrain_gpt.py
`loss_func` and megatron/core/distributed/param_and_grad_buffer.py.
"""


@dataclass(slots=True)
class Taken:
    """What one format found in a log."""

    format: LogFormat
    times: dict[int, list[float]] = field(default_factory=dict)
    """Seconds by step; several ranks, or a restart, log one more than once."""
    other_batches: set[int] = field(default_factory=set)
    """Of lines that do not count: another job's."""
    allocated_bytes: float | None = None
    reserved_bytes: float | None = None

    def steps(self) -> Mapping[int, float]:
        """One time for each step."""
        return {number: median(self.times[number]) for number in sorted(self.times)}

    def take(self, line: LogLine, stated: StatedRun) -> None:
        """Keep what a line says."""
        self.allocated_bytes = _larger(self.allocated_bytes, line.allocated_bytes)
        self.reserved_bytes = _larger(self.reserved_bytes, line.reserved_bytes)
        if line.batch not in (None, stated.global_batch_size):
            assert line.batch is not None
            self.other_batches.add(line.batch)
        elif line.number is not None and line.seconds is not None:
            self.times.setdefault(line.number, []).append(line.seconds)


class LogReading:
    """Reads a log line by line, in all formats at once."""

    def __init__(self, stated: StatedRun) -> None:
        self.stated = stated
        self.no_number = ""
        """The first line that tells of a loss which is no number."""
        self.taken = tuple(Taken(one) for one in FORMATS)
        self._readers = tuple((taken, taken.format.begin(stated)) for taken in self.taken)

    def feed(self, lines: Iterable[str]) -> None:
        """Take whole lines."""
        for raw in lines:
            line = COLOUR.sub("", raw)
            if not self.no_number and NO_NUMBER.search(line):
                self.no_number = line.strip()
            for taken, read in self._readers:
                fields = read(line)
                if fields is not None:
                    taken.take(fields, self.stated)

    @property
    def found(self) -> Taken | None:
        """What the first format with steps found."""
        return next((one for one in self.taken if one.times), None)

    @property
    def other_batches(self) -> tuple[int, ...]:
        """Batch sizes of lines that are of another job, where none is of this one."""
        return (
            () if self.found else tuple(sorted(set().union(*(t.other_batches for t in self.taken))))
        )

    @property
    def allocated_bytes(self) -> float | None:
        """Largest peak of all ranks that report; null where the log does not say."""
        return max((t.allocated_bytes for t in self.taken if t.allocated_bytes), default=None)

    @property
    def reserved_bytes(self) -> float | None:
        """As `allocated_bytes`."""
        return max((t.reserved_bytes for t in self.taken if t.reserved_bytes), default=None)


def _larger(one: float | None, other: float | None) -> float | None:
    return max((size for size in (one, other) if size is not None), default=None)


class GrowingFile:
    """A text file that another process appends to; each call reads what is new.

    A last line without its end waits for it, which may be that of a bar of progress. A character
    that is none is replaced.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offset = 0
        self._begun = b""

    def more(self) -> list[str]:
        """Whole lines since the last call; none while the file is not there."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._offset)
                new = file.read()
        except FileNotFoundError:
            return []
        self._offset += len(new)
        text = self._begun + new
        end = max(text.rfind(b"\n"), text.rfind(b"\r")) + 1
        self._begun = text[end:]
        return text[:end].decode("utf-8", errors="replace").splitlines()

    def rest(self) -> list[str]:
        """What is left where nobody writes any more: also a line without its end."""
        lines = self.more()
        last, self._begun = self._begun, b""
        return [*lines, *last.decode("utf-8", errors="replace").splitlines()]
