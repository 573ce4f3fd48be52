"""A tower on GPUs of its own: the split of the GPUs whose slower part is least slow.

Splits are whole nodes, or whole GPUs of a single node. Every split has a bound: the tower is no
faster than if it held one pass at a time, and no layout of the decoder is faster than the least
bound of its nodes. Splits are searched from the least bound on until none left can be shorter.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from trainplan.costmodel.base import SpecError
from trainplan.costmodel.disaggregated import (
    TowerStep,
    decoder_alone,
    exposed_by_handing_over,
    joined,
    least_exposed,
    tower_on_gpus,
    waiting_samples,
)
from trainplan.costmodel.hardware import ClusterSpec
from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.layouts import LayoutTable, legal_rows
from trainplan.costmodel.step import step_seconds
from trainplan.planner.goals.answered import answer
from trainplan.planner.goals.best_first import best_first
from trainplan.planner.goals.context import SearchContext
from trainplan.planner.goals.reach import Reached
from trainplan.planner.plan import Apart, SplitTried


@dataclass(frozen=True, slots=True)
class _Split:
    """GPUs of the tower, and the decoder on the rest."""

    on_tower: SearchContext
    """Of the job on the GPUs of the tower."""
    tower: TowerStep
    """As if it held one pass at a time: none is faster."""
    decoder: SearchContext
    """Of the job without its tower, on the other GPUs."""
    bound_s: float


@dataclass(frozen=True, slots=True)
class _Answer:
    """The best layout that was found of a split."""

    split: _Split
    reached: Reached
    tower: TowerStep
    decoder_s: float
    exposed: tuple[float, float]
    value: float


def check_disaggregated(context: SearchContext) -> None:
    """What no split helps.

    Raises:
        SpecError: There is no tower, or no such split; the message has the reason.
    """
    job, options, option = context.job, context.options, "--fix tower=apart"
    if job.model.tower is None:
        raise SpecError(f"{option}: {job.model.name} has no tower: leave the option out")
    if options.objective != "time":
        raise SpecError(f"{option} is planned for the step time: leave --objective out")
    if len(job.cluster.groups) > 1:
        raise SpecError(f"{option} splits equal nodes: give a cluster of one kind of node")
    if job.cluster.num_gpus == 1:
        raise SpecError(f"{option} needs two GPUs or more: there is 1")
    sharded = LayoutTable.of([Layout(dp=job.cluster.num_gpus, zero_stage=1)])
    rules = (rule for rule in context.traits.rules if "zero_stage" in rule.columns)
    if not legal_rows(job, rules, sharded)[0]:
        raise SpecError(
            f"{option}: a tower on its own GPUs shards its optimizer alone (ZeRO-1), which "
            f"{job.runtime} does not: choose another --runtime"
        )


def disaggregated_tower(context: SearchContext) -> tuple[Reached, Apart | None]:
    """The decoder's answer on its part of the GPUs, and the split; null: nothing fits.

    Raises:
        SpecError: No split fits, but the tower fits on the first stage.
        PlanError: A number of the machine is unknown.
    """
    every = sorted(_splits(context), key=lambda split: split.bound_s)
    best: _Answer | None = None

    def search(split: _Split, beats: float) -> tuple[float, float]:
        nonlocal best
        reached = answer(split.decoder)
        found = _answer(context.job, split, reached)
        if found and found.value < beats:
            best = found
        return found.value if found else np.inf, _bound(context.job, split, reached)

    waiting = [(split, split.bound_s) for split in every]
    tried = [
        SplitTried(
            tower_gpus=split.tower.num_gpus,
            lower_bound_s=bound if np.isfinite(bound) else None,
            step_time_s=value if np.isfinite(value) else None,
        )
        for split, value, bound in best_first(waiting, search, context.budget.spent)
    ]
    unified = answer(context)
    unified_s = None if unified.target is None else unified.target.value
    if best is None and unified_s is None:
        return unified, None
    if best is None:
        raise SpecError(
            f"--fix tower=apart: no split of {context.job.cluster.num_gpus} GPUs fits; on the "
            f"first stage the tower fits, with {unified_s:.3g} s a step: leave the option out"
        )
    return best.reached, _separate(best, tried, unified_s)


def _separate(best: _Answer, tried: list[SplitTried], unified_s: float | None) -> Apart:
    """What the plan states."""
    tower = best.tower
    bounds = [one.lower_bound_s for one in tried if one.lower_bound_s is not None]
    return Apart(
        tower_gpus=tower.num_gpus,
        decoder_gpus=best.split.decoder.job.cluster.num_gpus,
        tower_tp=tower.tp,
        tower_dp=tower.dp,
        samples_at_once=tower.samples_at_once,
        keeps=tower.keeps,
        tower_used_bytes=tower.used_bytes,
        tower_step_s=tower.step_s,
        decoder_step_s=best.decoder_s,
        exposed_s=best.exposed[0],
        step_time_s=best.value,
        lower_bound_s=min(best.value, *bounds),
        unified_step_s=unified_s,
        splits=tuple(sorted(tried, key=lambda one: one.tower_gpus)),
    )


def _answer(job: Job, split: _Split, reached: Reached) -> _Answer | None:
    """The best step of a split with one of the layouts found for its decoder; null: none fits.

    The fastest decoder may hold more samples than the tower can keep, so all of them are priced.
    """
    finalists = reached.found.finalists
    if finalists is None or reached.target is None:
        return None
    machine, best = split.decoder.machine, None
    seconds = step_seconds(reached.context.with_table(finalists))  # under its settings
    for row, step_s in enumerate(seconds.tolist()):
        layout = finalists.row(row)
        tower = _tower(split.on_tower, waiting_samples(job, layout))
        if tower is None:
            continue
        sequences = layout.micro_batch_size
        exposed = exposed_by_handing_over(job, machine, tower, sequences, layout.dp)
        value = joined(step_s, tower.step_s, exposed)
        if best is None or value < best.value:
            best = _Answer(split, _led_by(reached, row), tower, step_s, exposed, value)
    return best


def _led_by(reached: Reached, row: int) -> Reached:
    """The same with another of its layouts first."""
    finalists = reached.found.finalists
    assert finalists is not None
    others = [place for place in range(len(finalists)) if place != row]
    ordered = finalists.take(np.array([row, *others]))
    return replace(reached, found=replace(reached.found, finalists=ordered))


def _bound(job: Job, split: _Split, reached: Reached) -> float:
    """What no step of a split that was searched goes below; infinite: nothing fits."""
    if reached.found.finalists is None and reached.found.complete:
        return np.inf
    least = least_exposed(job, split.decoder.machine, split.tower)
    decoder = reached.lower_bound_s if reached.target else 0.0
    return max(split.bound_s, joined(decoder, split.tower.step_s, least))


def _tower(context: SearchContext, waiting: int) -> TowerStep | None:
    """The tower on all GPUs of a job."""
    return tower_on_gpus(context.job, context.machine, context.usable_bytes, waiting)


def _splits(context: SearchContext) -> Iterator[_Split]:
    """Every split whose tower fits, with its bound."""
    for own, rest in _parts(context.job.cluster):
        part = context.with_job(context.job.model_copy(update={"cluster": own}))
        tower = _tower(part, 0)
        if tower is None:
            continue
        alone = decoder_alone(context.job).model_copy(update={"cluster": rest})
        decoder = context.with_job(alone)
        least = _least_bound(decoder)
        exposed = least_exposed(context.job, decoder.machine, tower)
        yield _Split(part, tower, decoder, joined(least, tower.step_s, exposed))


def _least_bound(context: SearchContext) -> float:
    """Seconds that no layout beats under any of the settings, before anything is searched."""
    found = np.inf
    for one in context.options.combinations(context):
        if not one.covered:
            inside = replace(context, only=(*context.only, *one.only))
            found = min(found, inside.with_job(one.job).search().nodes.smallest)
    return float(found)


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
