"""Nothing fits: which single change would help?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from costmodel.errors import PlanError
from costmodel.machine import machine_of
from costmodel.rules import Rule
from costmodel.spec.cluster import ClusterSpec
from costmodel.spec.job import Job
from planner.budget import Budget
from planner.constraints import Choice, legality_rules
from planner.options import SearchOptions
from planner.search import Limits, Search

LARGEST_GROWTH = 64
"""Clusters up to this many times the size are tried."""


class _UntilFound:
    """A budget that is spent as soon as one layout fits, or with the budget around it."""

    def __init__(self, search: Search, whole: Budget) -> None:
        self.search, self.whole = search, whole

    def spent(self) -> bool:
        return bool(self.search.best) or self.whole.spent()

    def report(self, done: float, bound_s: float) -> None:
        """Nobody listens."""


def nearest_changes(job: Job, options: SearchOptions, budget: Budget) -> tuple[str, ...]:
    """Single changes that make the job feasible, each tried by a search of its own.

    Those not tried before the budget is spent are left out.
    """
    relaxations = _relaxations(job, options)
    changes = [text for text, trial in relaxations if not budget.spent() and trial(budget)]
    growth = _smallest_growth(job, options, budget)
    if growth:
        changes.append(growth)
    return tuple(changes)


class _Trial(Protocol):
    def __call__(self, budget: Budget) -> bool: ...


def _relaxations(job: Job, options: SearchOptions) -> Iterator[tuple[str, _Trial]]:
    chosen = options.choices
    for choice in chosen:
        others = tuple(c for c in chosen if c is not choice)
        name = choice.rule().name
        yield f"drop {name}", _trial(job, others, options.memory_margin)
    if options.memory_margin > 0:
        yield "use --memory-margin 0 (no safety margin)", _trial(job, chosen, 0.0)
    if job.training.seq_length > 1:
        half = job.training.model_copy(update={"seq_length": job.training.seq_length // 2})
        shorter = job.model_copy(update={"training": half})
        text = f"halve the sequence: --seq-length {half.seq_length}"
        yield text, _trial(shorter, chosen, options.memory_margin)
    batch = _divisible_batch(job)
    if batch != job.training.global_batch_size:
        training = job.training.model_copy(update={"global_batch_size": batch})
        other = job.model_copy(update={"training": training})
        text = f"use --global-batch-size {batch}, a multiple of the {job.cluster.num_gpus} GPUs"
        yield text, _trial(other, chosen, options.memory_margin)


def _divisible_batch(job: Job) -> int:
    """Next multiple of the world size: then every data parallelism divides the batch."""
    world = job.cluster.num_gpus
    return -(-job.training.global_batch_size // world) * world


def _smallest_growth(job: Job, options: SearchOptions, budget: Budget) -> str | None:
    """The smallest power of two by which the cluster must grow."""
    chosen, factor = options.choices, 2
    while factor <= LARGEST_GROWTH and not budget.spent():
        grown = _grown(job.cluster, factor)
        larger = job.model_copy(update={"cluster": grown})
        if _trial(larger, chosen, options.memory_margin)(budget):
            return f"use {grown.num_gpus} GPUs ({factor} times as many)"
        factor *= 2
    return None


def _grown(cluster: ClusterSpec, factor: int) -> ClusterSpec:
    groups = tuple(
        group.model_copy(update={"num_nodes": group.num_nodes * factor}) for group in cluster.groups
    )
    return cluster.model_copy(update={"groups": groups})


def _trial(job: Job, choices: Sequence[Choice], margin: float) -> _Trial:
    def feasible(budget: Budget) -> bool:
        try:
            machine = machine_of(job.cluster, job.training.precision)
        except PlanError:
            return False
        rules: list[Rule] = [*(c.rule() for c in choices), *legality_rules(job)]
        limits = Limits(machine.memory_bytes * (1 - margin), top=1)
        search = Search(job, machine, rules, limits)
        return search.run(_UntilFound(search, budget)).finalists is not None

    return feasible
