"""Parts of a cluster that an objective may use, and what a second on each is worth.

Of one kind of nodes every number of whole nodes is a part, or about 32 evenly spaced ones and the
powers of two where there are more. Of several groups every combination of numbers of nodes is,
where there are few; else each group alone with its numbers of nodes, and combinations of a few
evenly spaced numbers of each. Equal parts are tried once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product
from math import prod

import numpy as np

from trainplan.costmodel.hardware import ClusterSpec
from trainplan.costmodel.job import Job
from trainplan.costmodel.pipeline import is_heterogeneous
from trainplan.costmodel.run_costs import (
    longest_step_seconds,
    price_per_second,
    refuse_endless,
    run_steps,
    stretch_of,
)
from trainplan.planner.goals.context import SearchContext
from trainplan.planner.goals.even import EvenAnswer
from trainplan.planner.plan import Name
from trainplan.planner.tree import SearchResult, UnevenResult

MOST_SIZES = 32
"""Numbers of nodes of one group that are tried, about."""
MOST_COMBINED = 64
"""Combinations of numbers of nodes of several groups, about."""


def part_jobs(job: Job) -> tuple[Job, ...]:
    """The job on every part of its cluster that is tried, fewest GPUs first; as `ending`."""
    parts = {_kinds(one): one for one in _parts(job.cluster)}  # of equal ones the last
    ordered = sorted(parts.values(), key=lambda cluster: cluster.num_gpus)
    return ending(job.model_copy(update={"cluster": cluster}) for cluster in ordered)


def ending(jobs: Iterable[Job]) -> tuple[Job, ...]:
    """Those whose run ends, whatever fails.

    Raises:
        SpecError: None does.
    """
    every = tuple(jobs)
    kept = tuple(job for job in every if np.isfinite(stretch_of(job)))
    if not kept:
        refuse_endless(max(every, key=lambda job: job.num_gpus))
    return kept


def island_jobs(job: Job) -> tuple[Job, ...]:
    """The job on each group alone, and on its nodes below each level of the network.

    The largest first; empty where the cluster is one node.
    """
    cluster, parts = job.cluster, dict[tuple[str, ...], ClusterSpec]()
    for place, group in enumerate(cluster.groups):
        reaches = (group.nvlink_domain or 0, *(tier.reach_gpus for tier in cluster.fabric))
        counts = {1, group.num_nodes, *(reach // group.gpus_per_node for reach in reaches)}
        for count in counts & set(range(1, group.num_nodes + 1)):
            one = cluster.with_nodes([count * (i == place) for i in range(len(cluster.groups))])
            parts[_kinds(one)] = one
    ordered = sorted(parts.values(), key=lambda one: -one.num_gpus)
    return tuple(job.model_copy(update={"cluster": one}) for one in ordered if one != cluster)


def tries_all(cluster: ClusterSpec) -> bool:
    """Is every combination of numbers of nodes a part that is tried?"""
    nodes = [group.num_nodes for group in cluster.groups]
    if not is_heterogeneous(cluster):
        return sum(nodes) <= MOST_SIZES
    return prod(count + 1 for count in nodes) <= MOST_COMBINED


def _kinds(cluster: ClusterSpec) -> tuple[str, ...]:
    """Equal for clusters that differ in the order of their groups alone."""
    return tuple(sorted(repr(group) for group in cluster.groups))


def _parts(cluster: ClusterSpec) -> Iterator[ClusterSpec]:
    nodes = [group.num_nodes for group in cluster.groups]
    if not is_heterogeneous(cluster):
        for count in node_counts(sum(nodes)):
            before = np.cumsum([0, *nodes[:-1]])
            yield cluster.with_nodes(np.clip(count - before, 0, nodes).tolist())
        return
    tried = [{*range(count + 1)} for count in nodes]
    if not tries_all(cluster):
        for group, most in enumerate(nodes):
            for count in node_counts(most):
                yield cluster.with_nodes([count if i == group else 0 for i in range(len(nodes))])
        each = int(MOST_COMBINED ** (1 / len(nodes))) - 1
        tried = [{count * i // max(1, each) for i in range(each + 1)} for count in nodes]
    for counts in product(*tried):
        if any(counts):
            yield cluster.with_nodes(counts)
    yield cluster


def node_counts(most: int) -> tuple[int, ...]:
    """Numbers of nodes tried, in ascending order."""
    step = -(-most // MOST_SIZES)
    powers = (1 << n for n in range(most.bit_length()))
    return tuple(sorted({*range(step, most + 1, step), *powers, most}))


def scale_of(job: Job, name: Name) -> float:
    """What one unit of a search's objective is worth: price of a second, steps of the run.

    Source: derived; money = seconds of a step x steps x price of the cluster for a second, over the
    share of the time that trains, which joules have in them.

    Raises:
        SpecError: Money is requested and a group has no price.
    """
    steps = run_steps(job) or 1
    price = job.islands * price_per_second(job.cluster) if name == "cost" else 1.0
    return steps * price * (1.0 if name == "energy" else stretch_of(job))


def longest_step(context: SearchContext) -> float:
    """Seconds a step may take; infinite without a deadline.

    Raises:
        SpecError: There is a deadline, but no tokens.
    """
    days = context.options.deadline_days
    return np.inf if days is None else longest_step_seconds(context.job, days)


def value_of(found: SearchResult | EvenAnswer, uneven_result: UnevenResult | None) -> float:
    """Objective of the best layout of two searches, for even stages and for all."""
    return (
        found.value
        if uneven_result is None or uneven_result.table is None
        else uneven_result.step_time_s
    )


def lower_bound_of(found: SearchResult | EvenAnswer, uneven_result: UnevenResult | None) -> float:
    """Objective that no layout of two searches goes below."""
    return (
        found.lower_bound_s
        if uneven_result is None
        else min(found.lower_bound_s, uneven_result.lower_bound_s)
    )
