"""What a task is expected to last, from what was measured so far; and what it tells."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from math import log, prod, sqrt
from statistics import fmean, median

import numpy as np

from trainplan.profiler.journal import TaskName
from trainplan.profiler.task import Item

RANKS = re.compile(r"\branks=(\d+)")
GROUPS = ("ranks", "per_node", "stride", "gpus", "processes")
"""Numbers of a key that say who takes part: tasks that differ there are of different curves."""
SIZE = re.compile(rf"\b(?!(?:{'|'.join(GROUPS)})=)(\w+)=(\d+)")


LEAST_SECONDS = 1e-6
"""A task takes no less, whatever a coarse clock or a journal says: value is by the second."""


@dataclass(frozen=True, slots=True)
class Ahead:
    """A task of the list."""

    step: int
    name: TaskName
    item: Item

    @property
    def family(self) -> TaskName:
        """Tasks that differ from it in sizes alone: those of its curve."""
        return family_of(self.name)


@cache
def family_of(name: TaskName) -> TaskName:
    """The name without its sizes."""
    return TaskName(name.item, SIZE.sub(r"\1", name.key))


@cache
def size_of(key: str) -> float:
    """The product of its sizes; 1 where it has none."""
    return max(1.0, float(prod(int(found[2]) for found in SIZE.finditer(key))))


@cache
def has_one_size(key: str) -> bool:
    """Is its family a curve over one size?"""
    return len(SIZE.findall(key)) == 1


def marginal(known: int) -> float:
    """Part of the uncertainty of a curve that its next point takes off, after `known` points.

    Source: derived. Before any point a curve is off by some error, and points scatter about it by
    as much: variances add in their inverses, so the error falls with the root of 1 + points.
    """
    return 1 / sqrt(1 + known) - 1 / sqrt(2 + known)


def shares(tasks: Sequence[Ahead]) -> Mapping[TaskName, float]:
    """By family, its part of the share of its item: large groups before small ones.

    Source: derived. Curves of an item share kernels and links, so of each next one less is unknown
    (`marginal`); groups of all ranks are those of most traffic.
    """
    found: dict[TaskName, float] = {}
    for item in dict.fromkeys(task.name.item for task in tasks):
        families = dict.fromkeys(task.family for task in tasks if task.name.item == item)
        ordered = sorted(families, key=_ranks, reverse=True)
        whole = sum(map(marginal, range(len(ordered))))
        found |= {family: marginal(place) / whole for place, family in enumerate(ordered)}
    return found


def _ranks(family: TaskName) -> int:
    found = RANKS.search(family.key)
    return int(found[1]) if found else 0


def most_telling(tasks: Sequence[Ahead], known: Sequence[float]) -> Ahead:
    """Of one family, the task farthest from the sizes that are known: at first the largest.

    Products, which have several sizes, go in their own order: the model's own are first.
    """
    if not has_one_size(tasks[0].name.key):
        return tasks[0]

    def distance(task: Ahead) -> float:
        size = size_of(task.name.key)
        return min((abs(log(size / one)) for one in known), default=size)

    return max(tasks, key=distance)


@dataclass(frozen=True, slots=True)
class Taken:
    """What a task took."""

    size: float
    seconds: float


@dataclass(slots=True)
class Costs:
    """Seconds of tasks, learned as they end."""

    pace: float = 1.0
    """Of this run against what its items say: less where it is quick.

    Source: derived. One slow task says little of those of other items: beside two of the pace at
    the start the median leaves one task aside and follows three.
    """
    taken: dict[TaskName, list[Taken]] = field(default_factory=dict)
    """By family."""
    _items: dict[str, list[float]] = field(default_factory=dict)
    _paces: list[float] = field(init=False)

    def __post_init__(self) -> None:
        self._paces = [self.pace, self.pace]

    def took(self, name: TaskName, item: Item, seconds: float) -> None:
        """A task ended."""
        seconds = max(seconds, LEAST_SECONDS)
        self.taken.setdefault(family_of(name), []).append(Taken(size_of(name.key), seconds))
        self._items.setdefault(name.item, []).append(seconds)
        self._paces.append(seconds / item.seconds)
        self.pace = median(self._paces)

    def sizes(self, family: TaskName) -> list[float]:
        """Those that were measured."""
        return [one.size for one in self.taken.get(family, [])]

    def at_worst(self, name: TaskName, item: Item) -> float:
        """Seconds of a task, as its neighbours took, else as others of its item, else by its item.

        Source: a call takes a start and its bytes or FLOP, which is linear in its size; what lies
        outside the sizes that are known is taken as its neighbour.
        """
        family = sorted(self.taken.get(family_of(name), []), key=lambda one: one.size)
        if family:
            sizes = [one.size for one in family]
            return float(np.interp(size_of(name.key), sizes, [one.seconds for one in family]))
        return fmean(self._items.get(name.item, [self.pace * item.seconds]))

    def expected(self, name: TaskName, item: Item) -> float:
        """As `at_worst`, but that a single task of a family may have met with a disturbance.

        Source: derived. A disturbed task takes several times as long as usual, so of two times the
        one in the middle of their logarithms is off by the same factor from both.
        """
        seconds = self.at_worst(name, item)
        if len(self.taken.get(family_of(name), [])) > 1:
            return seconds
        alike = self._items.get(name.item, [])
        usual = median(alike) if len(alike) > 1 else self.pace * item.seconds
        return sqrt(seconds * usual)
