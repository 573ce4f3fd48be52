"""Layouts whose stages choose how many layers they recompute: rows of a `LayerAssignment`.

A choice changes the seconds of stages, the bytes of ranks and the parameters they update; all are
sums over blocks (`costmodel.block_costs`). What is no sum is bounded from below by one:

    path of the schedule      exact: the path is there for every choice (`timeline.critical_path`)
    traffic of a rank         concave in its layers: a plane below it
    activations               bytes at every moment (`planner.stages.problem.memory`)

So the value of the filling is never above the step time of a choice, and a choice that the filling
refuses does not fit.
"""

from dataclasses import dataclass

import numpy as np

from trainplan.costmodel.block_costs import EMBEDDING, HEAD
from trainplan.costmodel.columns import FloatColumn, FloatMatrix, IntColumn
from trainplan.costmodel.memory import RankParams
from trainplan.costmodel.pipeline import adds_to_a_copy, table_sum_seconds
from trainplan.costmodel.timeline import Paths
from trainplan.costmodel.traffic import gather_overlap, reduction_overlap, step_traffic
from trainplan.planner.solvers import LayerAssignment
from trainplan.planner.stages.problem.memory import Sums, needs_at_every_moment
from trainplan.planner.stages.problem.problem import GroupCosts, StageProblem
from trainplan.planner.stages.problem.traffic import mixed_layers


@dataclass(frozen=True)
class Master:
    """What every choice of a layout costs, as rows of a `LayerAssignment`."""

    problem: StageProblem
    """On equal nodes."""

    @property
    def _one(self) -> GroupCosts:
        return self.problem.parts[0]

    @property
    def ways(self) -> tuple[int, ...]:
        """The kind of layer of each way: the kinds kept whole, then the same recomputed in full."""
        return self.problem.kinds * 2

    def assignment(self, paths: Paths, least: IntColumn, most: IntColumn) -> LayerAssignment:
        """All choices with so many layers in the stages, as far as some paths tell them apart."""
        layers, fixed = self._paths(paths)
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
        needs = needs_at_every_moment(self.problem)
        return LayerAssignment(
            layers=self.problem.job.model.kind_of_layer,
            kind_of_way=self.ways,
            costs=np.concatenate([term.costs for term in terms]),
            constants=np.concatenate([term.constants for term in terms]),
            group=np.repeat(np.arange(len(terms)), [len(term.constants) for term in terms]),
            needs=needs.costs,
            capacities=-needs.constants,
            least=least,
            most=most,
        )

    def _paths(self, paths: Paths) -> tuple[FloatMatrix, FloatColumn]:
        """Length of paths: seconds a layer adds (path, stage, way), and seconds without layers."""
        one, ways = self._one.costs, list(self.ways)
        passes = (paths.forward, paths.backward, paths.weight)
        seconds = (one.forward[:, 0], one.backward[:, 0], one.weight[:, 0])
        layers = sum(c[:, :, None] * s[ways] for c, s in zip(passes, seconds, strict=True))
        layers = layers + paths.backward[:, :, None] * self._recomputed_layers
        ends = sum(
            (c @ self.problem.ends * s).sum(axis=1) for c, s in zip(passes, seconds, strict=True)
        )
        return layers, np.asarray(ends + paths.crossed @ self.problem.p2p)

    @property
    def _recomputed_layers(self) -> FloatColumn:
        """Seconds that recomputation adds to a layer of each way."""
        whole = np.zeros(len(self.problem.kinds))
        return np.concatenate(
            [whole, self._one.costs.recompute_forward[list(self.problem.kinds), 0]]
        )

    def _traffic(self, rank: int, least: IntColumn, most: IntColumn) -> Sums:
        """Lower bounds of the seconds by which a rank's traffic outlasts its passes.

        Source: as `traffic.data_parallel.step_traffic_seconds`: each part is the larger of two,
        and the sum of two maxima is the largest sum of a pair.
        """
        raw = self._raw_traffic(rank, least, most)
        one = self._one.costs
        passes = one.backward[:, 0], one.forward[:, 0]
        recompute_forward = (self._recomputed_layers, np.zeros(1))
        overlap = reduction_overlap(self._one), gather_overlap(self._one)
        parts = []
        for plane, seconds, own, hides in zip(raw, passes, recompute_forward, overlap, strict=True):
            slope, start = np.resize(plane[0], len(self.ways)), plane[1]
            always, window = float(hides.least[0]), float(hides.window[0])
            parts.append([(always * slope, always * start)])
            if always >= 1:
                continue
            hidden = window * float(self.problem.ends_of(rank) @ seconds)
            parts[-1].append((slope - window * (seconds[list(self.ways)] + own), start - hidden))
        ends = self.problem.ends_of(rank)
        copied = float(adds_to_a_copy(ends[EMBEDDING], ends[HEAD]))
        fixed = copied * float(table_sum_seconds(self._one)[0])
        sums = [(a + c, b + d + fixed) for a, b in parts[0] for c, d in parts[1]]
        here = self.problem.of_rank(rank)[:, None]
        return Sums(np.array([here * slope for slope, _ in sums]), np.array([c for _, c in sums]))

    def _raw_traffic(
        self, rank: int, least: IntColumn, most: IntColumn
    ) -> tuple[tuple[FloatColumn, float], tuple[FloatColumn, float]]:
        """Planes below the reduction and the gather of a rank: seconds a layer adds, and a start.

        Source: derived; the plane through the extreme layers, lowered to lie below all of them.
        """
        here = self.problem.stage_of[rank]
        model, costs = self.problem.job.model, self._one.costs
        counts = mixed_layers(model, int(least[here].sum()), int(most[here].sum()))
        if counts.shape[1] < len(model.kinds):
            costs = costs.with_one_kind(states=np.min, passes=np.max)
        ends = self.problem.ends_of(rank)[EMBEDDING:]
        blocks = np.concatenate([counts, np.tile(ends, (len(counts), 1))], axis=1)
        params = costs.params
        expert = blocks @ params.expert if params.has_experts else np.zeros((len(blocks), 1))
        held = RankParams(blocks @ params.shared, expert, params.has_experts)
        found = step_traffic(self._one, held)
        shape = held.shared.shape
        reduce, gather = (np.broadcast_to(x, shape)[:, 0] for x in (found.reduce, found.gather))
        return _plane_below(counts, reduce), _plane_below(counts, gather)

    def _update(self) -> tuple[Sums, ...]:
        """Optimizer step of every rank, and what offloading it adds."""
        ranks = range(self.problem.shape[0])
        here = np.array([self.problem.of_rank(rank) for rank in ranks])
        ends = np.array([self.problem.ends_of(rank) for rank in ranks])
        seconds = (self._one.costs.optimizer[:, 0], self._one.costs.offload[:, 0])
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
        layers = max(1, int(counts[last, way] - counts[first, way]))
        slope[way] = max(0.0, float(seconds[last] - seconds[first]) / layers)
    return slope, float((seconds - counts @ slope).min())
