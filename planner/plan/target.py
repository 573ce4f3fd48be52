"""What a plan was made for: its objective, the value reached, what is proven and what it costs."""

import math
from typing import Literal, Self

from pydantic import Field

from trainplan.costmodel.hardware import ClusterSpec
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.spec import Spec

Name = Literal["time", "memory", "cost", "energy", "gpus", "context"]
"""Objectives of a search."""


class Tried(Spec):
    """One part of the cluster and what is known of it."""

    num_gpus: int = Field(ge=1)
    """GPUs of the part."""
    cluster: str
    """Its nodes, as `--cluster` takes them."""
    value: float | None
    """Objective of its best layout; null: none is better than the answer."""
    lower_bound: float | None
    """No layout of it has a smaller objective; null: none is an answer."""

    @classmethod
    def of(cls, cluster: ClusterSpec, value: float, lower_bound: float) -> Self:
        """With infinite numbers as null."""
        return cls(
            num_gpus=cluster.num_gpus,
            cluster=cluster.text,
            value=finite(value),
            lower_bound=finite(lower_bound),
        )

    @property
    def bound(self) -> float:
        """`lower_bound` as a number."""
        return math.inf if self.lower_bound is None else self.lower_bound


class Rung(Spec):
    """The longest sequence with some techniques that save memory."""

    adds: str
    """The technique that the steps before have not."""
    tokens: int = Field(ge=0)
    """0: no sequence trains."""
    limit: str
    """What stops a longer one: GPU memory, host memory, drive space, kernel index, time or a rule.
    """
    global_batch_size: int = Field(ge=1)
    """Sequences of a step: one for each GPU where none is cut."""


class Target(Spec):
    """An objective with the figure of the answer and its proof; smaller is better.

    But for `context`, whose figure is the longest sequence.
    """

    name: Name
    """`time`, `memory`, `cost`, `energy`, `gpus` or `context`."""
    unit: str
    """s, bytes, J, GPUs, tokens, or the currency of the cluster."""
    per: Literal["step", "run"]
    """What the figure counts: one step, or the run of `training.tokens`."""
    value: float
    """The best that was found. For `memory` the bytes used on the fullest rank."""
    rank: int = 1
    """Row of the table of alternatives that has it: 1 is the answer."""
    slack_fraction: float = 0.0
    """The answer is the simplest layout whose step takes no more than this longer."""
    of_answer: float | None = None
    """Where the answer is a simpler layout within the slack: its figure; else null."""
    lower_bound: float
    """No layout of the sizes tried has a smaller one."""
    step_time_limit_s: float | None = None
    """Steps that take longer are no answer: the slack or the deadline."""
    tried: tuple[Tried, ...] = ()
    """Parts of the cluster, where the objective may leave nodes out."""
    tried_all: bool = True
    """No number of nodes, nor combination of numbers of groups, is missing among them."""
    limit: str | None = None
    """Of `context`: what stops a longer sequence."""
    ladder: tuple[Rung, ...] = ()
    """Of `context`: what each technique adds to those before."""

    @property
    def answer_value(self) -> float:
        """The figure of the answer, which may be a simpler layout than the best."""
        return self.value if self.of_answer is None else self.of_answer

    @property
    def gap_fraction(self) -> float:
        """(value - lower bound) / value; 0 where the value is 0."""
        return max(0.0, self.value - self.lower_bound) / self.value if self.value else 0.0


class NotTaken(Spec):
    """The best layout without the rules of evidence, which breaks some."""

    layout: Layout
    """As `--slack 0` would answer, or a simpler one within the slack of it."""
    settings: tuple[str, ...]
    """Of the runtime, as `--option` takes them, where the search chose some."""
    beyond: tuple[str, ...]
    """The limits that it breaks, as sentences."""


class Trusted(Spec):
    """The rules of evidence that the answer keeps, and what they cost.

    Those of `--trusted`; without it, where no published run is like the best layout, the limits
    that hold for all runtimes and GPUs.
    """

    rules: tuple[str, ...]
    """Their names: of each axis the tightest limit that scored runs set, by `evidence.beyond`."""
    value_without: float
    """The objective that a search without them reached."""
    lower_bound_without: float | None
    """No layout has a smaller one, trusted or not; null: no time was left to search."""
    cost_fraction: float
    """Objective with the rules over that without, minus one."""
    not_taken: NotTaken | None = None
    """Null with `--trusted`."""


class Reserve(Spec):
    """What the memory left to another tenant costs."""

    reserve_bytes: int
    """Of every GPU."""
    reserve_host_bytes: int = 0
    """Memory of every host that is left to another tenant."""
    value_without: float
    """The objective that a second search without the reserve reached."""
    lower_bound_without: float | None
    """No layout has a smaller one without it; null: no time was left to search."""
    cost_fraction: float
    """Objective with the reserve over that without, minus one."""


def finite(number: float) -> float | None:
    """The number as JSON has it: infinite as null."""
    return number if math.isfinite(number) else None
