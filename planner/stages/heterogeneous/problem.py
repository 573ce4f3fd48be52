"""A layout with pipeline ranks in node groups, not yet split: rows of a `LayerAssignment`.

As in `stages.problem.problem`, but a layer costs each stage what it costs on the machine of the
group that runs it, and a message what it costs on the way it takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from trainplan.costmodel.blocks.candidates import Candidates, Context
from trainplan.costmodel.layouts import FloatColumn, IntColumn, LayoutTable, layers_per_stage
from trainplan.costmodel.layouts.table import IntSplitStages, RankRows, StageKinds, objects
from trainplan.costmodel.schedules.program import IntMatrix
from trainplan.costmodel.schedules.timeline.clock import StageSeconds
from trainplan.costmodel.schedules.timeline.critical_path import Paths, critical_paths
from trainplan.costmodel.spec import StageSpec
from trainplan.costmodel.step.block_costs import DENSE, MOE
from trainplan.costmodel.step.estimate import with_overhead
from trainplan.costmodel.step.group_links import boundary_seconds, link_bound
from trainplan.costmodel.step.heterogeneous import (
    HeterogeneousStep,
    on_groups,
    price_heterogeneous,
    simulate_heterogeneous,
)
from trainplan.planner.solvers.layers.assignment import LayerAssignment
from trainplan.planner.space.offload import Fractions, with_fraction, with_least_of
from trainplan.planner.stages.heterogeneous.bounds import ranks_in_order
from trainplan.planner.stages.problem.problem import StageProblem, stage_problems
from trainplan.planner.stages.solve.simulated import SimulatedSplits
from trainplan.planner.stages.solve.windows import stages_of

FULL_RANK = 1e9
"""How much more a layer counts on a rank without room."""


@dataclass(frozen=True)
class HeterogeneousProblem(Context):
    """One layout and the node group of each of its virtual stages."""

    parts: tuple[StageProblem, ...]
    """The layout on the machine of each group, with the memory its GPUs may use."""
    group: IntColumn
    """Of every virtual stage."""

    @property
    def even(self) -> tuple[int, ...]:
        """Layers of every virtual stage in the even split."""
        return layers_per_stage(self.job.model.num_hidden_layers, self.one.num_stages)

    @property
    def one(self) -> StageProblem:
        """The layout itself, whatever the machine."""
        return self.parts[0]

    @cached_property
    def ways(self) -> list[int]:
        """Kinds of layer the model has."""
        return list(self.one.kinds)

    @cached_property
    def p2p(self) -> FloatColumn:
        """Seconds of a message between each stage and the next; one row."""
        return self._messages[0]

    @cached_property
    def _messages(self) -> tuple[FloatColumn, FloatColumn]:
        table, group = self.one.table, self.group[None]
        return boundary_seconds(self.with_table(table), group)

    @cached_property
    def rank_group(self) -> IntColumn:
        """Node group of every pipeline rank."""
        return self.group[self.one.stage_of[:, 0]]

    def of_stages(self, name: str) -> StageKinds:
        """A cost of one block of each kind on every stage."""
        own = np.stack([getattr(part.costs, name)[:, 0] for part in self.parts])
        return np.asarray(own[self.group])

    @cached_property
    def joins_seconds(self) -> float:
        """Seconds the joins of the groups are busy with the messages of a step, whatever splits."""
        nothing = np.zeros((1, self.one.num_stages))
        passes = StageSeconds(nothing, nothing, nothing)
        shape = (self.one.schedule, *self.one.shape)
        return float(link_bound(shape, passes, np.zeros_like(self.p2p), self._messages[1])[0])

    def stages(self, layers: tuple[int, ...]) -> tuple[StageSpec, ...]:
        """Stages with so many layers."""
        pairs = zip(layers, self.group.tolist(), strict=True)
        return tuple(StageSpec(layers=count, group=group) for count, group in pairs)

    def balanced(self, most: FloatColumn) -> IntMatrix:
        """A split in which the busiest rank has little work; (1, stage).

        Each layer goes to the rank that ends up with least work, those at the front first, and to
        none that has the most it has room for while others have not.
        """
        one, stage_of = self.one, self.one.stage_of
        pair = self.of_stages("forward") + self.of_stages("backward")
        pair = pair + one.recomputes_all * self.of_stages("recompute_forward")
        layer = pair[stage_of[:, 0], MOE if self.job.model.moe_layers[-1] else DENSE]
        work = (one.ends * pair).sum(axis=1)[stage_of].sum(axis=1)
        ends = np.isin(stage_of, (0, one.num_stages - 1)).sum(axis=1)
        total = np.maximum(0, stage_of.shape[1] - ends)
        work = work + total * layer
        for _ in range(self.job.model.num_hidden_layers - int(total.sum())):
            full = np.where(total >= most, FULL_RANK, 1.0)
            rank = int(np.argmin((work + layer) * full))
            total[rank] += 1
            work[rank] += layer[rank]
        return stages_of(one, total[None, :])[:1]

    def simulate(self, layers: IntSplitStages) -> SimulatedSplits:
        """Run the schedules of some splits; `layers` has shape (split, stage)."""
        table = self.one.table.take(np.zeros(len(layers), dtype=np.int64))
        stages = (self.stages(tuple(split)) for split in layers.tolist())
        table = self._least_offloaded(table.replaced(stages=objects(stages)))
        mixed = price_heterogeneous(self.with_table(table))
        simulated, priced, ran = simulate_heterogeneous(mixed), mixed.whole, mixed.pipelines[0]
        whole = simulated.with_messages + simulated.dp_comm + priced.update
        limits = self._memory_bytes(mixed)
        used = priced.memory.reserved + priced.memory.outside_bytes
        behind = priced.traffic.T
        paths = critical_paths(self.one.schedule, self.one.shape, ran.seconds, ran.p2p, behind)
        return SimulatedSplits(
            with_overhead(self.machine, whole),
            np.asarray((used <= limits).all(axis=0)),
            paths,
            table.offload_optimizer,
        )

    def _memory_bytes(self, mixed: HeterogeneousStep) -> RankRows:
        """Device memory that every rank may use."""
        return np.array([part.memory_bytes for part in self.parts])[mixed.group]

    def _least_offloaded(self, table: LayoutTable) -> LayoutTable:
        """Splits with the least fraction each needs; as `problem.offload.least_offloaded`."""
        offloads = self.one.offloads
        if offloads is None:
            return table
        mixed = price_heterogeneous(self.with_table(with_fraction(table, 0.0)))
        return with_least_of(table, mixed.whole.memory, self._memory_bytes(mixed), offloads)

    def assignment(self, paths: Paths) -> LayerAssignment:
        """All splits, as far as some paths tell them apart."""
        costs, constants = self._paths(paths)
        update, update_constants = self._update()
        busy = np.zeros((1, *costs.shape[1:]))
        needs, free_bytes = self._needs()
        model, stages = self.job.model, self.one.num_stages
        inner = np.ones(stages, dtype=np.int64)
        inner[[0, -1]] = 0
        rows = len(costs) + 1
        return LayerAssignment(
            layers=tuple(MOE if moe else DENSE for moe in model.moe_layers),
            kind_of_way=tuple(self.ways),
            costs=np.concatenate([costs, busy, update]),
            constants=np.concatenate([constants, [self.joins_seconds], update_constants]),
            group=np.repeat([0, 1, 2], [rows, len(update) // 2, len(update) // 2]),
            needs=needs,
            capacities=free_bytes,
            least=inner,
            most=np.full(stages, model.num_hidden_layers),
        )

    def _paths(self, paths: Paths) -> tuple[FloatColumn, FloatColumn]:
        """Length of paths: seconds a layer adds (path, stage, way), and seconds without layers."""
        recompute_forward = self.of_stages("recompute_forward") if self.one.recomputes_all else 0.0
        seconds = (
            (paths.forward, self.of_stages("forward")),
            (paths.backward, self.of_stages("backward")),
            (paths.weight, self.of_stages("weight")),
        )
        ends = sum((c[:, :, None] * s * self.one.ends).sum(axis=(1, 2)) for c, s in seconds)
        layers = sum(c[:, :, None] * s[:, self.ways] for c, s in seconds)
        if self.one.recomputes_all:
            layers = (
                layers + paths.backward[:, :, None] * np.asarray(recompute_forward)[:, self.ways]
            )
        slope, start = self._traffic
        behind = slope[paths.rank][:, None, None] * self._on_rank[paths.rank][:, :, None]
        fixed = ends + paths.crossed[:, : self.p2p.shape[1]] @ self.p2p[0] + start[paths.rank]
        return np.asarray(layers + behind), np.asarray(fixed)

    @cached_property
    def _on_rank(self) -> IntColumn:
        """1 for the virtual stages of a rank; (rank, stage)."""
        stages = np.arange(self.one.num_stages)
        return np.array([np.isin(stages, own) for own in self.one.stage_of]).astype(np.int64)

    @cached_property
    def _traffic(self) -> tuple[FloatColumn, FloatColumn]:
        """Lines below the traffic of each rank by its layers: seconds a layer adds, and a start.

        Source: a line with the slope of the chord over all numbers of layers, lowered to its lowest
        point under the table, is nowhere above it.
        """
        layers = self.job.model.num_hidden_layers
        tables = np.stack([part.least_seconds[0] for part in self.parts])
        own = tables[self.rank_group, np.arange(len(self.rank_group))]
        known = np.where(np.isfinite(own), own, 0.0)
        slope = np.maximum(0.0, (known[:, -1] - known[:, 0]) / max(1, layers))
        below = np.where(np.isfinite(own), own - slope[:, None] * np.arange(layers + 1), np.inf)
        return slope, below.min(axis=1)

    def _update(self) -> tuple[FloatColumn, FloatColumn]:
        """Optimizer step of every rank, then what offloading it adds on every rank."""
        here = self._on_rank[:, :, None]
        seconds = [self.of_stages("optimizer"), self.of_stages("offload")]
        rows = [here * one[:, self.ways] for one in seconds]
        fixed = [self._on_rank @ (self.one.ends * one).sum(axis=1) for one in seconds]
        return np.concatenate(rows), np.concatenate(fixed)

    def _needs(self) -> tuple[FloatColumn, FloatColumn]:
        """Bytes of every rank at each moment it may be fullest, and what it may allocate."""
        every = [part.memory_needs for part in self.parts]
        first = np.argmax(every[0].costs.any(axis=2), axis=1)
        group = self.group[first]
        row = np.arange(len(group))
        costs = np.stack([one.costs for one in every])[group, row]
        constants = np.stack([one.constants for one in every])[group, row]
        return costs, -constants


def heterogeneous_problems(
    candidates: Candidates,
    order: Sequence[int],
    *,
    margin: float,
    ranges: Sequence[Fractions] = (),
) -> list[HeterogeneousProblem]:
    """The layouts of a table, one by one, without their stages, the groups in an order.

    `margin` is the share of device memory that must stay free, `ranges` as in `stage_problems`.
    """
    table = candidates.table
    table = table.replaced(stages=objects([None] * len(table)))
    parts = [
        stage_problems(one, one.machine.memory_bytes * (1 - margin), ranges)
        for one in on_groups(candidates.with_table(table))
    ]
    rows = []
    for row in range(len(table)):
        own = tuple(part[row] for part in parts)
        gpus = int(table.tp[row] * table.cp[row] * table.dp[row])
        group = np.empty(own[0].num_stages, dtype=np.int64)
        group[own[0].stage_of] = ranks_in_order(candidates.job, gpus, order)[:, None]
        rows.append(HeterogeneousProblem(*candidates.shared, own, group))
    return rows
