"""A bound of the step time that holds for every split of the layers, for many layouts at once.

Any weights of the paths of a pipeline that sum to one give a bound: the step is no shorter than
their mean. The weights that make the mean path cross every rank alike leave a split nothing to
gain. They depend on the shape of the pipeline alone, so one small linear program serves all
layouts of that shape. Source: linear programming duality; derived.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from costmodel.block_costs import EMBEDDING, HEAD, MTP, BlockCosts, layer_counts, usual_layers
from costmodel.critical import Paths, critical_paths
from costmodel.data_parallel import step_traffic
from costmodel.estimate import Priced, with_overhead
from costmodel.machine import Machine
from costmodel.memory.states import RankParams
from costmodel.runtimes.base import RuntimeTraits
from costmodel.schedules import SCHEDULES
from costmodel.schedules.program import IntMatrix, placed
from costmodel.spec.job import Job
from costmodel.spec.layout import SCHEDULE_NAMES
from costmodel.table import FULL, UNIFORM, FloatColumn, IntColumn, distinct
from costmodel.timeline import StageSeconds
from planner.solvers.linear import Program
from planner.split_problem import chord_of_min

FORWARD_SHARE = 1 / 3
"""Of a pass through a stage, while weights are chosen. Source: the backward pass has twice the
products of the forward pass; any value gives a valid bound."""
SEEDS = (0.02, 0.5)
"""By how much one stage or rank is made longer to find the paths through it. Source: assumed; it
only chooses which paths are known."""


@dataclass(frozen=True, slots=True)
class MeanPath:
    """A weighted mean of the paths of one shape; columns over virtual stages."""

    forward: FloatColumn
    backward: FloatColumn
    weight: FloatColumn
    hops: float
    stage_of: IntMatrix
    """Virtual stage of each (rank, chunk)."""


@lru_cache(maxsize=1024)
def seed_paths(schedule: str, pp: int, vpp: int, num_microbatches: int) -> Paths:
    """The longest paths where all stages are alike, and where one stage or one rank is slower."""
    stage_of = placed(SCHEDULES[schedule].placement, pp, vpp)
    stages = np.arange(stage_of.size)
    slower = np.array([np.isin(stages, own) for own in stage_of])
    parts = [np.zeros((1, len(stages))), *(size * slower for size in SEEDS)]
    seconds = _alike(schedule, 1 + np.concatenate(parts))
    count = len(seconds.forward)
    nothing, behind = np.zeros(count), np.zeros((count, pp))
    shape = (pp, vpp, num_microbatches)
    return critical_paths(schedule, shape, seconds, nothing, behind).distinct()


def _alike(schedule: str, factor: FloatColumn) -> StageSeconds:
    """Seconds of stages whose passes take so much of a common time."""
    backward = factor * (1 - FORWARD_SHARE)
    weight = backward / 2 if SCHEDULES[schedule].splits_backward else np.zeros_like(backward)
    return StageSeconds(factor * FORWARD_SHARE, backward, weight)


@lru_cache(maxsize=1024)
def mean_path(schedule: str, pp: int, vpp: int, num_microbatches: int, num_layers: int) -> MeanPath:
    """The mean path whose shortest split of so many equal layers takes longest."""
    stage_of = placed(SCHEDULES[schedule].placement, pp, vpp)
    paths = seed_paths(schedule, pp, vpp, num_microbatches)
    one = _alike(schedule, np.ones((1, stage_of.size)))
    crossed = paths.forward * one.forward + paths.backward * one.backward
    crossed = crossed + paths.weight * one.weight
    share = _fairest(crossed[:, stage_of], num_layers)
    return MeanPath(
        forward=share @ paths.forward,
        backward=share @ paths.backward,
        weight=share @ paths.weight,
        hops=float(share @ paths.hops),
        stage_of=stage_of,
    )


def _fairest(crossed: FloatColumn, num_layers: int) -> FloatColumn:
    """Weights of paths that sum to one; `crossed` is (path, rank, chunk).

    They make the layers on the rank where the mean path is shortest, less what uneven chunks save,
    longest. Source: as `_mean_seconds`.
    """
    program = Program()
    share = [program.column(0.0, 1.0) for _ in crossed]
    least = program.column(0.0, np.inf)
    program.equal([(x, 1.0) for x in share], 1.0)
    saved = [program.column(0.0, np.inf) for _ in range(crossed.shape[1])]
    means = crossed.mean(axis=2)
    for rank, column in enumerate(saved):
        program.at_most([(least, 1.0), *_terms(share, -means[:, rank])], 0.0)
        for chunks in (crossed[:, rank], crossed[:, rank, ::-1]):
            for size in range(1, crossed.shape[2]):
                more = size * means[:, rank] - chunks[:, :size].sum(axis=1)
                program.at_most([(column, -1.0), *_terms(share, more)], 0.0)
    program.minimise([(least, -float(num_layers)), *((column, 1.0) for column in saved)])
    found = program.solve(np.inf).values
    assert found is not None  # any weights are allowed
    weights = found[share].clip(0.0)
    return np.asarray(weights / weights.sum())


def _terms(columns: list[int], values: FloatColumn) -> list[tuple[int, float]]:
    pairs = zip(columns, values.tolist(), strict=True)
    return [(column, value) for column, value in pairs if value]


def split_bound(
    job: Job,
    machine: Machine,
    traits: RuntimeTraits,
    priced: Priced,
    costs: BlockCosts,
    *,
    cutoff_s: float,
) -> FloatColumn:
    """Seconds that no split of the layers of each row goes below, if that is less than `cutoff_s`.

    Where no split is faster than the cutoff, some number that is not less than it, or a bound.
    Source: the mean path of the module; the traffic of the rank with fewest layers, and the
    optimizer of the one with most, which holds no fewer than their mean.
    """
    table, bound = priced.table, np.zeros(len(priced.table))
    first, shape = distinct(table.schedule, table.pp, table.vpp, priced.microbatches)
    most = _most_layers(job, priced, costs, cutoff_s)
    for number, one in enumerate(first.tolist()):
        rows = np.flatnonzero(shape == number)
        path = mean_path(
            SCHEDULE_NAMES[table.schedule[one]],
            int(table.pp[one]),
            int(table.vpp[one]),
            int(priced.microbatches[one]),
            job.model.num_hidden_layers,
        )
        bound[rows] = _mean_seconds(job, priced, costs, path, rows=rows, most=most[rows])
    bound += _least_traffic(job, machine, traits, priced, costs, most=most)
    kind, count = usual_layers(job)
    update = (costs.optimizer + costs.offload)[kind] * np.ceil(count / table.pp)
    return with_overhead(machine, bound + update)


def _least_traffic(
    job: Job,
    machine: Machine,
    traits: RuntimeTraits,
    priced: Priced,
    costs: BlockCosts,
    *,
    most: FloatColumn,
) -> FloatColumn:
    """Seconds by which the traffic of any rank outlasts its passes, at least.

    A rank holds what the others cannot run. Source: `step_traffic_seconds`, as if all but the first
    bucket could hide.
    """
    kind, count = usual_layers(job)
    fewest = np.maximum(0, count - (priced.table.pp - 1) * most)
    expert = np.zeros((1, 1))
    if costs.params.has_experts:
        expert = (costs.params.expert[kind] * fewest)[None, :]
    shared = (costs.params.shared[kind] * fewest)[None, :]
    held = RankParams(shared, expert, costs.params.has_experts)
    found = step_traffic(machine, traits, priced.table, held)
    first = machine.constants.first_bucket
    reduce = found.reduce * (first if traits.overlaps_gradients else 1.0)
    gather = found.gather * (first if traits.overlaps_parameters else 1.0)
    return np.asarray(np.broadcast_to(reduce + gather, (1, len(fewest)))[0])


def _mean_seconds(
    job: Job,
    priced: Priced,
    costs: BlockCosts,
    path: MeanPath,
    *,
    rows: IntColumn,
    most: FloatColumn,
) -> FloatColumn:
    """Length of a mean path with the layers where it is shortest.

    Source: derived; a rank holds no more layers than fit into the cutoff, and of a stage with n of
    at most h layers at least the share min(N, h) / h is recomputed where N are, maybe the cheaper
    ones.
    """
    modules = job.model.num_nextn_predict_layers
    total = path.hops * priced.seconds.p2p[rows]
    for kind, stage, count in ((EMBEDDING, 0, 1), (HEAD, -1, 1), (MTP, -1, modules)):
        block = _crossing(costs, path, kind, rows)[stage]
        total = total + count * block
    others = job.model.num_hidden_layers - usual_layers(job)[1]
    slope, start = _again(priced, rows, most + others, path.stage_of)
    cheapest = costs.again[[kind for kind, _ in layer_counts(job)]][:, rows].min(axis=0)
    total = total + (path.backward[:, None] * start).sum(axis=0) * cheapest
    whole = (slope == 1).all(axis=0)
    passes = []
    for kind, _ in layer_counts(job):
        repeated = np.where(whole, costs.again[kind, rows], cheapest)
        again = path.backward[:, None] * slope * repeated
        passes.append(_crossing(costs, path, kind, rows) + again)
    least = np.min(passes, axis=0)  # of any kind, for a chunk may hold layers of one kind alone
    for one, (_, layers) in zip(passes, layer_counts(job), strict=True):
        total = total + layers * (one - least).min(axis=0)
    chunks = least[path.stage_of]
    mean = chunks.mean(axis=1)
    spread = job.model.num_hidden_layers * mean.min(axis=0) - _uneven(chunks, mean).sum(axis=0)
    return np.asarray(total + spread)


def _crossing(costs: BlockCosts, path: MeanPath, kind: int, rows: IntColumn) -> FloatColumn:
    """Seconds of one block on each stage of a mean path; (stage, row). Source: derived."""
    parts = (
        (path.forward, costs.forward),
        (path.backward, costs.backward),
        (path.weight, costs.weight),
    )
    return np.asarray(sum(np.outer(count, seconds[kind, rows]) for count, seconds in parts))


def _uneven(chunks: FloatColumn, mean: FloatColumn) -> FloatColumn:
    """What a rank may save by longer chunks where the path crosses it less; (rank, row).

    Source: derived; the longer chunks are the first or the last ones.
    """
    size = np.arange(1, chunks.shape[1] + 1)[None, :, None]
    ways = (np.cumsum(chunks, axis=1), np.cumsum(chunks[:, ::-1], axis=1))
    saved = [(size * mean[:, None] - way).max(axis=1) for way in ways]
    return np.asarray(np.maximum(np.maximum(*saved), 0.0))


def _most_layers(job: Job, priced: Priced, costs: BlockCosts, cutoff_s: float) -> FloatColumn:
    """Layers of the usual kind that one rank can run in the cutoff. Source: derived."""
    kind, count = usual_layers(job)
    pair = (costs.forward + costs.backward)[kind] * priced.microbatches
    return np.asarray(np.minimum(np.floor(cutoff_s / pair), count))


def _again(
    priced: Priced, rows: IntColumn, most: FloatColumn, stage_of: IntMatrix
) -> tuple[FloatColumn, FloatColumn]:
    """Line below the layers that full recomputation repeats on each stage; (stage, row).

    Slope and start. Source: that of `chord_of_min`; only the first and the last stage may be empty.
    """
    table = priced.table
    full = table.recompute[rows] == FULL
    uniform = full & (table.recompute_method[rows] == UNIFORM)
    number = np.where(full, table.recompute_num_layers[rows], 0)
    least = np.ones((stage_of.size, 1))
    least[[0, -1]] = 0
    slope, start = chord_of_min(number, least, np.maximum(1.0, np.ceil(most / stage_of.shape[1])))
    return np.where(uniform, 1.0, slope), np.where(uniform, 0.0, start)
