"""Layouts whose stages recompute numbers of layers of their own, before those are chosen.

The layers are split evenly. A rank that would not fit has to recompute some of its layers, and the
layout that recomputes no more than that is a lower bound of all that fit.
"""

from dataclasses import dataclass

import numpy as np

from trainplan.costmodel.block_costs import BlockCosts, block_costs, layer_counts
from trainplan.costmodel.candidates import Context
from trainplan.costmodel.columns import BoolColumn, FloatColumn, IntColumn, IntMatrix, objects
from trainplan.costmodel.layout import SCHEDULE_NAMES, StageSpec
from trainplan.costmodel.layouts import LayoutTable, layers_per_stage
from trainplan.costmodel.memory import RESERVE_FACTOR
from trainplan.costmodel.program import placed
from trainplan.costmodel.schedules import SCHEDULES, held_passes
from trainplan.costmodel.step import Priced, price
from trainplan.planner.policies import Fractions, most_within, with_fraction
from trainplan.planner.stages.problem.memory import that_matter

NEVER = -1
"""Layers to recompute where not even all of them are enough."""


def stages_with(layers: IntColumn, again: IntColumn) -> tuple[StageSpec, ...]:
    """Stages with so many layers, the first so many of each recomputed."""
    return tuple(
        StageSpec(layers=held, recompute_num_layers=number)
        for held, number in zip(layers.tolist(), again.tolist(), strict=True)
    )


@dataclass(frozen=True, slots=True)
class Refined:
    """What is known of layouts from the bytes their ranks lack."""

    bound: FloatColumn
    """Seconds that no choice that fits goes below; infinite where none fits."""
    rows: IntColumn
    """Layouts that may fit."""
    min_memory: LayoutTable
    """Those, with a choice of few layers that may fit."""


@dataclass(frozen=True)
class EvenLayouts(Context):
    """Layouts of one job with even stages and full recomputation of some layers of each."""

    memory_bytes: float
    """Device memory that a rank may use."""
    ranges: tuple[Fractions, ...] = ()
    """Of the optimizer: a layout may offload more than its table says, as far as its range goes."""

    def refined(self, table: LayoutTable) -> Refined:
        """What every layout has to recompute, and what follows.

        Source: derived; what each rank has to recompute at least, in the stages through which the
        way to other ranks is not longer. With two kinds of layer the dearer one may be spared, so
        nothing is counted.
        """
        nothing = table.replaced(recompute_num_layers=np.zeros(len(table), dtype=np.int64))
        priced = price(self.with_table(nothing), merged=False)
        costs = block_costs(priced)
        away = most_within(table.offload_optimizer, self.ranges)
        roomy = price(self.with_table(with_fraction(nothing, away)), merged=False)
        fewest = [self._fewest(roomy, costs, row) for row in range(len(table))]
        rows = np.array([row for row, again in enumerate(fewest) if NEVER not in again], np.int64)
        bound = np.full(len(table), np.inf)
        bound[rows] = priced.step_seconds[rows]
        min_memory = table.take(rows)
        if len(rows) and len(layer_counts(self.job.model.kind_of_layer)) == 1:
            stages = [self._again(priced, row, fewest[row], last=True) for row in rows.tolist()]
            least = min_memory.replaced(stages=objects(stages))
            bound[rows] = price(self.with_table(least)).step_seconds
        stages = [self._again(priced, row, fewest[row], last=False) for row in rows.tolist()]
        return Refined(bound, rows, min_memory.replaced(stages=objects(stages)))

    def even(self, pp: int, vpp: int) -> IntColumn:
        """Layers of every virtual stage."""
        return np.array(layers_per_stage(self.job.model.num_hidden_layers, pp * vpp))

    def may_fit(self, table: LayoutTable) -> BoolColumn:
        """Which layouts fit with all layers recomputed: no other choice needs less."""
        everything = np.full(len(table), self.job.model.num_hidden_layers)
        whole = table.replaced(recompute_num_layers=everything)
        away = most_within(table.offload_optimizer, self.ranges)
        priced = price(self.with_table(with_fraction(whole, away)))
        return np.asarray(priced.memory.used <= self.memory_bytes)

    def _fewest(self, priced: Priced, costs: BlockCosts, row: int) -> IntColumn:
        """Layers each rank has to recompute at least.

        A layer saves what it keeps beyond its input, for each pass in flight; those of the chunks
        with most passes save most.

        Source: bytes beyond the room must be saved by layers; taken first where a layer saves most,
        the number that suffices is the fewest, at the moment the estimate of memory is of.
        """
        allocated = priced.memory.allocated[:, row]
        capacity = (self.memory_bytes - priced.memory.outside_bytes[row]) / RESERVE_FACTOR
        kinds = [kind for kind, _ in layer_counts(self.job.model.kind_of_layer)]
        saved = float((costs.saved_bytes[kinds, row] - costs.input_bytes[row]).max())
        layers, passes = self._chunks(priced, row)
        over = allocated[: len(layers)] - capacity * (1 + ROUNDING)
        return np.array(
            [
                _count(missing, saved * np.repeat(own, held))
                for missing, own, held in zip(over.tolist(), passes, layers, strict=True)
            ]
        )

    def _chunks(self, priced: Priced, row: int) -> tuple[IntMatrix, FloatColumn]:
        """Layers of each chunk of each rank, and its passes in flight when the rank is fullest."""
        table = priced.table
        pp, vpp = int(table.pp[row]), int(table.vpp[row])
        name = priced.schedule_of(row)
        layers = self.even(pp, vpp)[placed(SCHEDULES[name].placement, pp, vpp)]
        microbatches = that_matter(name, pp, vpp, int(priced.microbatches[row]))
        return layers, held_passes(name, microbatches, layers)

    def _again(
        self, priced: Priced, row: int, fewest: IntColumn, *, last: bool
    ) -> tuple[StageSpec, ...]:
        """Each rank recomputes what it has to: in its last chunks, or where most passes are."""
        table = priced.table
        pp, vpp = int(table.pp[row]), int(table.vpp[row])
        layers, (_, passes) = self.even(pp, vpp), self._chunks(priced, row)
        stage_of = placed(SCHEDULES[SCHEDULE_NAMES[table.schedule[row]]].placement, pp, vpp)
        again = np.zeros_like(layers)
        for own, held, left in zip(stage_of, passes, fewest.tolist(), strict=True):
            order = np.arange(vpp)[::-1] if last else np.argsort(-held, kind="stable")
            capacity = layers[own[order]]
            before = np.cumsum(capacity) - capacity
            again[own[order]] = np.clip(left - before, 0, capacity)
        return stages_with(layers, again)


ROUNDING = 1e-12
"""Share of a sum of bytes that rounding may add."""


def _count(missing: float, saved: FloatColumn) -> int:
    """How many of some savings make up for what is missing; `NEVER` where all do not."""
    if missing <= 0:
        return 0
    sums = np.cumsum(np.sort(saved)[::-1])
    enough = np.flatnonzero(sums >= missing)
    return int(enough[0]) + 1 if len(enough) else NEVER
