"""Named constraints: why a candidate is refused."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import import_module
from typing import overload

import numpy as np

from trainplan.costmodel.columns import BoolColumn, IntColumn
from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.layouts.table import LayoutTable

Predicate = Callable[[Job, LayoutTable], BoolColumn]
"""True where a row breaks the rule."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One thing a legal layout must respect."""

    name: str
    columns: frozenset[str]
    """Columns of `LayoutTable` it reads: the search applies it as soon as these are known."""
    broken: Predicate
    says: str
    """What is wrong and what to do, one line."""
    source: str
    values: tuple[float, ...] = ()
    """Of a fraction that it reads, those it tells from what is beside them; it always tells none
    from some."""

    def __reduce__(self) -> tuple[Callable[[str, str], object], tuple[str, str]]:
        """Stored by its place in the code, where the decorator has put it."""
        return _found, (self.broken.__module__, self.broken.__name__)


def _found(module: str, name: str) -> object:
    return getattr(import_module(module), name)


def rule(
    columns: str, says: str, source: str, *, values: tuple[float, ...] = (), name: str = ""
) -> Callable[[Predicate], Rule]:
    """Turn a predicate into a `Rule` of its name; `columns` is a blank-separated list."""

    def wrap(broken: Predicate) -> Rule:
        read = frozenset(columns.split())
        return Rule(name or broken.__name__, read, broken, says, source, values)

    return wrap


def legal_rows(job: Job, rules: Iterable[Rule], table: LayoutTable) -> BoolColumn:
    """Which rows break none of some rules."""
    legal = np.ones(len(table), dtype=bool)
    for one in rules:
        legal &= ~one.broken(job, table)
    return legal


def is_torn(ranks: IntColumn, domain: int, num_gpus: int) -> BoolColumn:
    """Which groups of so many ranks next to each other do borders of scale-up domains cut?

    Source: derived; groups start at multiples of their ranks and domains at multiples of their
    GPUs, so no border lies inside a group where the smaller number divides the larger.
    """
    if domain >= num_gpus:
        return np.zeros_like(ranks, dtype=bool)
    return np.asarray(np.gcd(ranks, domain) < np.minimum(ranks, domain))


@overload
def num_microbatches(job: Job, table: LayoutTable) -> IntColumn: ...
@overload
def num_microbatches(job: Job, table: Layout) -> int: ...
def num_microbatches(job: Job, table: LayoutTable | Layout) -> IntColumn | int:
    """Micro batches of one replica in one step; rounded down where it does not divide."""
    return job.training.global_batch_size // (table.dp * table.micro_batch_size)
