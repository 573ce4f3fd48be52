"""Layers of ranks over their virtual stages, and a balanced split to begin with."""

from functools import lru_cache

import numpy as np

from trainplan.costmodel.block_costs import usual_layers
from trainplan.costmodel.columns import IntColumn, IntMatrix, RankRows
from trainplan.costmodel.program import placed
from trainplan.costmodel.schedules import SCHEDULES
from trainplan.planner.stages.columns import IntSplitRanks, IntSplitStages
from trainplan.planner.stages.problem.problem import StageProblem


def stages_of(problem: StageProblem, totals: IntSplitRanks) -> IntSplitStages:
    """Layers of every virtual stage for layers of every rank, either way."""
    vpp = problem.shape[1]
    if vpp == 1:
        return totals[:, np.argsort(problem.stage_of[:, 0])]
    one, other = (spread(problem, totals, longer_first=first) for first in (True, False))
    return np.concatenate([one, other[(one != other).any(axis=1)]])


def spread(problem: StageProblem, totals: IntSplitRanks, *, longer_first: bool) -> IntSplitStages:
    """The layers of each rank over its chunks, as evenly as can be."""
    shape = problem.shape[:2]
    return spread_over(problem.schedule, shape, totals, longer_first=longer_first)


def spread_over(
    schedule: str, shape: tuple[int, ...], totals: IntSplitRanks, *, longer_first: bool
) -> IntSplitStages:
    """As `spread`, of a pipeline of (pp, vpp)."""
    pp, vpp = shape
    rank, place = _turns(schedule, pp, vpp, longer_first=longer_first)
    base, extra = np.divmod(totals, vpp)
    return np.asarray(base[:, rank] + (place < extra[:, rank]))


@lru_cache(maxsize=1024)
def _turns(schedule: str, pp: int, vpp: int, *, longer_first: bool) -> tuple[IntColumn, IntColumn]:
    """Rank of each stage, and its place among those of its rank that may be the longer ones."""
    stage_of = placed(SCHEDULES[schedule].placement, pp, vpp)
    rank, place = np.empty((2, stage_of.size), dtype=np.int64)
    for number, own in enumerate(stage_of):
        order = np.arange(vpp) if longer_first else np.arange(vpp)[::-1]
        ends = (own[order] == 0) | (own[order] == stage_of.size - 1)
        rank[own] = number
        place[own[np.concatenate([order[~ends], order[ends]])]] = np.arange(vpp)
    return rank, place


def balanced(problem: StageProblem, most: RankRows | float = np.inf) -> IntMatrix:
    """Layers of every rank that make the work of the busiest rank least; (1, rank).

    None goes to a rank that has the `most` it has room for while others have not. All layers count
    as much as those of the usual kind.
    """
    costs, stage_of = problem.costs, problem.stage_of
    ends = (problem.ends * costs.pair).sum(axis=1)[stage_of].sum(axis=1)
    pair = costs.pair + problem.recomputes_all * costs.recompute_forward
    layer = pair[stage_of[:, 0], usual_layers(problem.job.model.kind_of_layer)[0]]
    least = np.maximum(0, problem.shape[1] - problem.may_be_empty)
    layers = problem.job.model.num_hidden_layers
    return filled(ends[:, None], layer[:, None], least[:, None], most, layers).T


def filled(
    ends: RankRows, layer: RankRows, least: IntMatrix, most: RankRows | float, layers: int
) -> IntMatrix:
    """Layers of every rank of some rows, given its seconds for the ends and a layer; (rank, row).

    Each layer goes to the rank that ends up with least work, those at the front first: for layers
    that are alike no other order ends lower.
    """
    total, row = least.copy(), np.arange(ends.shape[1])
    for _ in range(layers - int(least[:, 0].sum())):
        full = np.where(total >= most, FULL_RANK, 1.0)
        rank = np.argmin((ends + (total + 1) * layer) * full, axis=0)
        total[rank, row] += 1
    return total


FULL_RANK = 1e9
"""How much more a layer counts on a rank without room."""
