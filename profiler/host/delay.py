"""A kernel that keeps the GPU busy while calls are queued behind it, so that none waits for Python.

Never run on a GPU so far; `tests/unit/profiler/host/fake_gpu.py` is what it was tried on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol, cast

from trainplan.profiler.torch_on_use import torch

FIRST_CYCLES_PER_SECOND = 1e9
"""Taken for the rate of a GPU's counter until one delay has been timed.

Source: torch's kernel (aten/src/ATen/cuda/Sleep.cu at 4f2b32ed) counts cycles of the
multiprocessors, 1 to 2 GHz; on RDNA 3 a counter of the board, of which it waits ten times too long
once.
"""
MARGIN = 2.0
"""The delay lasts this many times what the last launches took: Python's time scatters."""
SLACK_SECONDS = 50e-6
"""Added to it. Source: derived; some times what two events and an interrupt take of the host."""
MOST_SECONDS = 0.25
"""A call that launches for longer is timed as it comes."""
FEWER = 4
"""A block that was not held back is cut to a quarter.

Source: derived; a stream holds some 1,000 kernels (NVIDIA developer forum, thread 68937), so that
behind a delay the host waits at the next one; from 200 calls four cuts lead to one.
"""
MOST_CUTS = 7


class Event(Protocol):
    """A mark in the work of a GPU."""

    def record(self) -> None:
        """Set the mark behind what was asked of the GPU so far."""

    def query(self) -> bool:
        """Has the GPU come this far?"""
        ...

    def elapsed_time(self, end: Event, /) -> float:
        """Milliseconds to a later mark."""
        ...


@dataclass(frozen=True, slots=True)
class Block:
    """Calls that are timed as one, and how long the GPU is kept from them."""

    calls: int
    delay_seconds: float = 0.0
    """Zero: they run as they come."""
    cuts: int = 0
    """How often it was not held back for long enough."""

    def held_back(self, host_seconds: float) -> Block:
        """With a delay for calls that take the host `host_seconds` each."""
        wanted = MARGIN * host_seconds * (self.calls + 1) + SLACK_SECONDS
        return replace(self, delay_seconds=wanted if wanted <= MOST_SECONDS else 0.0)

    def again(self, host_seconds: float) -> Block | None:
        """After a block whose calls took the host so long that the GPU had begun with them.

        Null where nothing helps: the call waits for the GPU, or launches more than a stream holds.
        """
        fewer = Block(max(1, self.calls // FEWER), cuts=self.cuts + 1).held_back(host_seconds)
        return fewer if fewer.delay_seconds and fewer.cuts <= MOST_CUTS else None


@dataclass(slots=True)
class Delay:
    """Keeps the stream in use busy; it learns how fast the GPU counts."""

    cycles_per_second: float = FIRST_CYCLES_PER_SECOND

    def ask(self, seconds: float) -> Callable[[], None]:
        """Queue a delay of about `seconds`; call what is returned once the GPU is past it.

        Without delay where torch has no such kernel, which the clock notices.
        """
        spin = cast("Callable[[int], None] | None", getattr(torch.cuda, "_sleep", None))
        if spin is None or not seconds:
            return lambda: None
        cycles, begin, end = int(seconds * self.cycles_per_second), event(), event()
        begin.record()
        spin(cycles)
        end.record()

        def learn() -> None:
            milliseconds = begin.elapsed_time(end)
            if milliseconds > 0:
                self.cycles_per_second = cycles / milliseconds * 1000

        return learn


def event() -> Event:
    """A mark that can be timed."""
    return cast("Callable[..., Event]", torch.cuda.Event)(enable_timing=True)
