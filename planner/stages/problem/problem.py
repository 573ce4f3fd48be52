"""One layout whose layers are not split yet: all that no split of them changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np

from trainplan.costmodel.blocks.candidates import Candidates
from trainplan.costmodel.layouts import (
    BoolColumn,
    FloatColumn,
    IntColumn,
    layers_per_stage,
)
from trainplan.costmodel.layouts.table import (
    FULL,
    UNIFORM,
    IntRankChunks,
    IntSplitStages,
    IntStageKinds,
    RankKinds,
    RankLayers,
)
from trainplan.costmodel.memory.rank import RESERVE_FACTOR
from trainplan.costmodel.pipeline.bound import table_sum_seconds
from trainplan.costmodel.schedules import SCHEDULES
from trainplan.costmodel.schedules.program import FloatMatrix, placed
from trainplan.costmodel.spec.layout import SCHEDULE_NAMES
from trainplan.costmodel.step import Priced, price
from trainplan.costmodel.step.block_costs import (
    DENSE,
    EMBEDDING,
    HEAD,
    KINDS,
    MOE,
    MTP,
    BlockCosts,
    block_costs,
)
from trainplan.costmodel.step.estimate import with_overhead
from trainplan.costmodel.traffic.data_parallel import reduction_overlap
from trainplan.planner.space.offload import Fractions, most_within, range_from
from trainplan.planner.stages.problem.in_transit import first_layers, least_in_transit
from trainplan.planner.stages.problem.moments import fairest_moments, fullest_moment
from trainplan.planner.stages.problem.traffic import (
    ends_held,
    least_tails,
    most_hidden,
    traffic_seconds,
)

ROUNDING = 1 + 1e-12
"""Of a sum of bytes; rounding alone must refuse nothing."""


@dataclass(frozen=True, slots=True)
class Sums:
    """Linear functions of the layers of every stage."""

    costs: FloatMatrix
    """What a layer adds; shape (function, stage, way)."""
    constants: FloatColumn


@dataclass(frozen=True)
class StageProblem(Candidates):
    """One layout, with all that no split of its layers changes."""

    memory_bytes: float
    """Device memory that a rank may use."""
    costs: BlockCosts
    """Of one block of each kind."""
    num_microbatches: int
    p2p: float
    """Seconds of a message between stages."""
    transients: FloatColumn
    """Bytes that live for a moment on each rank."""
    outside_bytes: float
    tails: FloatColumn
    """Seconds at least behind its last pass, of each rank: `problem.traffic.least_tails`."""
    even_too: bool = True
    """May the layers be split evenly as well?"""
    offloads: Fractions | None = None
    """Of the optimizer, that a split may offload: seconds are those of the least, the table's, and
    bytes those of the most. None: what the table says."""
    alike: bool = False
    """Do the virtual stages of a rank differ by one layer at most?"""

    def allows(self, layers: IntSplitStages) -> BoolColumn:
        """Which splits are answers; `layers` has shape (split, stage)."""
        even = layers_per_stage(self.job.model.num_hidden_layers, self.num_stages)
        return np.asarray(self.even_too | (layers != np.array(even)).any(axis=1))

    @property
    def schedule(self) -> str:
        """Its name."""
        return SCHEDULE_NAMES[int(self.table.schedule[0])]

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
        moe = self.job.model.moe_layers
        return tuple(kind for kind, there in ((DENSE, not all(moe)), (MOE, any(moe))) if there)

    @cached_property
    def ends(self) -> IntStageKinds:
        """Embedding, head and MTP modules of each stage."""
        held = np.zeros((self.num_stages, KINDS), dtype=np.int64)
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

    def of_rank(self, rank: int) -> IntColumn:
        """1 for the virtual stages of a rank."""
        here = np.zeros(self.num_stages, dtype=np.int64)
        here[self.stage_of[rank]] = 1
        return here

    def ends_of(self, rank: int) -> IntColumn:
        """Blocks of a rank that are not layers, by kind."""
        return np.asarray(self.ends[self.stage_of[rank]].sum(axis=0))

    @property
    def recomputes_all(self) -> bool:
        """Is every layer recomputed in full?"""
        return self.recomputed == self.job.model.num_hidden_layers

    def traffic(
        self, blocks: RankKinds, forward: FloatColumn, backward: FloatColumn
    ) -> FloatColumn:
        """Seconds by which the traffic of ranks outlasts their passes; `blocks` is (rank, kind).

        Source: `planner.stages.problem.traffic`.
        """
        passes = forward[:, None], backward[:, None]
        return traffic_seconds(self, self.costs, blocks, passes)[:, 0]

    @cached_property
    def table_sum(self) -> float:
        """Seconds in which a rank adds up two copies of the token table, where it has one."""
        return float(table_sum_seconds(self)[0])

    @property
    def may_hide_s(self) -> float:
        """By how much a layout that recomputes more may be faster: it hides more traffic.

        Source: a path ends with the last op of a rank. Where that is the whole backward pass of its
        one stage, the path grows by what is added to it, and that hides no more than `window` of
        itself; elsewhere the last op may be of one stage of several, or wait in any case.
        """
        whole = self.shape[1] == 1 and not SCHEDULES[self.schedule].splits_backward
        if whole and reduction_overlap(self).window[0] <= 1:
            return 0.0
        hidden = np.array([0.0, float(most_hidden(self, self.costs)[0])])
        return float(np.diff(with_overhead(self.machine, hidden))[0])

    @cached_property
    def least_seconds(self) -> tuple[RankLayers, RankLayers]:
        """Least traffic and update seconds of each rank with 0, 1, ... layers."""
        held = ends_held(self.stage_of)
        return self.tails[0, held], self.tails[1, held]

    @cached_property
    def memory_needs(self) -> Sums:
        """Bytes of every rank when it has most passes in flight, less what it may allocate.

        With several chunks also in the mean of moments that leaves least to gain by spreading
        layers over them.

        A rank without layers is not refused: its transients are others.
        """
        one = self.costs
        free_bytes = (self.memory_bytes - self.outside_bytes) / RESERVE_FACTOR * ROUNDING
        state = one.state_bytes[:, 0]
        needs, over, activations = [], [], list(self._activations())
        moments = fairest_moments(*self.pipeline[:3], self._filling)
        moments = moments[:1] if self.alike else moments
        for rank, passes in enumerate(self._in_flight):
            ends, here = self.ends_of(rank), self.of_rank(rank)[:, None]
            fixed = float(ends @ state + self.transients[rank]) - self._regrown(rank) - free_bytes
            predicting = float(
                ends[MTP] * (passes[-1] if len(passes) == 1 else 0) * one.saved_bytes[MTP, 0]
            )
            in_flight = np.zeros((len(moments), self.num_stages))
            in_flight[:, self.stage_of[rank]] = [some[rank] for some in moments]
            empty = self.may_be_empty[rank] == len(passes)
            for moment, (kept, fewer) in product(in_flight, activations):
                needs.append(here * state[list(self.kinds)] + moment[:, None] * kept)
                constant = fixed + predicting - fewer * float(passes.sum())
                over.append(min(0.0, constant) if empty else constant)
        return Sums(np.array(needs), np.array(over))

    def _regrown(self, rank: int) -> float:
        """Bytes that layers recomputed at once may lack in a split with smaller stages.

        Stages at the ends may be empty; layers on the host tell no bytes.
        """
        if not self.recomputes_all:
            return 0.0
        held = self.may_be_empty[rank] < len(self.stage_of[rank])
        groups = int(self.table.recompute_num_layers[0]) - held
        kept = float(self.costs.saved_bytes[list(self.kinds), 0].max())
        return max(0, groups) * kept if kept else float(self.transients[rank])

    @cached_property
    def may_be_empty(self) -> IntColumn:
        """Stages of each rank that may hold no layers: only the first and the last one."""
        ends = (self.stage_of == 0) | (self.stage_of == self.num_stages - 1)
        return np.asarray(ends.sum(axis=1))

    def _activations(self) -> list[tuple[FloatColumn, float]]:
        """Bytes each layer keeps of a micro batch in flight by kind, and bytes less a stage.

        Of several rows each is a lower bound. Where a rank has several stages it is fullest when it
        holds most layers, of whatever kind.
        """
        kept = self.costs.saved_bytes[list(self.kinds), 0]
        if len(self.stage_of[0]) > 1:
            kept = np.full_like(kept, kept.min())
        layer_input = float(min(self.costs.input_bytes[0], kept.min()))  # 0 where all are offloaded
        if self.recomputes_all:
            groups = max(1, int(self.table.recompute_num_layers[0]))
            return [(np.full_like(kept, layer_input / groups), 0.0)]
        if not self.recomputed:
            return [(kept, 0.0)]
        dropped = float((kept - layer_input).max())
        return [(kept, self.recomputed * dropped), (np.full_like(kept, layer_input), 0.0)]

    @property
    def _in_flight(self) -> IntRankChunks:
        """Passes of each chunk in flight on each rank when there are most."""
        return fullest_moment(*self.pipeline[:3], self._filling)

    @property
    def _filling(self) -> int:
        """Micro batches that fill the pipeline as full as it gets."""
        return min(self.num_microbatches, SCHEDULES[self.schedule].rounds_to_fill * self.shape[0])


def stage_problems(
    candidates: Candidates,
    memory_bytes: float,
    ranges: Sequence[Fractions] = (),
    *,
    alike: bool = False,
) -> list[StageProblem]:
    """The layouts of a table, one by one, each free to offload as far as its own range goes."""
    priced = price(candidates, merged=False)
    fraction = priced.table.offload_optimizer
    costs = block_costs(priced).with_room(most_within(fraction, ranges) - fraction)
    tails = least_tails(priced, costs)
    return [
        StageProblem(
            *priced.shared,
            priced.table.take(np.array([row])),
            memory_bytes,
            costs=costs.take(np.array([row])),
            num_microbatches=int(priced.microbatches[row]),
            p2p=float(priced.seconds.p2p[row]),
            transients=_transients(priced, row),
            outside_bytes=priced.memory.outside_bytes,
            tails=tails[..., row],
            offloads=range_from(float(fraction[row]), ranges),
            alike=alike,
        )
        for row in range(len(candidates.table))
    ]


def _transients(priced: Priced, row: int) -> FloatColumn:
    """Bytes that live for a moment on each rank, with the least that is in transit in any split."""
    table = priced.table
    name, pp, vpp = SCHEDULE_NAMES[table.schedule[row]], int(table.pp[row]), int(table.vpp[row])
    own = priced.memory.transients[:pp, row]
    if not table.offload_modules[row]:
        return own
    full = min(int(priced.microbatches[row]), SCHEDULES[name].rounds_to_fill * pp)
    stage_of = placed(SCHEDULES[name].placement, pp, vpp)
    passes = fullest_moment(name, pp, vpp, full)
    layers = least_in_transit(first_layers(priced.job.model), stage_of, passes)
    return own + layers * float(priced.gathered.moe.copies.freed_bytes[row])
