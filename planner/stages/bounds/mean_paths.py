"""Paths of a pipeline by its shape alone, and means of them, which hold for every layout of it.

The mean that crosses all ranks alike serves equal ranks, one for the speeds and messages of ranks
those in unlike node groups.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from trainplan.costmodel.block_costs import BlockCosts
from trainplan.costmodel.columns import FloatColumn, FloatMatrix, IntColumn, IntRankChunks
from trainplan.costmodel.program import placed
from trainplan.costmodel.schedules import SCHEDULES
from trainplan.costmodel.timeline import Paths, Run, StageSeconds, long_paths, prolonged, run_of
from trainplan.planner.solvers import Matrix
from trainplan.planner.stages.columns import PathStages, StageRows
from trainplan.planner.stages.problem.chunks import alike_weights, fairest_weights

Pipeline = tuple[str, int, int, int]
"""Schedule, ranks, virtual stages of one, micro batches: what a path depends on."""
FORWARD_SHARE = 1 / 3
"""Of a pass through a stage, while weights are chosen. Source: the backward pass has twice the
products of the forward pass; any value gives a valid bound."""
LONGER, MUCH_LONGER = 0.4, 0.5
"""By how much one rank is made longer to find the paths through it: of one stage where micro
batches fill the pipeline, and otherwise, where paths through other ranks are nearly as long.

Source: measured on the schedules that have such paths; it only chooses which ones are known.
"""


@dataclass(frozen=True, slots=True)
class Crossings:
    """How often a mean path crosses every virtual stage; shape (stage, 1)."""

    forward: StageRows
    backward: StageRows
    weight: StageRows
    crossed: FloatColumn
    """Messages on it between each stage and the next."""
    stage_of: IntRankChunks
    """Virtual stage of each (rank, chunk)."""

    @property
    def hops(self) -> float:
        """All its messages."""
        return float(self.crossed.sum())

    def seconds(
        self, forward: FloatColumn, backward: FloatColumn, weight: FloatColumn
    ) -> StageRows:
        """Seconds of one block on each stage, given those of its passes, there or everywhere.

        Source: a mean path crosses a stage in each kind of pass so many times, and every crossing
        takes the seconds of that pass of the block.
        """
        return self.forward * forward + self.backward * backward + self.weight * weight

    def of_block(self, costs: BlockCosts, kind: int, rows: IntColumn) -> StageRows:
        """As `seconds`, of a block of some rows on equal nodes."""
        return self.seconds(
            costs.forward[kind, rows], costs.backward[kind, rows], costs.weight[kind, rows]
        )


@lru_cache(maxsize=1024)
def seed_paths(pipeline: Pipeline) -> Paths:
    """The longest paths where all stages are alike, and where one rank or one stage is slower."""
    schedule, pp, vpp, num_microbatches = pipeline
    shape = pp, vpp, num_microbatches
    return prolonged(schedule, shape, lambda m: _seeds(schedule, pp, vpp, m))


@lru_cache(maxsize=256)
def _seeds(schedule: str, pp: int, vpp: int, num_microbatches: int) -> Run:
    stage_of = placed(SCHEDULES[schedule].placement, pp, vpp)
    stages = np.arange(stage_of.size)
    slower = (stage_of[:, :, None] == stages).any(axis=1)
    size = LONGER if vpp == 1 and num_microbatches > pp else MUCH_LONGER
    alone = np.eye(len(stages)) if vpp > 1 else np.zeros((0, len(stages)))
    slower = np.concatenate([np.zeros((1, len(stages))), size * slower, vpp * alone])
    seconds = equal_stages(schedule, 1 + slower)
    nothing = np.zeros(len(seconds.forward))
    return run_of(schedule, (pp, vpp, num_microbatches), seconds, nothing)


def max_min_mean(pipeline: Pipeline, paths: Paths, num_layers: int, *, alike: bool) -> Crossings:
    """The mean of some paths whose shortest split of so many equal layers takes longest."""
    schedule, pp, vpp, _ = pipeline
    stage_of = placed(SCHEDULES[schedule].placement, pp, vpp)
    one = equal_stages(schedule, np.ones((1, stage_of.size)))
    crossed = paths.forward * one.forward + paths.backward * one.backward
    crossed = crossed + paths.weight * one.weight
    inner = (np.arange(stage_of.size) > 0) & (np.arange(stage_of.size) < stage_of.size - 1)
    share = (
        alike_weights(crossed[:, stage_of], num_layers)
        if alike
        else fairest_weights(crossed, inner, num_layers - inner.sum())
    )
    return mean_of(paths, share, stage_of)


def mean_of(paths: Paths, share: FloatColumn, stage_of: IntRankChunks) -> Crossings:
    """The mean of some paths, each with a share."""
    forward, backward, weight = (
        (share @ part)[:, None] for part in (paths.forward, paths.backward, paths.weight)
    )
    return Crossings(forward, backward, weight, share @ paths.crossed, stage_of)


def equal_stages(schedule: str, factor: FloatMatrix) -> StageSeconds:
    """Seconds of stages whose passes take so much of a common time."""
    backward = factor * (1 - FORWARD_SHARE)
    weight = backward / 2 if SCHEDULES[schedule].splits_backward else np.zeros_like(backward)
    return StageSeconds(factor * FORWARD_SHARE, backward, weight)


@dataclass(frozen=True, slots=True)
class PathPool:
    """Paths of pipelines, and a mean of each, worked out when they are first asked for."""

    paths: dict[Pipeline, Paths] = field(default_factory=dict)
    means: dict[Pipeline, Crossings] = field(default_factory=dict)
    alike: bool = False
    """Are the means for stages of a rank that differ by one layer at most?"""

    def of(self, pipeline: Pipeline) -> Paths:
        """Paths found so far; the first time, those through every stage."""
        if pipeline not in self.paths:
            self.paths[pipeline] = seed_paths(pipeline)
        return self.paths[pipeline]

    def mean(self, pipeline: Pipeline, num_layers: int) -> Crossings:
        """The fairest mean of the first paths, whatever was found since; for one model."""
        if pipeline not in self.means:
            seeds = seed_paths(pipeline)
            self.paths.setdefault(pipeline, seeds)
            self.means[pipeline] = max_min_mean(pipeline, seeds, num_layers, alike=self.alike)
        return self.means[pipeline]

    def add(self, pipeline: Pipeline, paths: Paths) -> None:
        """Take note of more paths."""
        self.paths[pipeline] = self.of(pipeline).joined(paths)

    def alone(self, pipeline: Pipeline) -> PathPool:
        """What is known of one pipeline, but for its mean."""
        known = self.paths.get(pipeline)
        return PathPool() if known is None else PathPool({pipeline: known})

    def learn(self, other: PathPool) -> None:
        """Take note of what was found elsewhere."""
        for pipeline, paths in other.paths.items():
            known = self.paths.get(pipeline)
            self.paths[pipeline] = paths if known is None else known.joined(paths)
        self.means.update(other.means)


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
def heterogeneous_path(pipeline: Pipeline, takes: Durations) -> Crossings:
    """The mean path that is longest where the layers lie where it is shortest.

    Of the seeds and of the longest path where layers lie by the speed of ranks.
    """
    schedule, *shape = pipeline
    stage_of = placed(SCHEDULES[schedule].placement, *shape[:2])
    work = takes.layers / (shape[1] * (1 / np.array(takes.layer)).sum())
    seconds = equal_stages(schedule, np.full((1, stage_of.size), work))
    paths = seed_paths(pipeline).joined(
        long_paths(schedule, pipeline[1:], seconds, np.array([takes.message]))
    )
    layer = np.empty((1, stage_of.size))
    layer[0, stage_of] = np.array(takes.layer)[:, None]
    one, message = equal_stages(schedule, layer), np.array(takes.message)
    crossed = paths.forward * one.forward + paths.backward * one.backward
    crossed = crossed + paths.weight * one.weight
    share = _longest(crossed, paths.crossed[:, : len(message)] @ message, stage_of, takes)
    return mean_of(paths, share, stage_of)


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
