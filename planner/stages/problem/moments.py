"""Passes in flight on the ranks of a pipeline when they are fullest."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from trainplan.costmodel.columns import IntRankChunks, RankChunks
from trainplan.costmodel.program import EQUAL, held_along, held_moments
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
