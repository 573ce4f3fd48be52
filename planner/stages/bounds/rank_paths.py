"""A bound from the paths that stay on one rank, where ranks have room for few layers.

The mean path of `stages.bounds.shapes` crosses all ranks alike, so it does not feel where layers
cannot lie. A path that stays on a rank does: what that rank cannot hold makes another one slower.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from trainplan.costmodel.block_costs import EMBEDDING, HEAD, MTP, layer_counts
from trainplan.costmodel.columns import (
    FloatColumn,
    IntColumn,
    IntMatrix,
    IntRankChunks,
    KindRankRows,
    RankRows,
)
from trainplan.costmodel.timeline import Paths
from trainplan.planner.stages.bounds.layer_capacity import Layers
from trainplan.planner.stages.bounds.mean_paths import Crossings
from trainplan.planner.stages.bounds.priced_groups import PricedGroups
from trainplan.planner.stages.columns import PathRows, PathStageRows, PathStages, StageRows
from trainplan.planner.stages.problem.chunks import (
    longest_chunks,
    recomputed_least,
    recomputed_line,
)


@dataclass(frozen=True)
class RankPaths:
    """Some layouts of one pipeline shape, and for every rank the path that stays there longest."""

    of: PricedGroups
    """On equal nodes."""
    rows: IntColumn
    paths: Paths
    """Paths of the shape; one for each rank is taken."""
    stage_of: IntRankChunks
    """Virtual stage of each (rank, chunk)."""
    most: KindRankRows
    """Layers of each kind that every rank has room for."""
    alike: bool = False
    """Do the virtual stages of a rank differ by one layer at most?"""

    @cached_property
    def seconds(self) -> FloatColumn:
        """Length at least of the longest path, the layers where all ranks have room for them.

        Source: derived; on a path every layer takes at least what it takes where it takes least.
        One layer of each stage takes what it takes there. Those on the rank where the path stays
        take more: the ranks are filled in the order of what the next layer makes of their paths.
        """
        slope, start = self._line
        elsewhere = self._busiest.backward.copy()
        np.put_along_axis(elsewhere, self.stage_of, 0, axis=1)
        repeated = self._busiest.backward[:, :, None] * slope * self._recomputed_layers
        fixed, beyond, longer = self._ends + elsewhere @ start * self._recomputed_layers, [], []
        for layers in self._kinds:
            each = self._each(layers.kind)
            own = np.take_along_axis(each, self.stage_of[:, :, None], axis=1).min(axis=1)
            least = np.minimum((each + repeated).min(axis=1), own)
            fixed = fixed + layers.count * least
            beyond.append(own - least)
            longer.append(each + repeated - least[:, None])
        fixed = fixed + np.einsum("psr,ps->pr", np.min(longer, axis=0), self._held_elsewhere)
        found = [
            self._filled(fixed, more, most, layers.count)
            for more, most, layers in zip(beyond, self.most, self._kinds, strict=True)
        ]
        return np.asarray(np.max(found, axis=0))

    def _filled(
        self, fixed: RankRows, more: RankRows, most: FloatColumn, count: int
    ) -> FloatColumn:
        """The smallest T with room for so many layers on ranks whose paths take T(n) with n.

        Matrices have shape (rank, row); infinite where there is not room enough.

        Source: a rank has room for n layers where T(n) <= T, and T(n) grows with n; so of all T(n)
        in order the `count`-th is the smallest that makes room for so many.
        """
        number = np.arange(1, int(most.max(initial=0)) + 1)[None, :, None]
        ends = fixed[:, None] + number * more[:, None] + self._repeats(number)
        ends = np.where(number <= most[:, None], ends, np.inf).reshape(-1, len(self.rows))
        if len(ends) < count:
            return np.full(len(self.rows), np.inf)
        last = np.partition(ends, count - 1, axis=0)[count - 1]
        return np.asarray(np.maximum(last, fixed.max(axis=0)))

    @cached_property
    def _busiest(self) -> Paths:
        """The path that crosses each rank most.

        Source: every path bounds the step, so any choice is valid; the one that crosses its rank
        most grows most with the rank's layers.
        """
        crossed = (self.paths.forward + 2 * self.paths.backward)[:, self.stage_of].sum(axis=2)
        return self.paths.take(np.argmax(crossed, axis=0))

    @cached_property
    def _held_elsewhere(self) -> PathStages:
        """Layers that each stage off the path's own rank holds at least.

        Source: as in `shape_bounds`: of a split that is tried, only the first and the last stage
        may be empty, so every other one holds a layer at least.
        """
        held = np.ones((len(self.stage_of), self.stage_of.size))
        held[:, [0, -1]] = 0
        np.put_along_axis(held, self.stage_of, 0, axis=1)
        return held

    @cached_property
    def _kinds(self) -> list[Layers]:
        kinds = self.of.kinds
        return [Layers.of(kinds, kind) for kind, _ in layer_counts(kinds)]

    @cached_property
    def _recomputed_layers(self) -> FloatColumn:
        """Seconds of recomputing one layer, of whatever kind.

        Source: which kinds are recomputed is not known here, and none takes less than the kind that
        takes least.
        """
        kinds = [one.kind for one in self._kinds]
        return np.asarray(self.of.costs[0].recompute_forward[kinds][:, self.rows].min(axis=0))

    @cached_property
    def _recomputed(self) -> IntColumn:
        return self.of.recomputed_layers(self.rows)

    @cached_property
    def _line(self) -> tuple[StageRows, StageRows]:
        """As `recomputed_line`, of stages as long as their ranks have room for."""
        if not self._recomputed.any():
            nothing = np.zeros((self.stage_of.size, 1))
            return nothing, nothing
        held = []
        for layers, most in zip(self._kinds, self.most, strict=True):
            may = (self.stage_of <= layers.others).any(axis=1) | (not layers.others_first)
            held.append(most + np.where(may, layers.others, 0)[:, None])
        longest = np.empty((self.stage_of.size, len(self.rows)))
        longest[self.stage_of] = np.min(held, axis=0)[:, None]
        longest = longest_chunks(self.stage_of, longest, alike=self.alike)
        return recomputed_line(self._recomputed, longest)

    def _repeats(self, number: IntMatrix) -> FloatColumn:
        """Seconds of recomputation with so many layers on each rank's own path.

        Of shape (rank, number, row).

        Source: `recomputed_least`, where the path crosses least.
        """
        repeated = recomputed_least(self._recomputed, self.stage_of, number, alike=self.alike)
        crossed = np.take_along_axis(self._busiest.backward, self.stage_of, axis=1).min(axis=1)
        return np.asarray(crossed[:, None, None] * repeated * self._recomputed_layers)

    @cached_property
    def _ends(self) -> PathRows:
        """Seconds of embedding, head, more heads and messages.

        Source: embedding, head and MTP modules are on the first and the last stage in every split,
        and a path waits for one message on each of its hops.
        """
        modules = self.of.job.model.num_nextn_predict_layers
        ends = ((EMBEDDING, 0, 1), (HEAD, -1, 1), (MTP, -1, modules))
        parts = [count * self._each(kind)[:, stage] for kind, stage, count in ends]
        sent = self._busiest.hops[:, None] * self.of.priced[0].seconds.p2p[self.rows]
        return np.asarray(np.sum(parts, axis=0) + sent)

    def _each(self, kind: int) -> PathStageRows:
        """Seconds of one block on each stage of the paths."""
        return self._crossings.of_block(self.of.costs[0], kind, self.rows)

    @cached_property
    def _crossings(self) -> Crossings:
        paths = self._busiest
        forward, backward, weight = (
            part[:, :, None].astype(np.float64)
            for part in (paths.forward, paths.backward, paths.weight)
        )
        crossed = paths.crossed.astype(np.float64)
        return Crossings(forward, backward, weight, crossed, self.stage_of)
