"""What a rule of thumb is: steps to try in order, each a set of layouts, and how it is read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from thumb_jobs import Facts

from trainplan.costmodel.columns import BoolColumn
from trainplan.costmodel.job.job import Job
from trainplan.costmodel.layout.layout import Recompute
from trainplan.costmodel.layouts.rules import Rule
from trainplan.costmodel.layouts.table import LayoutTable

Step = tuple[Rule, ...]
"""A layout of the step breaks none of them."""
Test = Callable[[LayoutTable], BoolColumn]


@dataclass(frozen=True)
class Reading:
    """What a reader does where the guide leaves something open, who runs what it says as it is."""

    swept: bool = True
    """All micro batches and ways to recompute are run; else as it says, the largest micro batch."""
    virtual_stages: Literal["one", "middle"] = "one"
    zero_stages: tuple[int, ...] = (1,)
    recompute: tuple[Recompute, ...] = ("none", "full")
    """Ways to recompute; `selective` is what the runtime's guide names of it."""
    runs_all: bool = False
    """It is a tool's list, of which the tool runs all and takes the fastest."""


@dataclass(frozen=True)
class ThumbRule:
    """Advice of one guide, as layouts it allows."""

    name: str
    title: str
    runtime: str
    says: str
    """In words of our own."""
    source: str
    steps: Callable[[Facts], tuple[Step, ...] | None]
    """Tried in order; None: the rule says nothing of such a job."""
    reading: Reading | None = Reading()
    """None: it says too little to be run as it stands."""


def where(columns: str, test: Test) -> Rule:
    """Only layouts that pass; `columns` are those it reads."""

    def broken(job: Job, table: LayoutTable) -> BoolColumn:
        return np.asarray(~test(table))

    return Rule(f"thumb rule on {columns}", frozenset(columns.split()), broken, "", "a guide")


def among(column: str, *values: int) -> Rule:
    """Only layouts whose column has one of these values."""
    return where(column, lambda table: np.isin(getattr(table, column), values))


def at_least(column: str, value: int) -> Rule:
    """Only layouts whose column has no less."""
    return where(column, lambda table: np.asarray(getattr(table, column) >= value))


def at_most(column: str, value: int) -> Rule:
    """Only layouts whose column has no more."""
    return where(column, lambda table: np.asarray(getattr(table, column) <= value))


def only(**values: int) -> Step:
    """Only layouts with these values."""
    return tuple(among(column, value) for column, value in values.items())


def either(*steps: Step) -> Step:
    """Layouts of any of these steps."""
    columns = frozenset().union(*(rule.columns for step in steps for rule in step))

    def broken(job: Job, table: LayoutTable) -> BoolColumn:
        refused = [np.any([rule.broken(job, table) for rule in step], axis=0) for step in steps]
        return np.asarray(np.all(refused, axis=0))

    return (Rule("thumb rule, either", columns, broken, "", "a guide"),)


def powers(least: int, most: int) -> tuple[int, ...]:
    """Of two, between both."""
    return tuple(2**n for n in range(20) if least <= 2**n <= most)
