"""One layout, its layers not yet split: what every split costs, as rows of a `LayerAssignment`.

A split changes the seconds of stages, the bytes of ranks and the parameters they update; all are
sums over blocks (`costmodel.step.block_costs`). What is no sum is bounded from below by one:

    path of the schedule      exact: the path is there for every split (`timeline.critical_path`)
    traffic of a rank         concave in its layers: a plane below it
    block recomputation       min(N, n) layers of a stage: the chord below it
    activations               bytes at the moment with most passes in flight

Where every stage has its own number of recomputed layers, those are a way of their own: no chord,
and bytes at every moment (`planner.stages.problem.memory`).

So the value of the filling is never above the step time of a split, and a split that the filling
refuses does not fit.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trainplan.costmodel.layouts import FloatColumn, IntColumn
from trainplan.costmodel.memory.states import RankParams
from trainplan.costmodel.pipeline.bound import adds_to_a_copy
from trainplan.costmodel.schedules.program import FloatMatrix
from trainplan.costmodel.schedules.timeline.critical_path import Paths
from trainplan.costmodel.step.block_costs import DENSE, EMBEDDING, HEAD, KINDS, MOE
from trainplan.costmodel.traffic.data_parallel import (
    gather_overlap,
    reduction_overlap,
    step_traffic,
)
from trainplan.planner.solvers.layers.assignment import LayerAssignment
from trainplan.planner.stages.problem.chunks import chord_of_min
from trainplan.planner.stages.problem.memory import needs_at_every_moment
from trainplan.planner.stages.problem.problem import StageProblem, Sums


@dataclass(frozen=True)
class Master:
    """What every split of a layout costs, as rows of a `LayerAssignment`."""

    problem: StageProblem
    by_stage: bool = False
    """Has every stage its own number of recomputed layers? Ways are the kinds of layer kept whole,
    then the same recomputed in full; else the kinds alone."""

    @property
    def ways(self) -> tuple[int, ...]:
        """The kind of layer of each way."""
        return self.problem.kinds * (2 if self.by_stage else 1)

    def assignment(self, paths: Paths, least: IntColumn, most: IntColumn) -> LayerAssignment:
        """All splits with so many layers in the stages, as far as some paths tell them apart."""
        layers, fixed = self._paths(paths, least, most)
        traffic = [self._traffic(rank, least, most) for rank in range(self.problem.shape[0])]
        behind = [traffic[rank] for rank in paths.rank.tolist()]
        terms = [
            Sums(
                np.concatenate(
                    [one + more.costs for one, more in zip(layers, behind, strict=True)]
                ),
                np.concatenate(
                    [at + more.constants for at, more in zip(fixed, behind, strict=True)]
                ),
            ),
            *self._update(),
        ]
        needs = needs_at_every_moment(self.problem) if self.by_stage else self.problem.memory_needs
        return LayerAssignment(
            layers=tuple(MOE if moe else DENSE for moe in self.problem.job.model.moe_layers),
            kind_of_way=self.ways,
            costs=np.concatenate([term.costs for term in terms]),
            constants=np.concatenate([term.constants for term in terms]),
            group=np.repeat(np.arange(len(terms)), [len(term.constants) for term in terms]),
            needs=needs.costs,
            capacities=-needs.constants,
            least=least,
            most=most,
        )

    def _paths(
        self, paths: Paths, least: IntColumn, most: IntColumn
    ) -> tuple[FloatMatrix, FloatColumn]:
        """Length of paths: seconds a layer adds (path, stage, way), and seconds without layers."""
        one, ways = self.problem.costs, list(self.ways)
        repeated, start = self._repeated(least, most)
        passes = (paths.forward, paths.backward, paths.weight)
        seconds = (one.forward[:, 0], one.backward[:, 0], one.weight[:, 0])
        layers = sum(c[:, :, None] * s[ways] for c, s in zip(passes, seconds, strict=True))
        layers = layers + paths.backward[:, :, None] * repeated
        ends = sum(
            (c @ self.problem.ends * s).sum(axis=1) for c, s in zip(passes, seconds, strict=True)
        )
        hops = paths.hops * self.problem.p2p
        return layers, np.asarray(ends + hops + (paths.backward * start).sum(axis=1))

    def _repeated(self, least: IntColumn, most: IntColumn) -> tuple[FloatMatrix, FloatColumn]:
        """Seconds of a backward pass that each layer adds by recomputation, and the start of each.

        Shapes (stage, way) and (stage,).
        """
        recompute_forward = self.problem.costs.recompute_forward[:, 0]
        if self.by_stage:
            nothing = np.zeros(self.problem.num_stages)
            return nothing[:, None] + self._recomputed_layers, nothing
        cheapest = recompute_forward[list(self.problem.kinds)].min()
        number = np.array(self.problem.recomputed)
        slope, start = chord_of_min(number, least, most.astype(np.float64))
        return np.repeat((slope * cheapest)[:, None], len(self.ways), axis=1), start * cheapest

    @property
    def _recomputed_layers(self) -> FloatColumn:
        """Seconds that recomputation adds to a layer of each way, where stages choose."""
        whole = np.zeros(len(self.problem.kinds))
        return np.concatenate(
            [whole, self.problem.costs.recompute_forward[list(self.problem.kinds), 0]]
        )

    def _traffic(self, rank: int, least: IntColumn, most: IntColumn) -> Sums:
        """Lower bounds of the seconds by which a rank's traffic outlasts its passes.

        Source: as `traffic.data_parallel.step_traffic_seconds`: each part is the larger of two,
        and the sum of two maxima is the largest sum of a pair.
        """
        raw = self._raw_traffic(rank, least, most)
        one = self.problem.costs
        alike = self.problem.recomputes_all and not self.by_stage
        passes = one.backward[:, 0] + alike * one.recompute_forward[:, 0], one.forward[:, 0]
        recompute_forward = (self._recomputed_layers if self.by_stage else np.zeros(1), np.zeros(1))
        partly = (self._partly * one.recompute_forward[list(self.problem.kinds), 0].max(), 0.0)
        overlap = reduction_overlap(self.problem), gather_overlap(self.problem)
        parts = []
        for plane, seconds, own, more, hides in zip(
            raw, passes, recompute_forward, partly, overlap, strict=True
        ):
            slope, start = np.resize(plane[0], len(self.ways)), plane[1]
            always, window = float(hides.least[0]), float(hides.window[0])
            parts.append([(always * slope, always * start)])
            if always >= 1:
                continue
            beside = window * (
                float(self.problem.ends_of(rank) @ seconds) + more * len(self.problem.stage_of[0])
            )
            parts[-1].append((slope - window * (seconds[list(self.ways)] + own), start - beside))
        ends = self.problem.ends_of(rank)
        fixed = float(adds_to_a_copy(ends[EMBEDDING], ends[HEAD])) * self.problem.table_sum
        sums = [(a + c, b + d + fixed) for a, b in parts[0] for c, d in parts[1]]
        here = self.problem.of_rank(rank)[:, None]
        return Sums(np.array([here * slope for slope, _ in sums]), np.array([c for _, c in sums]))

    @property
    def _partly(self) -> int:
        """Layers of every stage recomputed in full, where not all are and stages are alike."""
        return 0 if self.problem.recomputes_all or self.by_stage else self.problem.recomputed

    def _raw_traffic(
        self, rank: int, least: IntColumn, most: IntColumn
    ) -> tuple[tuple[FloatColumn, float], tuple[FloatColumn, float]]:
        """Planes below the reduction and the gather of a rank: seconds a layer adds, and a start.

        Source: derived; the plane through the extreme layers, lowered to lie below all of them.
        """
        here = self.problem.stage_of[rank]
        counts = self._mixtures(int(least[here].sum()), int(most[here].sum()))
        blocks = np.zeros((len(counts), KINDS))
        blocks[:, list(self.problem.kinds)] = counts
        blocks += self.problem.ends_of(rank)
        params = self.problem.costs.params
        expert = blocks @ params.expert if params.has_experts else np.zeros((len(blocks), 1))
        held = RankParams(blocks @ params.shared, expert, params.has_experts)
        found = step_traffic(self.problem, held)
        shape = held.shared.shape
        reduce, gather = (np.broadcast_to(x, shape)[:, 0] for x in (found.reduce, found.gather))
        return _plane_below(counts, reduce), _plane_below(counts, gather)

    def _mixtures(self, least: int, most: int) -> IntColumn:
        """Layers by kind that a rank may hold; shape (mixture, way)."""
        if len(self.problem.kinds) == 1:
            return np.arange(least, most + 1)[:, None]
        dense = min(most, self.problem.job.model.num_dense_layers)
        pairs = [
            (d, total - d) for d in range(dense + 1) for total in range(max(d, least), most + 1)
        ]
        return np.array(pairs)

    def _update(self) -> tuple[Sums, ...]:
        """Optimizer step of every rank, and what offloading it adds."""
        ranks = range(self.problem.shape[0])
        here = np.array([self.problem.of_rank(rank) for rank in ranks])
        ends = np.array([self.problem.ends_of(rank) for rank in ranks])
        seconds = (self.problem.costs.optimizer[:, 0], self.problem.costs.offload[:, 0])
        return tuple(
            Sums(here[:, :, None] * one[list(self.ways)], ends @ one)
            for one in seconds
            if one.any()
        )


def _plane_below(counts: IntColumn, seconds: FloatColumn) -> tuple[FloatColumn, float]:
    """A plane below values at some points; through those with least and most of every kind."""
    slope = np.zeros(counts.shape[1])
    for way in range(counts.shape[1]):
        alone = counts[:, way] == counts.sum(axis=1)
        some = np.flatnonzero(alone)
        if not len(some):
            continue
        first, last = some[0], some[-1]
        apart = max(1, int(counts[last, way] - counts[first, way]))
        slope[way] = max(0.0, float(seconds[last] - seconds[first]) / apart)
    return slope, float((seconds - counts @ slope).min())
