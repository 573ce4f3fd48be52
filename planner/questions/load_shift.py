"""Step time and memory of the fullest expert rank by step: of counts of steps, or of chance."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from statistics import NormalDist

import numpy as np

from trainplan.costmodel.calibration import NOTHING, Measured, machine_for
from trainplan.costmodel.columns import FloatColumn, IntMatrix
from trainplan.costmodel.comm import group
from trainplan.costmodel.job import Job, RoutingSpec
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.layouts import LayoutTable, num_microbatches, stage_layers
from trainplan.costmodel.memory import RESERVE_FACTOR
from trainplan.costmodel.program import placed
from trainplan.costmodel.routing import (
    Counts,
    FullLayer,
    LoadShift,
    Placement,
    StepLoad,
    largest_below,
    load,
    local_tokens,
    moments_of_maximum,
    placement_of,
    step_rows,
)
from trainplan.costmodel.schedules import SCHEDULES, held_passes
from trainplan.costmodel.step import Estimate
from trainplan.planner.questions.estimation import estimate as bounded
from trainplan.planner.space import MEMORY

LEVELS = (50.0, 90.0, 99.0)
"""Percentiles of steps; the last decides whether a layout fits."""
WORST = 100.0
SHOWN_LAYERS = 3
TWICE = 2.0
"""A load to price for the slope of the activations, which are linear in the rows that are kept."""


def load_shift(
    job: Job, layout: Layout, priced: Estimate, measured: Measured = NOTHING
) -> LoadShift | None:
    """Percentiles of the steps of a layout; null where ranks have the same rows in every step.

    Of so many counted steps one of a hundred is known from a hundred on. Fewer show that a layout
    does not fit if one of them does not, and nothing else. A sum of all steps, or of one, shows
    that if chance alone is too much.
    """
    routing = job.options.routing
    if routing is None or not job.rows_shift or layout.ep == 1:
        return None
    steps, known = _Steps(job, layout, priced, measured), len(routing.steps)
    levels = [level for level in LEVELS if not known or known * (100 - level) >= 100]
    points = [steps.at(level) for level in (*levels, *([WORST] if known else ()))]
    decides = LEVELS[-1] in levels
    fits = points[levels.index(LEVELS[-1]) if decides else -1].fits
    is_known = decides and (known > 0 or routing.kind != "measured")
    return LoadShift(
        routing=str(routing),
        steps=known,
        percentiles=tuple(points),
        capacity_bytes=priced.memory.capacity_bytes,
        fits=None if fits and not is_known else fits,
        fullest=tuple(steps.fullest()) if routing.kind != "random" else (),
    )


def estimate(
    job: Job, layout: Layout, measured: Measured = NOTHING, *, memory_margin: float = 0.0
) -> Estimate:
    """Price one layout.

    Where experts fill differently by step, its memory is an upper bound: one rank is taken as
    fullest in all layers. If that is above the GPU, `memory.fits` is what `load_shift` knows.

    Raises:
        SpecError: The layout breaks a rule; the message names the rule and its fix.
    """
    priced = bounded(job, layout, measured, memory_margin=memory_margin)
    if not job.rows_shift or priced.memory.fits:
        return priced
    memory, node = priced.memory, priced.memory.host
    shift = load_shift(job, layout, priced, measured)
    if shift is None or not (node.host_fits and node.drive_fits):
        return priced
    usable = (1 - memory_margin) * memory.capacity_bytes
    fits = shift.fits if shift.decides.memory_bytes <= usable else False
    chance = memory.fit_chance if fits is False else None
    return replace(priced, memory=replace(memory, fits=fits, fit_chance=chance))


def excluded_notes(job: Job, refused: Mapping[str, int]) -> Iterator[str]:
    """That a search excluded layouts by an upper bound of their memory."""
    count = refused.get(MEMORY, 0)
    if count and job.rows_shift:
        yield (
            f"not known whether a faster layout fits: {count:,} were excluded by an upper bound of "
            f"memory (routing={job.options.routing}: one rank is taken as fullest in all layers); "
            "`plan estimate` has the steps of one"
        )


@dataclass(frozen=True)
class _Steps:
    job: Job
    layout: Layout
    priced: Estimate
    measured: Measured
    known: dict[float, Estimate] = field(default_factory=dict)
    """Prices by load."""

    @property
    def routing(self) -> RoutingSpec:
        assert self.job.options.routing is not None
        return self.job.options.routing

    @cached_property
    def rows(self) -> Counts:
        """Of a micro batch, over those of a balanced rank."""
        return step_rows(
            self.job, etp=self.layout.etp, tokens=self.tokens, placement=self.placement
        )

    @cached_property
    def tokens(self) -> float:
        """That a rank routes in a micro batch."""
        return float(local_tokens(self.job, LayoutTable.of([self.layout]))[0])

    @cached_property
    def placement(self) -> Placement:
        """Of the experts on the ranks, by the counts of all steps."""
        ep, etp = (np.array([x]) for x in (self.layout.ep, self.layout.etp))
        links = group(machine_for(self.job, self.measured), ep, etp)
        return placement_of(self.job, ep=self.layout.ep, nodes=int(links.nodes[0]))

    @property
    def microbatches(self) -> int:
        return num_microbatches(self.job, self.layout)

    @property
    def replicas(self) -> float:
        """Expert groups of a pipeline stage."""
        one = self.layout
        return one.tp * one.cp * one.dp / (one.ep * one.etp)

    def at(self, level: float) -> StepLoad:
        """The step at a percentile."""
        memory, capacity = self._memory(level), self.priced.memory.capacity_bytes
        return StepLoad(
            percentile=level,
            step_time_s=self._seconds(level),
            memory_bytes=memory,
            fits=memory <= capacity,
        )

    def fullest(self) -> Iterator[FullLayer]:
        """Ranks with most rows, the mean over steps; modules that predict more are last layers."""
        means, model = self.rows.means.mean(axis=0), self.job.model
        experts = np.flatnonzero([*model.moe_layers, *[True] * model.num_nextn_predict_layers])
        for place in np.argsort(-means, axis=None, kind="stable")[:SHOWN_LAYERS]:
            line, rank = np.unravel_index(place, means.shape)
            layer = int(experts[line]) if len(means) > 1 else None
            yield FullLayer(layer=layer, rank=int(rank), load=float(means[line, rank]))

    def _with(self, routing: RoutingSpec) -> Job:
        options = self.job.options.model_copy(update={"routing": routing})
        return self.job.model_copy(update={"options": options})

    def _price(self, job: Job) -> Estimate:
        return bounded(job, self.layout, self.measured)

    def _under(self, load: float) -> Estimate:
        """The price with so full a rank in every layer."""
        if load not in self.known:
            self.known[load] = self._price(
                self._with(RoutingSpec(kind="load", fullest=max(1.0, load)))
            )
        return self.known[load]

    def _seconds(self, level: float) -> float:
        """Of the step that so many of a hundred do not exceed.

        Counted steps are in the order of their fullest ranks; chance within one averages out over
        its layers and micro batches. Without any, a step waits for the slowest of its replicas,
        each of which has a mean of many maxima: a normal variable.

        Source: derived; the mean of n maxima of variance v has v / n, and by the central limit
        theorem is a normal variable; the slowest of m is below x with the m-th power.
        """
        counts, rows = self.routing.steps, self.rows
        if counts:
            order = np.argsort(rows.means.max(axis=2).mean(axis=1), kind="stable")
            step = int(order[int(np.ceil(level / 100 * len(counts))) - 1])
            one = {"tokens_per_expert": counts[step], "steps": ()}
            job = self._with(self.routing.model_copy(update=one))
            if self.job.options.permutes_experts:
                return self._slower(self._fullest(job), self._fullest(self.job))
            return self._price(job).step_time_s
        found = [
            moments_of_maximum(*one)
            for one in zip(rows.means[0], rows.variances[0], rows.thirds[0], strict=True)
        ]
        variance = float(np.mean([one for _, one in found]))
        waits = self.microbatches * self.job.model.num_moe_layers / self.layout.pp
        score = NormalDist().inv_cdf((level / 100) ** (1 / self.replicas))
        mean = float(np.mean([one for one, _ in found]))
        return self._slower(mean + score * (variance / waits) ** 0.5, mean)

    def _fullest(self, job: Job) -> float:
        """Load of the fullest rank where experts lie as for all steps."""
        one = self.layout
        found = load(job, ep=one.ep, etp=one.etp, tokens=self.tokens, placement=self.placement)
        assert found is not None
        return found.fullest

    def _slower(self, fullest: float, usual: float) -> float:
        """Seconds of a step with so full a rank, where the priced one has the usual load."""
        more = self._under(fullest).step_time_s - self._under(usual).step_time_s
        return self.priced.step_time_s + more

    def _memory(self, level: float) -> float:
        """What the fullest rank of a step takes, in so many steps of a hundred at most.

        Every rank keeps rows of its layers for the passes in flight, whose loads add up; gradients
        of one layer are those of the fullest of all layers and micro batches.

        Source: derived; `largest_below` of bytes that are linear in the rows a rank keeps, of all
        ranks, replicas and windows of micro batches.
        """
        peak = self._under(self._moment(level))
        if self._keeps_one_layer:
            return peak.memory.peak_reserved_bytes
        held, rows = self._held(), self.rows
        passes = np.maximum(held.sum(axis=1), 1.0)[:, None]
        share = held / passes
        kept, rest = self._bytes(peak)
        bytes_of = Counts(
            rest + kept * (share @ rows.means),
            kept**2 * (share @ rows.variances) / passes,
            kept**3 * (share @ rows.thirds) / passes**2,
        )
        windows = np.maximum(1.0, self.microbatches / self._passes().max(axis=1))
        return largest_below(
            bytes_of, self.replicas * windows[:, None], level, every=level == WORST
        )

    def _bytes(self, peak: Estimate) -> tuple[FloatColumn, FloatColumn]:
        """Bytes of each pipeline rank for a load of 1 of what it keeps, and all others; (rank, 1).

        Gradients of a layer are those of `peak`.

        Source: derived; what a rank needs is `RESERVE_FACTOR` times all it allocates, and
        activations grow in proportion to the rows, so two loads give the slope and the rest.
        """

        def column(priced: Estimate, name: str) -> FloatColumn:
            return np.array([[getattr(one, name)] for one in priced.memory.pipeline_ranks])

        one, two = self._under(1.0), self._under(TWICE)
        rises, gradients = (
            RESERVE_FACTOR * (column(more, name) - column(one, name))
            for more, name in ((two, "activations_bytes"), (peak, "transients_bytes"))
        )
        return rises, column(one, "total_bytes") + gradients - rises

    @property
    def _keeps_one_layer(self) -> bool:
        """Are rows of experts made anew, for one layer at a time?"""
        whole = self.layout.recompute == "full" and self.layout.recompute_method != "block"
        return whole or "moe" in self.layout.recompute_modules

    def _moment(self, level: float) -> float:
        """Load of the fullest rank in any layer and micro batch of the step."""
        layers = self.job.model.num_moe_layers / self.rows.means.shape[1]
        times = self.replicas * self.microbatches * max(layers, 1.0)
        return largest_below(self.rows, np.full((1, 1), times), level, every=level == WORST)

    @cached_property
    def _stages(self) -> IntMatrix:
        """Virtual stage of each chunk of each rank."""
        one = self.layout
        return placed(SCHEDULES[one.schedule].placement, one.pp, one.vpp)

    def _passes(self) -> FloatColumn:
        """Micro batches in flight, (rank, chunk)."""
        layers = np.array(stage_layers(self.job.model, self.layout))[self._stages]
        return held_passes(self.layout.schedule, self.microbatches, layers)

    def _held(self) -> FloatColumn:
        """Passes whose rows each pipeline rank keeps, of every line of counts: (rank, layer)."""
        model, lines = self.job.model, self.rows.means.shape[1]
        ends = np.cumsum(stage_layers(model, self.layout))
        stage_of = np.searchsorted(ends, np.flatnonzero(model.moe_layers), side="right")
        held = np.zeros((self.layout.pp, lines))
        for (rank, chunk), stage in np.ndenumerate(self._stages):
            numbers = np.flatnonzero(stage_of == stage)
            np.add.at(
                held[rank], numbers if lines > 1 else 0 * numbers, self._passes()[rank, chunk]
            )
        return held
