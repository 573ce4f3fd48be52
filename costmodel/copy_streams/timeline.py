"""Start and end of every item of one row, and which of them the step waits for.

Every round is walked here, for a person who looks at one plan.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from trainplan.costmodel.copy_streams.transfer_volume import Lane, Order
from trainplan.costmodel.copy_streams.work import Item, Part, Work


@dataclass(frozen=True, slots=True)
class Span:
    """An item as it ran."""

    name: str
    lane: Lane
    start: float
    end: float
    waited_for: int | None
    """Index of the span whose end let it start; none if it could start at once."""


@dataclass(slots=True)
class _Clock:
    """What has run so far."""

    spans: list[Span]
    lanes: dict[Lane, int]
    names: dict[str, int]
    last: int | None
    """The span that ended last."""
    barrier: int | None
    """The span that all that follows waits for."""

    def end(self, index: int | None) -> float:
        """Seconds at which a span ended; 0 before anything ran."""
        return 0.0 if index is None else self.spans[index].end

    def run(self, item: Item, seconds: float, waits: int | None) -> None:
        """Serve an item as soon as its lane, its names and `waits` allow."""
        before = [waits, self.lanes.get(item.lane), *(self.names.get(name) for name in item.after)]
        by = max(before, key=self.end)
        start = self.end(by)
        self.spans.append(Span(item.name, item.lane, start, start + seconds, by))
        index = len(self.spans) - 1
        self.lanes[item.lane] = self.names[item.name] = index
        self.last = index if start + seconds >= self.end(self.last) else self.last

    def part(self, part: Part, row: int) -> None:
        """All rounds of a part."""
        alone = part.order is not Order.OVERLAPPED
        for _ in range(part.rounds):
            self.barrier = chained = self.last if alone else self.barrier
            for item in part.items:
                self.run(item, _seconds(item, row), chained)
                chained = len(self.spans) - 1 if part.order is Order.CHAIN else chained
            for item in part.aside:
                self.run(item, _seconds(item, row), self.barrier)
        self.barrier = self.last if alone else self.barrier


def timeline(work: Work, row: int = 0) -> list[Span]:
    """Every item of every round as it runs, in the order of the program."""
    clock = _Clock([], {}, {}, None, None)
    for part in work.parts:
        clock.part(part, row)
    return clock.spans


def _path(spans: list[Span]) -> list[int]:
    """Indices of the items of the longest path, in order."""
    path: list[int] = []
    index = max(range(len(spans)), key=lambda one: spans[one].end, default=None)
    while index is not None:
        path.append(index)
        index = spans[index].waited_for
    return path[::-1]


def binding(work: Work, row: int = 0) -> dict[Lane, float]:
    """Seconds of each lane on the longest path, most first: their sum is the step.

    Source: derived; rounds that wait for all before are alike, and nothing behind them begins
    sooner: one of them stands for all.
    """
    clock, seconds = _Clock([], {}, {}, None, None), dict[Lane, float]()
    times: list[int] = []
    for part in work.parts:
        again = 1 if part.order is Order.OVERLAPPED else max(1, part.rounds)
        clock.part(replace(part, rounds=part.rounds // again), row)
        times += [again] * (len(clock.spans) - len(times))
    for index in _path(clock.spans):
        span = clock.spans[index]
        seconds[span.lane] = seconds.get(span.lane, 0.0) + times[index] * (span.end - span.start)
    return dict(sorted(seconds.items(), key=lambda pair: -pair[1]))


def _seconds(item: Item, row: int) -> float:
    """Seconds of an item in one row."""
    return float(item.seconds if isinstance(item.seconds, float | int) else item.seconds[row])
