"""What is measured next: in the order of the items, or by what a second of measuring tells.

Of all ranks the first one has an agenda and tells the others.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Literal

from pydantic import NonNegativeInt

from trainplan.costmodel.spec import Spec
from trainplan.profiler.journal import MOST_STARTS, PATIENCE, JournalContent, LeftOut, TaskName
from trainplan.profiler.launch.costs import Ahead, Costs, marginal, most_telling, shares

CANARY_FRACTION = 0.02
"""Most of the time that asking whether the machine runs as usual may take."""
REPEAT_FRACTION = 0.25
"""Most of the time of the first round that measuring doubtful tasks again may take, where no budget
says."""
SLIP_FRACTION = 0.1
"""Of a budget, by which a run may be late."""
END_SECONDS = 3.0
"""Kept of a budget for what follows the last task.

Source: derived; on a CPU the ranks part, the curves are fitted and the profile is written in half
of that. Not measured on GPUs.
"""


@dataclass(frozen=True, slots=True)
class Budget:
    """How long a run may take, start and end included."""

    seconds: float
    until: float
    """When it is spent, by the monotonic clock of the host of rank 0."""


class Turn(Spec):
    """What all ranks do next."""

    does: Literal["task", "repeat", "check", "end"]
    """`check`: run the probe."""
    step: NonNegativeInt = 0
    """Of a task: its number in the list."""


@dataclass(slots=True)
class Scheduler:
    """The tasks ahead, seen by rank 0."""

    tasks: Sequence[Ahead]
    """All of the run that were not passed over."""
    content: Callable[[], JournalContent]
    """What the journal says now."""
    error_shares: Callable[[], Mapping[str, float]]
    """By item, the part of a step's time that measuring it makes sure of."""
    now: Callable[[], float]
    costs: Costs
    budget: Budget | None = None
    probe_seconds: float = 0.0
    """What the probe took so far."""
    waiting: list[Ahead] = field(init=False)
    """Those of the first round."""
    unchecked: list[Ahead] = field(default_factory=list)
    """Measured since The probe ran last."""
    _known: Counter[TaskName] = field(init=False)
    """Tasks that were measured, by family."""
    _shares: Mapping[TaskName, float] = field(init=False)
    """Of the share of an item, by family."""
    _begin: float = field(init=False)
    _asking: float = field(init=False)
    """What the probe took last."""
    _again: list[Ahead] = field(default_factory=list)
    """Those of this round of repeats, the most valuable first."""
    _again_seconds: float = inf
    _over: bool = False

    def __post_init__(self) -> None:
        self._begin, self._asking = self.now() - self.probe_seconds, self.probe_seconds
        content = self.content()
        self.waiting = [task for task in self.tasks if task.name not in content.done]
        done = [task for task in self.tasks if task.name in content.seconds]
        for task in done:
            self.costs.took(task.name, task.item, content.seconds[task.name][0])
        self._known = Counter(task.family for task in done)
        self._shares = shares(self.tasks)

    def turn(self) -> Turn:
        """What comes next; a task that it names is no longer ahead."""
        if self.unchecked and self._check_is_due():
            return Turn(does="check")
        if task := self._first_round():
            return Turn(does="task", step=task.step)
        if task := self._repeat():
            return Turn(does="repeat", step=task.step)
        return Turn(does="check" if self.unchecked else "end")

    def ended(self, step: int, seconds: float, *, measured: bool) -> None:
        """A task took so long; a failed one tells nothing of its curve but what it takes."""
        task = next(task for task in self.tasks if task.step == step)
        self.costs.took(task.name, task.item, seconds)
        self._again_seconds -= seconds
        if measured:
            self._known[task.family] += 1
            self.unchecked.append(task)

    def checked(self, seconds: float) -> tuple[Ahead, ...]:
        """The probe ran; the tasks it tells of."""
        self.probe_seconds, self._asking = self.probe_seconds + seconds, seconds
        checked, self.unchecked = tuple(self.unchecked), []
        return checked

    def left_out(self) -> LeftOut | None:
        """What a budget had no time for."""
        if self.budget is None or not self.waiting:
            return None
        names = [task.name for task in self.waiting]
        items = dict.fromkeys(name.item for name in names)
        keys = {item: tuple(name.key for name in names if name.item == item) for item in items}
        return LeftOut(budget_seconds=self.budget.seconds, keys=keys)

    def _check_is_due(self) -> bool:
        """So that with the last check of the run the probe stays within its share."""
        needed = self.probe_seconds + 2 * self._asking
        return needed <= CANARY_FRACTION * (self.now() - self._begin)

    def _fits(self, task: Ahead) -> bool:
        """Does a budget leave time for it, and for all that the clock lets a slow one take?

        Source: derived. A timing whose calls are slow may take PATIENCE times its usual cap.
        """
        if self.budget is None:
            return True
        left = self.budget.until - self.now() - END_SECONDS - self._asking
        seconds = self.costs.at_worst(task.name, task.item)
        slip = left + SLIP_FRACTION * self.budget.seconds
        return seconds <= left and seconds * PATIENCE <= slip

    def _first_round(self) -> Ahead | None:
        chosen = self.waiting[0] if self.waiting else None
        if chosen is not None and self.budget is not None:
            first = (task for task in self.waiting if task.item.goes_first and self._fits(task))
            chosen = next(first, None) or self._most_valuable()
        if chosen is not None:
            self.waiting.remove(chosen)
        return chosen

    def _most_valuable(self) -> Ahead | None:
        """By what a second of measuring takes off the error of a step."""
        families: dict[TaskName, list[Ahead]] = {}
        for task in self.waiting:
            families.setdefault(task.family, []).append(task)
        best = filter(None, (self._of_family(*family) for family in families.items()))
        error_shares = self.error_shares()

        def value(task: Ahead) -> float:
            whole = error_shares.get(task.name.item, 0.0) * self._shares[task.family]
            checked = whole * marginal(self._known[task.family])
            return checked / self.costs.expected(task.name, task.item)

        return max(best, key=lambda task: (value(task), -task.step), default=None)

    def _of_family(self, family: TaskName, tasks: Sequence[Ahead]) -> Ahead | None:
        """The most telling of those there is time for."""
        known = self.costs.sizes(family)
        chosen = most_telling(tasks, known)
        if self._fits(chosen):
            return chosen
        fitting = [task for task in tasks if self._fits(task)]
        return most_telling(fitting, known) if fitting else None

    def _repeat(self) -> Ahead | None:
        """A task whose timings are doubtful, at another time: all such tasks once, then again."""
        chosen = self._next_again()
        if chosen is None and not self.unchecked and not self._over:
            self._again = self._doubtful()
            chosen = self._next_again()
            self._over = chosen is None
        if chosen is not None:
            self._again.remove(chosen)
        return chosen

    def _next_again(self) -> Ahead | None:
        left = self._again_seconds
        fitting = (
            task
            for task in self._again
            if self._fits(task) and self.costs.at_worst(task.name, task.item) <= left
        )
        return next(fitting, None)

    def _doubtful(self) -> list[Ahead]:
        content = self.content()
        again = [
            task
            for task in self.tasks
            if task.name in content.doubts and content.starts.get(task.name, 0) < MOST_STARTS
        ]
        if not again:
            return []
        if self.budget is None:
            times = content.seconds.values()
            first, all_times = sum(one[0] for one in times), sum(map(sum, times))
            self._again_seconds = REPEAT_FRACTION * first - (all_times - first)
        error_shares, tasks = self.error_shares(), Counter(task.name.item for task in self.tasks)

        def value(task: Ahead) -> tuple[float, float]:
            """Of an item without a share the noisiest first."""
            name, noise = task.name, content.doubts[task.name]
            whole = error_shares.get(name.item, 0.0) / tasks[name.item]
            return whole * noise / self.costs.expected(name, task.item), noise

        return sorted(again, key=value, reverse=True)
