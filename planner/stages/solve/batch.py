"""Many splits of one layout at once: their costs on the paths that are known, and on the clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from trainplan.costmodel.block_costs import EMBEDDING
from trainplan.costmodel.candidates import Candidates
from trainplan.costmodel.columns import BoolColumn, FloatColumn, IntColumn, IntMatrix, objects
from trainplan.costmodel.layout import StageSpec
from trainplan.costmodel.pipeline import layers_before
from trainplan.costmodel.step import (
    Priced,
    SimulatedTable,
    price,
    price_heterogeneous,
    simulate,
    virtual_stage_seconds,
    with_overhead,
)
from trainplan.costmodel.timeline import Paths, StageSeconds, critical_paths
from trainplan.planner.stages.columns import (
    IntSplitStages,
    SplitRanks,
    SplitStageKinds,
    SplitStages,
    StageKinds,
)
from trainplan.planner.stages.problem.of_layouts import least_offloaded
from trainplan.planner.stages.problem.problem import StageProblem


@dataclass(frozen=True)
class ManySplits:
    """Splits of a layout as rows; the same sums over blocks as an estimate of each."""

    problem: StageProblem
    layers: IntSplitStages
    """Layers of every virtual stage."""

    def __len__(self) -> int:
        return len(self.layers)

    def take(self, splits: IntColumn | BoolColumn) -> ManySplits:
        """Some of them."""
        return ManySplits(self.problem, self.layers[splits])

    @cached_property
    def blocks(self) -> SplitStageKinds:
        """Blocks of every stage by kind."""
        problem, ends = self.problem, np.cumsum(self.layers, axis=1)
        before = layers_before(problem.job.model.kind_of_layer)
        blocks = np.tile(problem.ends.astype(np.float64), (len(self), 1, 1))
        blocks[:, :, :EMBEDDING] = before[ends] - before[ends - self.layers]
        return blocks

    @cached_property
    def recompute_forward(self) -> SplitStageKinds:
        """Layers of every stage that are recomputed in full, by kind."""
        again = np.zeros_like(self.blocks)
        covered = np.minimum(self.problem.recomputed, self.layers)
        start = np.cumsum(self.layers, axis=1) - self.layers
        before = layers_before(self.problem.job.model.kind_of_layer)
        again[:, :, :EMBEDDING] = before[start + covered] - before[start]
        return again

    @cached_property
    def seconds(self) -> StageSeconds:
        """Seconds of every virtual stage; shape (split, stage).

        Source: blocks of a stage follow one another, so its seconds are the number of its blocks of
        each kind times the seconds of one.
        """
        one = self.problem.costs
        repeated = (
            _sums(self.recompute_forward, one.recompute_forward) if self.problem.recomputed else 0.0
        )
        return StageSeconds(
            _sums(self.blocks, one.forward),
            _sums(self.blocks, one.backward) + repeated,
            _sums(self.blocks, one.weight),
        )

    def of_ranks(self, stages: FloatColumn) -> FloatColumn:
        """Sums over the virtual stages of every rank; shape (split, rank, ...)."""
        return np.asarray(stages[:, self.problem.stage_of].sum(axis=2))

    @cached_property
    def traffic(self) -> SplitRanks:
        """Seconds by which the traffic of every rank outlasts its passes."""
        passes = (self.of_ranks(one) for one in (self.seconds.forward, self.seconds.backward))
        return self.problem.traffic(self.of_ranks(self.blocks), *passes)

    @cached_property
    def update(self) -> FloatColumn:
        """Seconds of the optimizer step and of its offload. Source: as in an estimate."""
        one = self.problem.costs
        optimizer, offload = (
            self.of_ranks(_sums(self.blocks, each)).max(axis=1)
            for each in (one.optimizer, one.offload)
        )
        if (ranges := self.problem.offloads) is not None:
            offload = offload * (self.fractions / ranges.least)
        return np.asarray(optimizer + offload)

    @cached_property
    def fractions(self) -> FloatColumn:
        """Of the optimizer, that every split offloads at least; those that may fit are right.

        Source: `Fractions.enough`, of the optimizer of every rank.
        """
        ranges = self.problem.offloads
        if ranges is None:
            return np.full(len(self), float(self.problem.table.offload_optimizer[0]))
        states = self.of_ranks(_sums(self.blocks, self.problem.costs.optimizer_bytes))[:, :, None]
        over = self._over.reshape(*states.shape[:2], -1)
        return ranges.enough(over, states)

    def bound(self, paths: Paths) -> FloatColumn:
        """Step time of which no split is below its own.

        Source: these paths are there in every split, and the longest of some paths is no longer
        than the longest of all, which is the makespan; traffic and update follow. Joins of groups
        are busy with all messages; then some rank sends.
        """
        ends = paths.seconds(self.seconds, np.tile(self.problem.p2p, (len(self), 1)))
        pipeline = (ends + self.traffic[:, paths.rank]).max(axis=1)
        joins = self.problem.joins_seconds(self.seconds) + self.traffic.min(axis=1)
        pipeline = np.maximum(pipeline, joins)
        return with_overhead(self.problem.machine, pipeline + self.update)

    def may_fit(self) -> BoolColumn:
        """Which splits the necessary conditions of memory do not refuse."""
        rounding = np.abs(self.problem.memory_needs.constants) * 1e-12
        return np.asarray((self._over <= rounding).all(axis=1))

    @cached_property
    def _over(self) -> FloatColumn:
        """Bytes of ranks beyond what they may allocate; (split, row of `memory_needs`)."""
        needs = self.problem.memory_needs
        layers = self.blocks[:, :, list(self.problem.kinds)].reshape(len(self), -1)
        return np.asarray(layers @ needs.costs.reshape(len(needs.costs), -1).T + needs.constants)


def _sums(blocks: SplitStageKinds, each: StageKinds) -> SplitStages:
    """What the blocks of every stage take, given what one takes."""
    return np.asarray(np.einsum("nsk,sk->ns", blocks, each))


@dataclass(frozen=True, slots=True)
class SimulatedSplits:
    """Splits on the clock."""

    step_time_s: FloatColumn
    fits: BoolColumn
    """In memory, and among the splits the user allows."""
    paths: Paths
    offload: FloatColumn
    """Fraction of the optimizer that each offloads: the least with which it fits."""


def simulate_splits(problem: StageProblem, layers: IntMatrix) -> SimulatedSplits:
    """Run the schedules of some splits; `layers` has shape (split, stage)."""
    simulated = simulate_stages(problem, [problem.stages(one) for one in layers.tolist()])
    return replace(simulated, fits=simulated.fits & problem.allows(layers))


def simulate_stages(
    problem: StageProblem, choices: Sequence[tuple[StageSpec, ...]]
) -> SimulatedSplits:
    """Run the schedules of a layout with some stages; whether one fits is what an estimate says."""
    many = problem.table.take(np.zeros(len(choices), dtype=np.int64))
    table = least_offloaded(problem, many.replaced(stages=objects(choices)))
    priced, simulated, seconds, p2p = _run(problem, problem.with_table(table))
    whole = simulated.with_messages + simulated.dp_comm + priced.update
    ranks = problem.shape[0]
    tails = priced.traffic[:ranks].T
    used = priced.memory.reserved[:ranks] + priced.memory.outside_bytes
    return SimulatedSplits(
        with_overhead(problem.machine, whole),
        np.asarray((used <= problem.rank_memory).all(axis=0)),
        critical_paths(problem.schedule, problem.shape, seconds, p2p, tails),
        table.offload_optimizer,
    )


def _run(
    problem: StageProblem, candidates: Candidates
) -> tuple[Priced, SimulatedTable, StageSeconds, FloatColumn]:
    """Splits of a layout priced and run, the seconds of their stages and of their messages."""
    if len(problem.parts) > 1:
        mixed = price_heterogeneous(candidates)
        one = mixed.pipelines[0]
        return mixed.whole, mixed.simulated(), one.seconds, one.p2p
    priced = price(candidates, merged=False)
    seconds = virtual_stage_seconds(priced, np.arange(len(candidates.table)))
    return priced, simulate(priced), seconds, priced.seconds.p2p
