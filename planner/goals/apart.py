"""A tower on GPUs of its own: the split of the GPUs whose slower part is least slow.

Splits are whole nodes, or whole GPUs of a single node. Every split has a bound: the step of the
tower on its GPUs is exact, and no layout of the decoder on the rest is faster than the least bound
of its nodes. Splits are searched from the least bound on until none that is left can be shorter.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from trainplan.costmodel.base import SpecError
from trainplan.costmodel.measured import machine_for
from trainplan.costmodel.runtimes import traits_of
from trainplan.costmodel.spec import ClusterSpec, Job
from trainplan.costmodel.step.tower_apart import (
    TowerStep,
    decoder_alone,
    exposed_by_handing_over,
    joined,
    least_exposed,
    tower_on_gpus,
)
from trainplan.planner.goals.answer import answer
from trainplan.planner.goals.best_first import best_first
from trainplan.planner.goals.context import SearchContext
from trainplan.planner.goals.reach import Reached
from trainplan.planner.goals.settings import least_bound
from trainplan.planner.plan.apart import Apart, SplitTried


@dataclass(frozen=True, slots=True)
class _Split:
    """GPUs of the tower, and the decoder on the rest."""

    tower: TowerStep
    job: Job
    """Of the decoder."""
    bound_s: float


def check_apart(job: Job, objective: str) -> None:
    """What no split helps.

    Raises:
        SpecError: There is no tower, or no such split; the message says why.
    """
    option = "--fix tower=apart"
    if job.model.tower is None:
        raise SpecError(f"{option}: {job.model.name} has no tower: leave the option out")
    if objective != "time":
        raise SpecError(f"{option} is planned for the step time: leave --objective out")
    if len(job.cluster.groups) > 1:
        raise SpecError(f"{option} splits equal nodes: give a cluster of one kind of node")
    if job.cluster.num_gpus == 1:
        raise SpecError(f"{option} needs two GPUs or more: there is 1")
    if 1 not in traits_of(job).sharding.zero_stages:
        raise SpecError(
            f"{option}: {job.runtime} shards weights or gradients in every pass, a tower apart "
            "shards its optimizer alone (ZeRO-1): choose another --runtime"
        )


def tower_apart(context: SearchContext, job: Job) -> tuple[Reached, Apart | None]:
    """The decoder's answer on its part of the GPUs, and the split; null: nothing fits.

    Raises:
        PlanError: A number of the machine is unknown.
    """
    every = sorted(_splits(context, job), key=lambda split: split.bound_s)
    best: tuple[float, _Split, Reached] | None = None

    def search(split: _Split, beats: float) -> tuple[float, float]:
        nonlocal best
        reached = answer(context, split.job)
        value, bound = _value(context, job, split, reached)
        if np.isfinite(value) and value < beats:
            best = value, split, reached
        return value, bound

    waiting = [(split, split.bound_s) for split in every]
    tried = [
        SplitTried(
            tower_gpus=split.tower.num_gpus,
            lower_bound_s=min(bound, value),
            step_time_s=value if np.isfinite(value) else None,
        )
        for split, value, bound in best_first(waiting, search, context.budget.spent)
    ]
    unified = answer(context, job)
    unified_s = None if unified.target is None else unified.target.value
    if best is None and unified_s is None:
        return unified, None
    if best is None:
        raise SpecError(
            f"--fix tower=apart: no split of {job.cluster.num_gpus} GPUs fits; on the first stage "
            f"the tower fits, with {unified_s:.3g} s a step: leave the option out"
        )
    value, split, reached = best
    assert reached.found.finalists is not None
    return reached, _apart(context, job, split, reached, value, tried=tried, unified_s=unified_s)


def _apart(
    context: SearchContext,
    job: Job,
    split: _Split,
    reached: Reached,
    value: float,
    *,
    tried: list[SplitTried],
    unified_s: float | None,
) -> Apart:
    assert reached.found.finalists is not None and reached.target is not None
    layout, tower = reached.found.finalists.row(0), split.tower
    machine = machine_for(split.job, context.measured)
    exposed = exposed_by_handing_over(job, machine, tower, layout.micro_batch_size, layout.dp)
    return Apart(
        tower_gpus=tower.num_gpus,
        decoder_gpus=split.job.cluster.num_gpus,
        tower_tp=tower.tp,
        tower_dp=tower.dp,
        samples_at_once=tower.samples_at_once,
        keeps=tower.keeps,
        tower_used_bytes=tower.used_bytes,
        tower_step_s=tower.step_s,
        decoder_step_s=reached.target.value,
        exposed_s=exposed[0],
        step_time_s=value,
        lower_bound_s=min(value, *(one.lower_bound_s for one in tried)),
        unified_step_s=unified_s,
        splits=tuple(sorted(tried, key=lambda one: one.tower_gpus)),
    )


def _value(
    context: SearchContext, job: Job, split: _Split, reached: Reached
) -> tuple[float, float]:
    """Seconds of a step of a split, and what none of it goes below; infinite: nothing fits."""
    finalists = reached.found.finalists
    if finalists is None or reached.target is None:
        return np.inf, np.inf if reached.found.complete else split.bound_s
    machine, layout = machine_for(split.job, context.measured), finalists.row(0)
    exposed = exposed_by_handing_over(job, machine, split.tower, layout.micro_batch_size, layout.dp)
    value = joined(reached.target.value, split.tower.step_s, exposed)
    least = least_exposed(job, machine, split.tower)
    return value, min(value, joined(reached.lower_bound_s, split.tower.step_s, least))


def _splits(context: SearchContext, job: Job) -> Iterator[_Split]:
    """Every split whose tower fits, with its bound."""
    for own, rest in _parts(job.cluster):
        part = job.model_copy(update={"cluster": own})
        machine = machine_for(part, context.measured)
        tower = tower_on_gpus(part, machine, context.usable_bytes(part))
        if tower is None:
            continue
        decoder = decoder_alone(job).model_copy(update={"cluster": rest})
        least = least_bound(context, decoder)
        exposed = least_exposed(job, machine_for(decoder, context.measured), tower)
        yield _Split(tower, decoder, joined(least, tower.step_s, exposed))


def _parts(cluster: ClusterSpec) -> Iterator[tuple[ClusterSpec, ClusterSpec]]:
    """Both parts of every split: whole nodes, or whole GPUs of a single node."""
    group = cluster.groups[0]
    name = "num_nodes" if group.num_nodes > 1 else "gpus_per_node"
    whole = getattr(group, name)
    for some in range(1, whole):
        first, rest = (group.model_copy(update={name: count}) for count in (some, whole - some))
        yield (
            cluster.model_copy(update={"groups": (first,)}),
            cluster.model_copy(update={"groups": (rest,)}),
        )
