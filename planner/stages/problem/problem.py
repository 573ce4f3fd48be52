"""One layout whose layers are not split yet: all that no split of them changes.

Its pipeline ranks may live in unlike node groups: a layer then costs each stage what it costs on
the machine of its group, and a message what it costs on the way it takes. Equal nodes are one
group.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from trainplan.costmodel.block_costs import EMBEDDING, HEAD, MTP, BlockCosts
from trainplan.costmodel.candidates import Candidates, Context
from trainplan.costmodel.columns import (
    BoolColumn,
    FloatColumn,
    IntColumn,
    IntRankChunks,
    IntStageKinds,
)
from trainplan.costmodel.layout import StageSpec, stage_specs
from trainplan.costmodel.layouts import FULL, UNIFORM, LayoutTable, layers_per_stage
from trainplan.costmodel.pipeline import ENDS
from trainplan.costmodel.program import placed
from trainplan.costmodel.schedules import SCHEDULES
from trainplan.costmodel.step import link_bound, local_seconds
from trainplan.costmodel.timeline import StageSeconds
from trainplan.costmodel.traffic import reduction_overlap
from trainplan.planner.policies import Fractions, paths_bound
from trainplan.planner.stages.columns import (
    IntSplitStages,
    RankLayers,
    SplitRankKinds,
    SplitRanks,
    StageKinds,
)
from trainplan.planner.stages.problem.memory import Sums, needs_at_most
from trainplan.planner.stages.problem.traffic import ends_held, most_hidden, traffic_seconds


@dataclass(frozen=True)
class GroupCosts(Candidates):
    """One layout on the machine of a node group."""

    memory_bytes: float
    """Device memory that a rank may use."""
    costs: BlockCosts
    """Of one block of each kind."""
    transients: FloatColumn
    """Bytes that live for a moment on each rank."""
    outside_bytes: float
    tails: FloatColumn
    """Seconds at least behind its last pass, of each rank: `problem.traffic.least_tails`."""


@dataclass(frozen=True, slots=True)
class StageCosts:
    """Of one block of each kind on every stage, as `BlockCosts`; (stage, kind)."""

    forward: StageKinds
    backward: StageKinds
    weight: StageKinds
    recompute_forward: StageKinds
    optimizer: StageKinds
    offload: StageKinds
    optimizer_bytes: StageKinds

    @property
    def pair(self) -> StageKinds:
        """Both passes."""
        return self.forward + self.backward


@dataclass(frozen=True)
class StageProblem(Context):
    """One layout, with all that no split of its layers changes."""

    parts: tuple[GroupCosts, ...]
    """The layout on the machine of each node group; equal nodes are one."""
    group: IntColumn
    """Node group of every pipeline rank."""
    num_microbatches: int
    p2p: FloatColumn
    """Seconds of a message between each stage and the next."""
    wire: FloatColumn
    """How long one keeps the join of two groups busy."""
    even_too: bool = True
    """May the layers be split evenly as well?"""
    uneven_too: bool = True
    """May they be split unevenly?"""
    offloads: Fractions | None = None
    """Of the optimizer, that a split may offload: seconds are those of the least, the table's, and
    bytes those of the most. None: what the table says."""
    alike: bool = False
    """Do the virtual stages of a rank differ by one layer at most?"""

    def allows(self, layers: IntSplitStages) -> BoolColumn:
        """Which splits are answers; `layers` has shape (split, stage)."""
        return np.asarray(self.even_too | (layers != np.array(self.even)).any(axis=1))

    @property
    def even(self) -> tuple[int, ...]:
        """Layers of every virtual stage in the even split."""
        return layers_per_stage(self.job.model.num_hidden_layers, self.num_stages)

    @property
    def bounds_hold(self) -> bool:
        """Do known paths bound every split? Not where the order of ops depends on durations."""
        return bool(paths_bound(self.traits, self.table)[0])

    def stages(self, layers: Sequence[int]) -> tuple[StageSpec, ...]:
        """Stages with so many layers."""
        if len(self.parts) == 1:
            return stage_specs(layers)
        pairs = zip(layers, self.of_stages(self.group).tolist(), strict=True)
        return tuple(StageSpec(layers=count, group=group) for count, group in pairs)

    @property
    def table(self) -> LayoutTable:
        """The layout."""
        return self.parts[0].table

    @property
    def schedule(self) -> str:
        """Its name, in its groups."""
        return self.parts[0].schedule_of(0)

    @property
    def pipeline(self) -> tuple[str, int, int, int]:
        """What its paths depend on."""
        return self.schedule, *self.shape

    @cached_property
    def shape(self) -> tuple[int, int, int]:
        """Pipeline ranks, virtual stages of one, micro batches."""
        return int(self.table.pp[0]), int(self.table.vpp[0]), self.num_microbatches

    @cached_property
    def stage_of(self) -> IntRankChunks:
        """Virtual stage of each (rank, chunk)."""
        return placed(SCHEDULES[self.schedule].placement, *self.shape[:2])

    @property
    def num_stages(self) -> int:
        """Virtual stages."""
        return self.stage_of.size

    @cached_property
    def kinds(self) -> tuple[int, ...]:
        """Kinds of layer the model has."""
        return tuple(range(len(self.job.model.kinds)))

    @cached_property
    def ends(self) -> IntStageKinds:
        """Embedding, head and MTP modules of each stage."""
        held = np.zeros((self.num_stages, len(self.job.model.kinds) + ENDS), dtype=np.int64)
        held[0, EMBEDDING] = held[-1, HEAD] = 1
        held[-1, MTP] = self.job.model.num_nextn_predict_layers
        return held

    @cached_property
    def recomputed(self) -> int:
        """Layers of a stage that are recomputed in full; all, where it is as many as there are."""
        full = int(self.table.recompute[0]) == FULL
        if full and int(self.table.recompute_method[0]) == UNIFORM:
            return self.job.model.num_hidden_layers
        return int(self.table.recompute_num_layers[0]) if full else 0

    @property
    def recomputes_all(self) -> bool:
        """Is every layer recomputed in full?"""
        return self.recomputed == self.job.model.num_hidden_layers

    def of_rank(self, rank: int) -> IntColumn:
        """1 for the virtual stages of a rank."""
        here = np.zeros(self.num_stages, dtype=np.int64)
        here[self.stage_of[rank]] = 1
        return here

    def of_stages(self, ranks: IntColumn) -> IntColumn:
        """What each rank has, for each of its virtual stages."""
        stages = np.empty(self.num_stages, dtype=ranks.dtype)
        stages[self.stage_of] = ranks[:, None]
        return stages

    def ends_of(self, rank: int) -> IntColumn:
        """Blocks of a rank that are not layers, by kind."""
        return np.asarray(self.ends[self.stage_of[rank]].sum(axis=0))

    @cached_property
    def costs(self) -> StageCosts:
        """Of one block on the machine that runs each stage."""
        group = self.of_stages(self.group)
        names = StageCosts.__dataclass_fields__
        return StageCosts(
            **{
                name: np.stack([getattr(part.costs, name)[:, 0] for part in self.parts])[group]
                for name in names
            }
        )

    def with_room(self, fraction: float, offloads: Fractions | None) -> StageProblem:
        """The same where so much more of the optimizer is on the host, at no cost of time."""
        parts = (replace(one, costs=one.costs.with_room(fraction)) for one in self.parts)
        return replace(self, parts=tuple(parts), offloads=offloads)

    @property
    def rank_memory(self) -> FloatColumn:
        """Device memory that every rank may use; (rank, 1)."""
        return np.array([part.memory_bytes for part in self.parts])[self.group][:, None]

    def traffic(
        self, blocks: SplitRankKinds, forward: SplitRanks, backward: SplitRanks
    ) -> SplitRanks:
        """Seconds by which the traffic of ranks outlasts their passes.

        `blocks` is (split, rank, kind). Source: `planner.stages.problem.traffic`.
        """
        found, kinds = np.empty(forward.shape), blocks.shape[-1]
        for number, part in enumerate(self.parts):
            own = self.group == number
            passes = forward[:, own].reshape(-1, 1), backward[:, own].reshape(-1, 1)
            seconds = traffic_seconds(part, part.costs, blocks[:, own].reshape(-1, kinds), passes)
            found[:, own] = seconds.reshape(len(found), -1)
        return found

    def joins_seconds(self, seconds: StageSeconds) -> FloatColumn:
        """Seconds at least in which joins of groups carry the messages of a step; of each row.

        Source: `link_bound`, without the way home of the last one.
        """
        if not self.wire.any():
            return np.zeros(len(seconds.forward))
        rows = len(seconds.forward), len(self.wire)
        p2p, wire = (np.broadcast_to(one, rows) for one in (self.p2p, self.wire))
        return link_bound(self.pipeline, replace(seconds, weight=seconds.backward), p2p, wire)

    @cached_property
    def least_joins_seconds(self) -> float:
        """The same, however the layers are split."""
        nothing = np.zeros((1, self.num_stages))
        return float(self.joins_seconds(StageSeconds(nothing, nothing, nothing))[0])

    @property
    def may_hide_s(self) -> float:
        """By how much a layout that recomputes more may be faster: it hides more traffic.

        Source: a path ends with the last op of a rank. Where that is the whole backward pass of its
        one stage, the path grows by what is added to it, and that hides no more than `window` of
        itself; elsewhere the last op may be of one stage of several, or wait in any case.
        """
        whole = self.shape[1] == 1 and not SCHEDULES[self.schedule].splits_backward
        if whole and all(reduction_overlap(one).window[0] <= 1 for one in self.parts):
            return 0.0
        most = max(float(most_hidden(one, one.costs)[0]) for one in self.parts)
        local = float(np.diff(local_seconds(self.machine, np.array([0.0, most])))[0])
        return max(1.0, self.machine.outer_factor) * local

    @cached_property
    def least_seconds(self) -> tuple[RankLayers, RankLayers]:
        """Least traffic and update seconds of each rank with 0, 1, ... layers."""
        tails = np.stack([part.tails for part in self.parts])
        traffic, update = tails[self.group, :, ends_held(self.stage_of)].swapaxes(0, 1)
        return traffic, update

    def least_after(self, least: IntColumn, most: IntColumn) -> tuple[FloatColumn, float]:
        """The same of ranks with so many layers: traffic of each, and the update of all."""
        ends = zip(least.tolist(), most.tolist(), strict=True)
        every = [
            [one[rank, low : high + 1].min() for one in self.least_seconds]
            for rank, (low, high) in enumerate(ends)
        ]
        traffic, update = np.array(every).T
        return traffic, float(update.max())

    @cached_property
    def memory_needs(self) -> Sums:
        """Bytes of ranks beyond what they may allocate: `problem.memory.needs_at_most`."""
        return needs_at_most(self)

    @cached_property
    def may_be_empty(self) -> IntColumn:
        """Stages of each rank that may hold no layers: only the first and the last one."""
        ends = (self.stage_of == 0) | (self.stage_of == self.num_stages - 1)
        return np.asarray(ends.sum(axis=1))

    @property
    def filling(self) -> int:
        """Micro batches that fill the pipeline as full as it gets."""
        return min(self.num_microbatches, SCHEDULES[self.schedule].rounds_to_fill * self.shape[0])
