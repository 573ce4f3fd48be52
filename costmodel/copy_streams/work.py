"""What one rank and its share of the host do in a step, in order, and how long it takes.

    work = Work(
        parts=(
            Part((Item("read", Lane.DRIVE_READ, a), Item("copy", Lane.H2D, b, after=("read",)))),
            Part((Item("adam", Lane.CPU, c),), Order.CHAIN),
        ),
        rows=1,
    )

A lane serves its items one after the other in the order they stand here. An item starts when its
lane is free and the latest item of every name in `after` has ended: of the same round if it stands
before, else of the round or part before; none so far is none to wait for.

All evaluations read these same items: `floor` (no order, cheap), `makespan` (the longest path),
`timeline` (start and end of each item of one row, for a person who looks at one plan).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from trainplan.costmodel.copy_streams.dependency_rounds import (
    NAMES,
    Columns,
    after_rounds,
    first_state,
)
from trainplan.costmodel.copy_streams.transfer_volume import (
    FloatColumn,
    Lane,
    LaneRows,
    Load,
    Order,
    floor_seconds,
    lane_rows,
    lane_seconds,
)


@dataclass(frozen=True, slots=True)
class Item:
    """One piece of work: of one lane, `seconds` long by row, when what it comes after has ended."""

    name: str
    lane: Lane
    seconds: FloatColumn | float
    after: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Part:
    """Items that are done `rounds` times, one round after the other."""

    items: tuple[Item, ...]
    order: Order = Order.OVERLAPPED
    rounds: int = 1
    aside: tuple[Item, ...] = ()
    """Start with a chain and wait for nothing of it but their lanes and what they name."""

    @property
    def all_items(self) -> tuple[Item, ...]:
        """Of a round, in order."""
        return self.items + self.aside

    def load(self, rows: int) -> Load:
        """Its seconds by lane, without what waits for what."""
        seconds, aside = lane_rows(rows, {}), lane_rows(rows, {})
        for items, loaded in ((self.items, seconds), (self.aside, aside)):
            for item in items:
                loaded[item.lane] += item.seconds
        return Load(seconds, self.order, self.rounds, aside)

    def columns(self, names: Mapping[str, int], rows: int) -> Columns:
        """The items as columns; `names` numbers the names of all parts."""
        items = self.all_items
        seconds = np.empty((len(items), rows))
        for index, item in enumerate(items):
            seconds[index] = item.seconds
        return Columns(
            lanes=tuple(int(item.lane) for item in items),
            seconds=seconds,
            after=tuple(tuple(NAMES + names[name] for name in item.after) for item in items),
            slots=tuple(NAMES + names[item.name] for item in items),
            order=self.order,
            rounds=self.rounds,
            chained=len(self.items) if self.order is Order.CHAIN else 0,
        )

    def changed(self, change: Callable[[Item], Item]) -> Part:
        """The same with other items."""
        items, aside = (tuple(map(change, some)) for some in (self.items, self.aside))
        return replace(self, items=items, aside=aside)


@dataclass(frozen=True, slots=True)
class Work:
    """A step of one rank: parts one after the other (what that means: `Order`)."""

    parts: tuple[Part, ...]
    rows: int = 1

    def __post_init__(self) -> None:
        """Refuse an item that waits for a name which no item has."""
        names = set(self.names)
        for part in self.parts:
            for item in part.all_items:
                if unknown := set(item.after) - names:
                    raise ValueError(f"{item.name} waits for {sorted(unknown)}, which no item is")

    @property
    def names(self) -> list[str]:
        """Names of items, each once."""
        return list(dict.fromkeys(item.name for part in self.parts for item in part.all_items))

    @property
    def loads(self) -> tuple[Load, ...]:
        """Seconds by lane of each part."""
        return tuple(part.load(self.rows) for part in self.parts)

    @property
    def lane_seconds(self) -> LaneRows:
        """Seconds (lane, row) that each lane works in a step. Source: `lane_seconds` of loads."""
        return lane_seconds(self.loads)

    @property
    def floor(self) -> FloatColumn:
        """Least seconds (row,) of a step, never above `makespan`. Source: `floor_seconds`."""
        return floor_seconds(self.loads)

    @property
    def makespan(self) -> FloatColumn:
        """Seconds (row,) of a step: the longest path through items and lanes.

        Source: derived; an item ends its seconds after the later of its lane's last end and the
        ends it waits for. Rounds are multiplied, not walked: `after_rounds`.
        """
        names = {name: slot for slot, name in enumerate(self.names)}
        state = first_state(len(names), self.rows)
        for part in self.parts:
            state = after_rounds(part.columns(names, self.rows), state)
        return np.asarray(state[len(Lane)])

    def faster(self, lane: Lane, factor: float) -> Work:
        """The same items where one lane is `factor` times as fast."""
        return self.changed(
            lambda item: replace(item, seconds=item.seconds / factor) if item.lane is lane else item
        )

    def saved_seconds(self, lane: Lane, factor: float = 2.0) -> FloatColumn:
        """Seconds (row,) saved if one lane were `factor` times as fast.

        Source: derived, the same items are evaluated again with the seconds of that lane divided.
        """
        return np.asarray(self.makespan - self.faster(lane, factor).makespan)

    def only(self, lane: Lane) -> Work:
        """The same items where all lanes but one take no time."""
        return self.changed(lambda item: item if item.lane is lane else replace(item, seconds=0.0))

    def changed(self, change: Callable[[Item], Item]) -> Work:
        """The same with other items."""
        return replace(self, parts=tuple(part.changed(change) for part in self.parts))

    @property
    def exposed(self) -> FloatColumn:
        """Seconds (row,) by which the step outlasts the GPU's own work; 0 where others take none.

        Source: derived; the same arithmetic on the same items, once with all lanes and once with
        those of the GPU alone, so that lanes without work add nothing to the last digit.
        """
        return np.asarray(self.makespan - self.only(Lane.GPU).makespan)


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
