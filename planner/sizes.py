"""How many of the nodes to use: the cheapest, the thriftiest and the fewest.

Sizes tried: of one group of nodes every number of whole nodes, or about 32 evenly spaced ones and
the powers of two where there are more; of several groups, each is used whole or not at all. The
answer is exact over the sizes tried. The whole cluster comes first; a size whose floor is no better
than the best answer so far is not searched.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from costmodel.price import longest_step_seconds, price_per_second, run_steps
from costmodel.spec.cluster import ClusterSpec
from costmodel.spec.job import Job
from planner.found import Found
from planner.probes import Figure, Prober
from planner.search import Search
from planner.target import Tried

MOST_SIZES = 32
"""Numbers of nodes tried, about."""


@dataclass(frozen=True, slots=True)
class BestSize:
    """The part of the cluster that is best by one figure, and what is proven of the others."""

    job: Job
    value: float
    """Figure of its best layout; infinite where no size has an answer."""
    tried: tuple[Tried, ...]
    """Every size, with the figure no layout of it goes below."""
    found: Found | None
    """The search that found it; null where no size has an answer."""

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


def scale_of(job: Job, name: str) -> float:
    """What one unit of a search's objective is worth: price of a second, steps of the run.

    Source: derived; money = seconds of a step x steps x price of the cluster for a second.

    Raises:
        SpecError: Money is asked for and a group has no price.
    """
    steps = run_steps(job) or 1
    return steps * (price_per_second(job.cluster) if name == "cost" else 1.0)


def longest_step(prober: Prober, job: Job) -> float:
    """Seconds a step may take; infinite without a deadline.

    Raises:
        SpecError: There is a deadline, but no tokens.
    """
    days = prober.options.deadline_days
    return np.inf if days is None else longest_step_seconds(job, days)


def cheapest_size(prober: Prober, job: Job, name: str) -> BestSize:
    """The size whose best layout costs least money (`cost`) or joules (`energy`).

    Raises:
        PlanError: A price, a power limit or another number of the machine is unknown.
    """
    most, figure = longest_step(prober, job), figure_of(name)
    waiting = [_size(prober, one, figure, scale_of(one, name), most) for one in part_jobs(job)]
    waiting.sort(key=lambda size: (size.job.cluster != job.cluster, size.bound))
    best = BestSize(job, np.inf, (), None)
    tried: list[Tried] = []
    for size in waiting:
        bound, own = size.bound, np.inf
        if bound < best.value and not prober.budget.spent():
            limit = np.nextafter(most, np.inf) if figure == "time" else np.inf
            beats = best.value / size.scale
            found = prober.best(size.search, min(beats, limit))
            bound, own = found.lower_bound_s * size.scale, found.value * size.scale
            if beats < limit:  # dearer layouts were not looked at
                bound = min(bound, best.value)
            if own < best.value:
                best = BestSize(size.job, own, (), found)
        tried.append(Tried.of(size.job.cluster.num_gpus, own, bound))
    return replace(best, tried=tuple(sorted(tried, key=lambda one: one.num_gpus)))


def fewest_gpus(prober: Prober, job: Job) -> BestSize:
    """The smallest size on which the run ends before the deadline.

    Raises:
        PlanError: A number of the machine is unknown, or the tokens of the run are.
    """
    below = np.nextafter(longest_step(prober, job), np.inf)
    tried: list[Tried] = []
    for one in part_jobs(job):
        gpus = one.cluster.num_gpus
        found = prober.any(prober.search(one), below)
        if found.value < below:
            tried.append(Tried.of(gpus, gpus, gpus))
            return BestSize(one, gpus, tuple(tried), found)
        tried.append(Tried.of(gpus, np.inf, np.inf if found.complete else gpus))
    return BestSize(job, np.inf, tuple(tried), None)


@dataclass(frozen=True, slots=True)
class _Size:
    """A part of the cluster that waits to be searched."""

    job: Job
    search: Search
    scale: float
    bound: float
    """Figure no layout of it goes below."""


def _size(prober: Prober, job: Job, figure: Figure, scale: float, most: float) -> _Size:
    search = prober.search(job, figure, most_seconds=most)
    bound = search.nodes.smallest * scale if search.floor_s <= most else np.inf
    return _Size(job, search, scale, bound)


def figure_of(name: str) -> Figure:
    """What a search makes small for an objective: money and GPUs follow from the step time."""
    return "energy" if name == "energy" else "time"
