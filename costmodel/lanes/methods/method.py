"""What is known of a published way to use host, drives and links."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from trainplan.costmodel.lanes.placed import Place, Placement, Quantities, Speeds
from trainplan.costmodel.lanes.work import Work


@dataclass(frozen=True, slots=True)
class Kept:
    """Bytes that lie somewhere for each parameter, before they are divided by ranks that share."""

    place: Place
    term: str
    bytes_per_parameter: float


@dataclass(frozen=True, slots=True)
class Method:
    """A named policy. Without a runtime it is priced as a method, and nothing exports it."""

    name: str
    what: str
    """In one line."""
    source: str
    work: Callable[[Quantities, Speeds, Placement], Work]
    """A step of a single row; the placement says what the method leaves open."""
    runtime: str | None = None
    """A living runtime that has it, with its option."""
    keeps: tuple[Kept, ...] = ()
    """As the publication has it; empty where it leaves states where they were."""

    def bytes_per_parameter(self, place: Place) -> float:
        """All that lies in one place. Source: `keeps`."""
        return sum(kept.bytes_per_parameter for kept in self.keeps if kept.place is place)
