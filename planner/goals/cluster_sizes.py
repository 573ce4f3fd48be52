"""How many of the nodes to use: the cheapest, the thriftiest and the fewest.

Sizes tried: of one group of nodes every number of whole nodes, or about 32 evenly spaced ones and
the powers of two where there are more; of several groups, each is used whole or not at all. The
answer is exact over the sizes tried. The whole cluster comes first; a size whose floor is no better
than the best answer so far is not searched. Stages may be uneven, but not for energy.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from trainplan.costmodel.hardware import ClusterSpec
from trainplan.costmodel.job import Job
from trainplan.costmodel.run_costs import longest_step_seconds, price_per_second, run_steps
from trainplan.planner.goals.best_first import best_first
from trainplan.planner.goals.context import Figure, SearchContext
from trainplan.planner.goals.even import EvenAnswer
from trainplan.planner.goals.uneven import faster_splits, splits_freely
from trainplan.planner.plan import Name, SearchOptions, Tried
from trainplan.planner.tree import Search, SearchResult, UnevenResult

OPENED = 240
"""Layouts that searches for uneven stages open on all sizes together. Source: assumed; seconds."""
MOST_SIZES = 32
"""Numbers of nodes tried, about."""


@dataclass(frozen=True, slots=True)
class BestSize:
    """The part of the cluster that is best by one figure, and what is proven of the others."""

    context: SearchContext
    value: float
    """Figure of its best layout; infinite where no size has an answer."""
    tried: tuple[Tried, ...]
    """Every size, with the figure no layout of it goes below."""
    found: SearchResult | None
    """The search that found it; null where no size has an answer."""
    uneven_result: UnevenResult | None = None
    """The search for uneven stages after it; null where they are not asked for."""

    @property
    def lower_bound(self) -> float:
        """No layout of any size has a smaller figure."""
        return min(*(one.bound for one in self.tried), self.value)


def part_jobs(job: Job) -> tuple[Job, ...]:
    """The job on every part of its cluster that is tried, fewest GPUs first."""
    parts = sorted(_parts(job.cluster), key=lambda cluster: cluster.num_gpus)
    return tuple(job.model_copy(update={"cluster": cluster}) for cluster in parts)


def _parts(cluster: ClusterSpec) -> Iterator[ClusterSpec]:
    groups = cluster.groups
    if len(groups) == 1:
        for nodes in node_counts(groups[0].num_nodes):
            group = groups[0].model_copy(update={"num_nodes": nodes})
            yield cluster.model_copy(update={"groups": (group,)})
        return
    for count in range(1, len(groups) + 1):
        for some in combinations(groups, count):
            yield cluster.model_copy(update={"groups": some})


def node_counts(most: int) -> tuple[int, ...]:
    """Numbers of nodes tried, in ascending order."""
    step = -(-most // MOST_SIZES)
    powers = (1 << n for n in range(most.bit_length()))
    return tuple(sorted({*range(step, most + 1, step), *powers, most}))


def scale_of(job: Job, name: Name) -> float:
    """What one unit of a search's objective is worth: price of a second, steps of the run.

    Source: derived; money = seconds of a step x steps x price of the cluster for a second.

    Raises:
        SpecError: Money is asked for and a group has no price.
    """
    steps = run_steps(job) or 1
    return steps * (price_per_second(job.cluster) if name == "cost" else 1.0)


def longest_step(context: SearchContext) -> float:
    """Seconds a step may take; infinite without a deadline.

    Raises:
        SpecError: There is a deadline, but no tokens.
    """
    days = context.options.deadline_days
    return np.inf if days is None else longest_step_seconds(context.job, days)


def cheapest_size(context: SearchContext, name: Name) -> BestSize:
    """The size whose best layout costs least money (`cost`) or joules (`energy`).

    Raises:
        PlanError: A price, a power limit or another number of the machine is unknown.
    """
    most, figure = longest_step(context), figure_of(name)
    limit = np.nextafter(most, np.inf) if figure == "time" else np.inf
    splits = _Splits(context.options, name)
    parts = map(context.with_job, part_jobs(context.job))
    waiting = [_size(one, figure, scale_of(one.job, name), most) for one in parts]
    waiting.sort(key=lambda size: (size.context.job.cluster != context.job.cluster, size.bound))
    best = BestSize(context, np.inf, (), None)

    def search(size: _Size, value: float) -> tuple[float, float]:
        nonlocal best
        beats = value / size.scale
        found = context.best(size.search, min(beats, limit))
        uneven_result = splits.below(size.context, found, min(beats, limit))
        bound = lower_bound_of(found, uneven_result) * size.scale
        own = value_of(found, uneven_result) * size.scale
        if own < value:
            best = BestSize(size.context, own, (), found, uneven_result)
        # where a value was to beat, dearer layouts were not looked at
        return own, min(bound, own, value) if beats < limit else bound

    sizes = [(size, size.bound) for size in waiting]
    tried = [
        Tried.of(size.context.job.cluster.num_gpus, own, bound)
        for size, own, bound in best_first(sizes, search, context.budget.spent)
    ]
    return replace(best, tried=tuple(sorted(tried, key=lambda one: one.num_gpus)))


def fewest_gpus(context: SearchContext) -> BestSize:
    """The smallest size on which the run ends before the deadline.

    Raises:
        PlanError: A number of the machine is unknown, or the tokens of the run are.
    """
    cutoff_s = np.nextafter(longest_step(context), np.inf)
    splits = _Splits(context.options, "gpus")
    tried: list[Tried] = []
    for one in map(context.with_job, part_jobs(context.job)):
        gpus = one.job.cluster.num_gpus
        found, uneven_result = context.any(one.search(), cutoff_s), None
        if found.value >= cutoff_s:
            uneven_result = splits.below(one, found, cutoff_s, any_answer=True)
        if value_of(found, uneven_result) < cutoff_s:
            tried.append(Tried.of(gpus, gpus, gpus))
            return BestSize(one, gpus, tuple(tried), found, uneven_result)
        settled = found.complete and lower_bound_of(found, uneven_result) >= cutoff_s
        tried.append(Tried.of(gpus, np.inf, np.inf if settled else gpus))
    return BestSize(context, np.inf, tuple(tried), None)


def value_of(found: SearchResult, uneven_result: UnevenResult | None) -> float:
    """Objective of the best layout of two searches, for even stages and for all."""
    return (
        found.value
        if uneven_result is None or uneven_result.table is None
        else uneven_result.step_time_s
    )


def lower_bound_of(found: SearchResult, uneven_result: UnevenResult | None) -> float:
    """Objective that no layout of two searches goes below."""
    return (
        found.lower_bound_s
        if uneven_result is None
        else min(found.lower_bound_s, uneven_result.lower_bound_s)
    )


class _Splits:
    """Searches for uneven stages on one size after the other.

    Without a time limit they open no more layouts together than on one size alone.
    """

    def __init__(self, options: SearchOptions, name: Name) -> None:
        self._may_open = OPENED
        self._wanted = name != "energy" and not options.only_answer

    def below(
        self,
        context: SearchContext,
        found: SearchResult,
        cutoff_s: float,
        *,
        any_answer: bool = False,
    ) -> UnevenResult | None:
        """What they give below some seconds; null where they are not asked for."""
        if not self._wanted or not splits_freely(context, context.options):
            return None
        uneven_result = faster_splits(
            context,
            EvenAnswer.of(context.group, found),
            cutoff_s,
            most=self._may_open,
            any_answer=any_answer,
            brief=True,
        )
        self._may_open -= uneven_result.expanded
        return uneven_result


@dataclass(frozen=True, slots=True)
class _Size:
    """A part of the cluster that waits to be searched."""

    context: SearchContext
    search: Search
    scale: float
    bound: float
    """Figure no layout of it goes below."""


def _size(context: SearchContext, figure: Figure, scale: float, most: float) -> _Size:
    search = context.search(figure, most_seconds=most)
    bound = search.nodes.smallest * scale if search.step_bound_s <= most else np.inf
    return _Size(context, search, scale, bound)


def figure_of(name: Name) -> Figure:
    """What a search makes small for an objective: money and GPUs follow from the step time."""
    return "energy" if name == "energy" else "time"
