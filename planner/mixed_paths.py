"""Means of the paths of a pipeline whose ranks have unlike speeds and whose messages differ."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from costmodel.critical import Paths, critical_paths
from costmodel.schedules import SCHEDULES
from costmodel.schedules.program import IntMatrix, placed
from costmodel.table import FloatColumn, IntColumn
from costmodel.timeline import StageSeconds
from planner.mean_paths import FORWARD_SHARE, seed_paths
from planner.solvers.linear import Program

STEPS = 20
"""Durations are told apart to one in so many of a layer's. Source: assumed; any weights of the
paths give a valid bound, and few sets of weights serve many layouts."""


@dataclass(frozen=True, slots=True)
class UnlikePath:
    """A weighted mean of the paths of one shape; columns over virtual stages."""

    forward: FloatColumn
    backward: FloatColumn
    weight: FloatColumn
    crossed: FloatColumn
    """Messages between each stage and the next."""
    stage_of: IntMatrix
    """Virtual stage of each (rank, chunk)."""


@dataclass(frozen=True, slots=True)
class Durations:
    """Seconds of a layer on every rank and of a message over every boundary, relative, rounded."""

    layer: tuple[float, ...]
    message: tuple[float, ...]
    layers: int

    @classmethod
    def of(cls, seconds: FloatColumn, messages: FloatColumn, layers: int) -> Durations:
        """Relative to the fastest rank."""
        unit = float(seconds.min()) / STEPS

        def rounded(column: FloatColumn) -> tuple[float, ...]:
            return tuple((np.rint(column / unit) / STEPS).tolist())

        return cls(rounded(seconds), rounded(messages), layers)


@lru_cache(maxsize=4096)
def unlike_path(schedule: str, shape: tuple[int, int, int], takes: Durations) -> UnlikePath:
    """The mean path that is longest where the layers lie where it is shortest.

    `shape` is (pp, vpp, micro batches).
    """
    stage_of = placed(SCHEDULES[schedule].placement, *shape[:2])
    paths = seed_paths((schedule, *shape)).joined(_balanced(schedule, shape, stage_of, takes))
    backward = 1 - FORWARD_SHARE
    crossed = FORWARD_SHARE * paths.forward + backward * paths.backward
    crossed = crossed + backward / 2 * paths.weight
    message = np.array(takes.message)
    share = _longest(
        crossed * _of_stages(stage_of, takes),
        paths.crossed[:, : len(message)] @ message,
        takes.layers,
    )
    return UnlikePath(
        share @ paths.forward,
        share @ paths.backward,
        share @ paths.weight,
        share @ paths.crossed,
        stage_of,
    )


def _of_stages(stage_of: IntColumn, takes: Durations) -> FloatColumn:
    own = np.empty(stage_of.size)
    own[stage_of] = np.array(takes.layer)[:, None]
    return own


def _balanced(
    schedule: str, shape: tuple[int, int, int], stage_of: IntColumn, takes: Durations
) -> Paths:
    """The longest path where layers lie by the speed of ranks."""
    work = takes.layers / (shape[1] * (1 / np.array(takes.layer)).sum())
    factor = np.full((1, stage_of.size), work)
    backward = factor * (1 - FORWARD_SHARE)
    weight = backward / 2 * SCHEDULES[schedule].splits_backward
    seconds = StageSeconds(factor * FORWARD_SHARE, backward, weight)
    behind = np.zeros((1, shape[0]))
    return critical_paths(schedule, shape, seconds, np.array([takes.message]), behind)


def _longest(crossed: FloatColumn, messages: FloatColumn, layers: int) -> FloatColumn:
    """Weights of paths that sum to one and make messages and the cheapest stage longest."""
    program = Program()
    share = [program.column(0.0, 1.0) for _ in crossed]
    least = program.column(0.0, np.inf)
    program.equal([(x, 1.0) for x in share], 1.0)
    for column in crossed.T.tolist():
        terms = [(x, -value) for x, value in zip(share, column, strict=True) if value]
        program.at_most([(least, 1.0), *terms], 0.0)
    gains = [(x, -value) for x, value in zip(share, messages.tolist(), strict=True)]
    program.minimise([(least, -float(layers)), *gains])
    found = program.solve(np.inf).values
    assert found is not None  # any weights are allowed
    weights = found[share].clip(0.0)
    return np.asarray(weights / weights.sum())
