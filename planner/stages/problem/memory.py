"""Bytes of pipeline ranks beyond what they may allocate, as sums over the layers of stages."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.block_costs import EMBEDDING, MTP, BlockCosts
from trainplan.costmodel.columns import (
    FloatColumn,
    FloatMatrix,
    IntColumn,
    IntMatrix,
    IntRankChunks,
    RankChunks,
)
from trainplan.costmodel.memory import LAYERS_IN_TRANSIT, RESERVE_FACTOR
from trainplan.costmodel.program import EQUAL, held_along, held_moments
from trainplan.costmodel.schedules import SCHEDULES
from trainplan.costmodel.timeline import named_program
from trainplan.planner.stages.problem.chunks import fairest_weights


@lru_cache(maxsize=1024)
def fullest_moment(schedule: str, pp: int, vpp: int, num_microbatches: int) -> IntRankChunks:
    """Passes in flight on each rank at the moment with most of them.

    Source: `held_along` of a named schedule.
    """
    program = named_program(schedule, pp, vpp, num_microbatches, EQUAL)
    return held_along(program, np.ones((pp, vpp), dtype=np.int64)).astype(np.int64)


@lru_cache(maxsize=1024)
def fairest_moments(
    schedule: str, pp: int, vpp: int, num_microbatches: int
) -> tuple[RankChunks, ...]:
    """Passes in flight on each rank: the most, and with several chunks a mean of moments.

    That mean has most passes of the chunk with fewest: layers moved there save least.
    Source: a rank holds no less when it is fullest than at any moment, nor than in any mean.
    """
    most = fullest_moment(schedule, pp, vpp, num_microbatches).astype(np.float64)
    if vpp == 1:
        return (most,)
    moments = held_moments(named_program(schedule, pp, vpp, num_microbatches, EQUAL))
    none = np.zeros(vpp, dtype=bool)
    return most, np.array([fairest_weights(m.astype(np.float64), none, 1.0) @ m for m in moments])


if TYPE_CHECKING:
    from trainplan.planner.stages.problem.problem import StageProblem

ROUNDING = 1 + 1e-12
"""Of a sum of bytes; rounding alone must refuse nothing."""


@dataclass(frozen=True, slots=True)
class Sums:
    """Linear functions of the layers of every stage."""

    costs: FloatMatrix
    """What a layer adds; shape (function, stage, way)."""
    constants: FloatColumn


def needs_at_most(problem: StageProblem) -> Sums:
    """Bytes of every rank when it has most passes in flight, less what it may allocate.

    With several chunks also in the mean of moments that leaves least to gain by spreading layers
    over them. A rank without layers is not refused: its transients are others.
    """
    needs, over = [], []
    filled = *problem.pipeline[:3], problem.filling
    moments = fairest_moments(*filled)
    moments = moments[:1] if problem.alike else moments
    for rank, passes in enumerate(fullest_moment(*filled)):
        part, ends = problem.parts[problem.group[rank]], problem.ends_of(rank)
        here, one = problem.of_rank(rank)[:, None], part.costs
        free_bytes = (part.memory_bytes - part.outside_bytes) / RESERVE_FACTOR * ROUNDING
        state = one.state_bytes[:, 0]
        fixed = float(ends @ state + part.transients[rank]) - free_bytes
        fixed -= _regrown(problem, rank)
        modules = passes[-1] if len(passes) == 1 else 0
        predicting = float(ends[MTP] * modules * one.saved_bytes[MTP, 0])
        predicting += float(ends[EMBEDDING] * modules * one.saved_bytes[EMBEDDING, 0])
        in_flight = np.zeros((len(moments), problem.num_stages))
        in_flight[:, problem.stage_of[rank]] = [some[rank] for some in moments]
        empty = problem.may_be_empty[rank] == len(passes)
        for moment, (kept, fewer) in product(in_flight, _activations(problem, one)):
            needs.append(here * state[list(problem.kinds)] + moment[:, None] * kept)
            constant = fixed + predicting - fewer * float(passes.sum())
            over.append(min(0.0, constant) if empty else constant)
    return Sums(np.array(needs), np.array(over))


def _regrown(problem: StageProblem, rank: int) -> float:
    """Bytes that layers recomputed at once may lack in a split with smaller stages.

    Stages at the ends may be empty; layers on the host tell no bytes.
    """
    if not problem.recomputes_all:
        return 0.0
    part = problem.parts[problem.group[rank]]
    held = problem.may_be_empty[rank] < len(problem.stage_of[rank])
    groups = int(problem.table.recompute_num_layers[0]) - held
    kept = float(part.costs.saved_bytes[list(problem.kinds), 0].max())
    return max(0, groups) * kept if kept else float(part.transients[rank])


def _activations(problem: StageProblem, one: BlockCosts) -> list[tuple[FloatColumn, float]]:
    """Bytes each layer keeps of a micro batch in flight by kind, and bytes less a stage.

    Of several rows each is a lower bound. Where a rank has several stages it is fullest when it
    holds most layers, of whatever kind.
    """
    kept = one.saved_bytes[list(problem.kinds), 0]
    if len(problem.stage_of[0]) > 1:
        kept = np.full_like(kept, kept.min())
    layer_input = float(min(one.input_bytes[0], kept.min()))  # 0 where all are offloaded
    if problem.recomputes_all:
        groups = max(1, int(problem.table.recompute_num_layers[0]))
        return [(np.full_like(kept, layer_input / groups), 0.0)]
    if not problem.recomputed:
        return [(kept, 0.0)]
    dropped = float((kept - layer_input).max())
    return [(kept, problem.recomputed * dropped), (np.full_like(kept, layer_input), 0.0)]


def needs_at_every_moment(problem: StageProblem) -> Sums:
    """Bytes of every rank beyond what it may allocate, at every moment when it may be fullest.

    Stages recompute numbers of layers of their own: ways are the kinds of layer kept whole, then
    the same recomputed in full. The moment with most layers in flight need then not be the one
    with most bytes, so each moment is a row.
    Source: as `costmodel.memory.rank`: states, transients, and of each pass in flight what a layer
    keeps, or its input.
    """
    kinds, (pp, vpp, microbatches) = list(problem.kinds), problem.shape
    enough = that_matter(problem.schedule, pp, vpp, microbatches)
    needs, over = [], []
    for rank, moments in enumerate(moments_of(problem.schedule, pp, vpp, enough)):
        part = problem.parts[problem.group[rank]]
        one, state = part.costs, part.costs.state_bytes[:, 0]
        free_bytes = (part.memory_bytes - part.outside_bytes) / RESERVE_FACTOR * ROUNDING
        inputs = np.full(len(kinds), float(one.input_bytes[0]))
        kept = np.concatenate([one.saved_bytes[kinds, 0], inputs])
        ends, here = problem.ends_of(rank), problem.of_rank(rank)[:, None]
        fixed = float(ends @ state + part.transients[rank]) - free_bytes
        modules = float(ends[MTP] * one.saved_bytes[MTP, 0])
        first = float(ends[EMBEDDING] * one.saved_bytes[EMBEDDING, 0])
        for passes in moments:
            in_flight = np.zeros(problem.num_stages)
            in_flight[problem.stage_of[rank]] = passes
            needs.append(here * np.tile(state[kinds], 2) + in_flight[:, None] * kept)
            over.append(fixed + modules * float(passes[-1]) + first * float(passes[0]))
    return Sums(np.array(needs), np.array(over))


def that_matter(schedule: str, pp: int, vpp: int, num_microbatches: int) -> int:
    """Micro batches with which a pipeline is as full as with all of them. Source: as `ranks_of`."""
    one = SCHEDULES[schedule]
    unusual = "microbatch_group_size" in one.options and vpp > 1 and num_microbatches % pp != 0
    return num_microbatches if unusual else min(num_microbatches, one.rounds_to_fill * pp)


@lru_cache(maxsize=256)
def moments_of(schedule: str, pp: int, vpp: int, num_microbatches: int) -> tuple[IntMatrix, ...]:
    """Passes in flight on each rank whenever it may be fullest; of each rank, (moment, chunk).

    Source: `held_moments` of a named schedule.
    """
    return held_moments(named_program(schedule, pp, vpp, num_microbatches, EQUAL))


ANYWHERE = 1 << 30
"""Layers of the smaller kind may lie behind any stage."""


def first_layers(model: ModelSpec) -> int:
    """Layers of a model in front of the last ones, which are all of one kind."""
    kinds = model.kind_of_layer
    tail = next((i for i, kind in enumerate(reversed(kinds)) if kind != kinds[-1]), len(kinds))
    return len(kinds) - tail


def least_in_transit(first: int, stage_of: IntRankChunks, passes: IntRankChunks) -> IntColumn:
    """Layers in transit on each rank at least, of the kind of the last ones.

    Stages at the ends may be empty, and every other one before a stage holds a layer, so a stage
    behind the `first` layers is of one kind; of other ranks nothing is said. `passes` in flight are
    those of each chunk; shape (rank, chunk).
    Source: LAYERS_IN_TRANSIT layers are on their way, or all in flight where those are fewer; each
    pass in flight has a layer at least where the stage is not empty.
    """
    ends = (stage_of == 0) | (stage_of == stage_of.max())
    alike = (stage_of > first).all(axis=1) | (first == 0)
    held = np.where(ends, 0, passes).sum(axis=1)
    return np.where(alike, np.minimum(LAYERS_IN_TRANSIT, held), 0)
