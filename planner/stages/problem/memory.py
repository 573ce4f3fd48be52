"""Bytes of pipeline ranks whose stages recompute numbers of layers of their own."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from trainplan.costmodel.memory.rank import RESERVE_FACTOR
from trainplan.costmodel.schedules import SCHEDULES
from trainplan.costmodel.schedules.memory import held_moments
from trainplan.costmodel.schedules.program import EQUAL, IntMatrix
from trainplan.costmodel.schedules.timeline.cycles import named_program
from trainplan.costmodel.step.block_costs import MTP
from trainplan.planner.stages.problem.problem import ROUNDING, StageProblem, Sums


def needs_at_every_moment(problem: StageProblem) -> Sums:
    """Bytes of every rank beyond what it may allocate, at every moment when it may be fullest.

    Ways are the kinds of layer kept whole, then the same recomputed in full. With stages that
    recompute differently the moment with most layers in flight need not be the one with most bytes,
    so each moment is a row.
    Source: as `costmodel.memory.rank`: states, transients, and of each pass in flight what a layer
    keeps, or its input.
    """
    one, kinds = problem.costs, list(problem.kinds)
    free_bytes = (problem.memory_bytes - problem.outside_bytes) / RESERVE_FACTOR * ROUNDING
    state = one.state_bytes[:, 0]
    held = np.tile(state[kinds], 2)
    inputs = np.full(len(kinds), float(one.input_bytes[0]))
    kept = np.concatenate([one.saved_bytes[kinds, 0], inputs])
    needs, over = [], []
    for rank, moments in enumerate(_moments(problem)):
        ends, here = problem.ends_of(rank), problem.of_rank(rank)[:, None]
        fixed = float(ends @ state + problem.transients[rank]) - free_bytes
        modules = float(ends[MTP] * one.saved_bytes[MTP, 0])
        for passes in moments:
            in_flight = np.zeros(problem.num_stages)
            in_flight[problem.stage_of[rank]] = passes
            needs.append(here * held + in_flight[:, None] * kept)
            over.append(fixed + modules * float(passes[-1]))
    return Sums(np.array(needs), np.array(over))


def _moments(problem: StageProblem) -> tuple[IntMatrix, ...]:
    pp, vpp, microbatches = problem.shape
    return moments_of(
        problem.schedule, pp, vpp, that_matter(problem.schedule, pp, vpp, microbatches)
    )


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
