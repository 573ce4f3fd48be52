"""Means of the paths of a pipeline whose ranks have unlike speeds and whose messages differ."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from trainplan.costmodel.columns import FloatColumn, IntRankChunks
from trainplan.costmodel.program import placed
from trainplan.costmodel.schedules import SCHEDULES
from trainplan.costmodel.timeline import Paths, long_paths
from trainplan.planner.solvers.linear import Matrix
from trainplan.planner.stages.bounds.mean_paths import Crossings, equal_stages, mean_of, seed_paths
from trainplan.planner.stages.columns import PathStages

STEPS = 20
"""Durations are told apart to one in so many of a layer's. Source: assumed; any weights of the
paths give a valid bound, and few sets of weights serve many layouts."""


@dataclass(frozen=True, slots=True)
class Durations:
    """Seconds of a layer on every rank and of a message over every boundary, relative, rounded."""

    layer: tuple[float, ...]
    message: tuple[float, ...]
    layers: int
    least: tuple[float, ...]
    most: tuple[float, ...]
    """Layers that each rank may hold."""

    @classmethod
    def of(
        cls,
        seconds: FloatColumn,
        messages: FloatColumn,
        layers: int,
        window: tuple[FloatColumn, FloatColumn],
    ) -> Durations:
        """Relative to the fastest rank; `window` is the fewest and most layers of each."""
        unit = float(seconds.min()) / STEPS

        def rounded(column: FloatColumn) -> tuple[float, ...]:
            return tuple((np.rint(column / unit) / STEPS).tolist())

        least, most = (tuple(one.tolist()) for one in window)
        return cls(rounded(seconds), rounded(messages), layers, least, most)


@lru_cache(maxsize=4096)
def heterogeneous_path(schedule: str, shape: tuple[int, int, int], takes: Durations) -> Crossings:
    """The mean path that is longest where the layers lie where it is shortest.

    `shape` is (pp, vpp, micro batches).
    """
    stage_of = placed(SCHEDULES[schedule].placement, *shape[:2])
    paths = seed_paths((schedule, *shape)).joined(_balanced(schedule, shape, stage_of, takes))
    layer = np.empty((1, stage_of.size))
    layer[0, stage_of] = np.array(takes.layer)[:, None]
    one, message = equal_stages(schedule, layer), np.array(takes.message)
    crossed = paths.forward * one.forward + paths.backward * one.backward
    crossed = crossed + paths.weight * one.weight
    share = _longest(crossed, paths.crossed[:, : len(message)] @ message, stage_of, takes)
    return mean_of(paths, share, stage_of)


def _balanced(
    schedule: str, shape: tuple[int, int, int], stage_of: IntRankChunks, takes: Durations
) -> Paths:
    """The longest path where layers lie by the speed of ranks."""
    work = takes.layers / (shape[1] * (1 / np.array(takes.layer)).sum())
    seconds = equal_stages(schedule, np.full((1, stage_of.size), work))
    return long_paths(schedule, shape, seconds, np.array([takes.message]))


def _longest(
    crossed: PathStages, messages: FloatColumn, stage_of: IntRankChunks, takes: Durations
) -> FloatColumn:
    """Weights of paths that sum to one and make the shortest split within the windows longest.

    `crossed` is what a layer of each stage adds to each path; (path, stage). Columns of the
    program: what a layer adds in the shortest split, what it adds less where a rank is full and
    more where one has too few, the weights.

    Source: the shortest split of a mean path is a continuous knapsack, layers of each stage within
    windows; its dual is a maximum too, so it and the weights are found in one program.
    """
    (paths, stages), ranks = crossed.shape, len(stage_of)
    own = (stage_of[:, :, None] == np.arange(stages)).any(axis=1).T.astype(np.float64)
    rows = np.concatenate([np.ones((stages, 1)), -own, own, -crossed.T], axis=1)
    cost = np.concatenate([[-float(takes.layers)], takes.most, -np.array(takes.least), -messages])
    one = np.concatenate([np.zeros(1 + 2 * ranks), np.ones(paths)])[None, :]
    found = Matrix(cost, rows, np.zeros(stages), one).solve()
    if found is None:  # the windows hold no split, so nothing is bounded
        return np.full(paths, 1 / paths)
    weights = found[1 + 2 * ranks :].clip(0.0)
    return np.asarray(weights / weights.sum())
