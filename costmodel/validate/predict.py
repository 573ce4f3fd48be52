"""The estimate of a measured run."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from trainplan.costmodel.base import GIB, PlanError
from trainplan.costmodel.calibration import NOTHING, Measured, calibrated
from trainplan.costmodel.candidates import context_of
from trainplan.costmodel.documents import (
    Constants,
    MeasuredRun,
    MemoryKind,
    MemoryRank,
    RunCluster,
    RunLayout,
    RunModel,
    RunTraining,
)
from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.layouts import LayoutTable
from trainplan.costmodel.machine import Machine
from trainplan.costmodel.measured import measured_machine
from trainplan.costmodel.step import Estimate, RankMemory, explicit, price
from trainplan.costmodel.uncertainty import FIT_CHANCE, fit_chance, margin_of, peak_scale
from trainplan.costmodel.validate.cases.by_stage import StagePart, differs_by_stage, stage_parts
from trainplan.costmodel.validate.cases.cases import Case, Skipped, case_of
from trainplan.costmodel.validate.cases.legality import impossible
from trainplan.costmodel.validate.cases.needed import SkipReason

ODD = (ArithmeticError, AssertionError, LookupError, ValueError)
"""What formulas trip over in a record that no rule refuses."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """A measured run against its estimate."""

    run: MeasuredRun
    skipped: Skipped | None
    """Why there is no estimate; null: it was priced."""
    estimate: Estimate | None
    timed: bool = False
    """The GPU is known, so the step time counts."""
    job: Job | None = None
    layout: Layout | None = None
    """What was priced."""

    @property
    def step_time_s(self) -> float | None:
        """Predicted step time; null where the GPU is unknown or the run was skipped."""
        return self.estimate.step_time_s if self.estimate and self.timed else None

    @property
    def peak_memory_gib(self) -> float | None:
        """Predicted peak of the kind and on the rank the run measured."""
        if self.estimate is None:
            return None
        measured = self.run.measured
        kind = measured.peak_memory_kind or "allocated"
        return peak_memory_gib(self.estimate, kind, measured.peak_memory_rank or "max")

    @property
    def fits(self) -> bool | None:
        """Does it fit, by the model, the memory the run names, or that of its GPU?"""
        run = self.run
        known = self.timed or run.device_memory_gib or run.cluster.memory_gib
        return self.estimate.memory.fits if self.estimate and known else None


def predict(
    runs: Iterable[MeasuredRun],
    *,
    constants: Constants | None = None,
    measured: Measured = NOTHING,
    memory_margin: float | None = 0.0,
) -> tuple[Prediction, ...]:
    """Price every run that can be priced, in order.

    `constants` replace those of the catalog; what was measured corrects the runs on its GPU.
    A run fits where `memory_margin` stays free; null: what a fit with `FIT_CHANCE` leaves.
    """
    pricing = _Pricing(constants, measured, memory_margin)
    return tuple(_predicted(run, pricing) for run in runs)


@dataclass(frozen=True, slots=True)
class _Pricing:
    constants: Constants | None
    measured: Measured
    memory_margin: float | None
    known: dict[tuple[str, Layout, bool], Estimate] = field(default_factory=dict)
    """What was priced, by job but for the name of its cluster: published runs repeat layouts."""

    def estimate(self, case: Case) -> Estimate:
        """All a run is expected to cost."""
        job = case.job.model_dump_json(exclude={"cluster": {"name"}})
        key = job, case.layout, self.measured.corrects(case.run)
        if key not in self.known:
            (self.known[key],) = explicit(
                context_of(case.job, self.machine(case)).with_table(LayoutTable.of([case.layout])),
                memory_margin=self.margin(case.job),
            )
        return self.known[key]

    def margin(self, job: Job) -> float:
        """Share of the memory that must stay free."""
        return margin_of(job, FIT_CHANCE) if self.memory_margin is None else self.memory_margin

    def machine(self, case: Case) -> Machine:
        job = case.job
        known = self.measured if self.measured.corrects(case.run) else NOTHING
        machine = measured_machine(
            job.cluster,
            job.training.precision,
            known.profile,
            self.constants,
            job.training.optimizer,
        )
        return calibrated(machine, known.calibration, job) if known.calibration else machine


def unreadable(name: str, detail: str) -> Prediction:
    """A record that does not follow the schema: it is listed, without an estimate."""
    run = MeasuredRun(
        id=name,
        model=RunModel(),
        training=RunTraining(),
        cluster=RunCluster(),
        layout=RunLayout(),
        runtime="",
    )
    return Prediction(run, Skipped(run, "invalid_record", detail), None)


def peak_memory_gib(estimate: Estimate, kind: MemoryKind, rank: MemoryRank) -> float:
    """Peak of one kind: of the first or last pipeline rank, or of the fullest."""
    ranks = estimate.memory.pipeline_ranks
    chosen = {"first": ranks[:1], "last": ranks[-1:]}.get(rank, ranks)
    return max(_rank_gib(one, kind) for one in chosen)


def _rank_gib(rank: RankMemory, kind: MemoryKind) -> float:
    by_kind = {
        "allocated": rank.allocated_bytes,
        "reserved": rank.reserved_bytes + rank.cached_bytes,
        "device": rank.total_bytes + rank.cached_bytes,
    }
    return by_kind[kind] / GIB


def _predicted(run: MeasuredRun, pricing: _Pricing) -> Prediction:
    case = case_of(run)
    if differs_by_stage(run) and (isinstance(case, Case) or case.reason == "stages_differ"):
        return _by_stage(run, case, pricing)
    return _skipped(case) if isinstance(case, Skipped) else _priced(case, pricing)


def _by_stage(run: MeasuredRun, whole: Case | Skipped, pricing: _Pricing) -> Prediction:
    """Memory stage by stage; time alone where all stages have the same degrees."""
    parts = stage_parts(run)
    if isinstance(parts, Skipped):
        return _skipped(parts)
    try:
        ranks = _stage_ranks(parts, pricing)
    except PlanError as error:
        return _skipped(Skipped(run, "layout_impossible", str(error)))
    except ODD as error:
        return _skipped(Skipped(run, "model_error", f"{type(error).__name__}: {error}"))
    fullest = max(ranks, key=lambda one: one.total_bytes)
    standing = next(one for one in parts if one.stage == fullest.rank)
    timed = isinstance(whole, Case)
    found = _priced(whole if isinstance(whole, Case) else standing.case, pricing)
    if found.estimate is None:
        return found
    memory = found.estimate.memory
    held = replace(
        memory,
        peak_allocated_bytes=max(one.allocated_bytes for one in ranks),
        peak_reserved_bytes=fullest.total_bytes,
        fits=fullest.total_bytes <= memory.capacity_bytes * (1 - pricing.margin(standing.case.job)),
        fit_chance=fit_chance(
            fullest.total_bytes, memory.capacity_bytes, peak_scale(standing.case.job)
        ),
        pipeline_ranks=ranks,
    )
    estimate = replace(found.estimate, memory=held)
    return replace(found, run=run, estimate=estimate, timed=timed and found.timed)


def _stage_ranks(parts: Sequence[StagePart], pricing: _Pricing) -> tuple[RankMemory, ...]:
    """Every stage as the mean of its parts; those of the same degrees are one table."""
    sums: dict[int, RankMemory] = {}
    cases = {id(one.case): one.case for one in parts}
    for key, case in cases.items():
        own = [one for one in parts if id(one.case) == key]
        context = context_of(case.job, pricing.machine(case))
        table = LayoutTable.of([one.layout for one in own])
        memory = price(context.with_table(table), merged=False).memory
        for row, part in enumerate(own):
            rank = RankMemory.of_row(memory, row, case.layout.pp)[part.stage]
            sums[part.stage] = rank.mixed(part.weight, sums.get(part.stage))
    return tuple(sums[stage] for stage in sorted(sums))


def _skipped(case: Skipped) -> Prediction:
    return Prediction(case.run, case, None)


def _priced(case: Case, pricing: _Pricing) -> Prediction:
    """One odd row must not hide all others: what our formulas trip over is a reason too."""
    broken = impossible(case)
    if broken:
        return _refused(case, "layout_impossible", broken)
    try:
        estimate = pricing.estimate(case)
    except PlanError as error:
        return _refused(case, "layout_impossible", str(error))
    except ODD as error:
        return _refused(case, "model_error", f"{type(error).__name__}: {error}")
    if not (math.isfinite(estimate.step_time_s) and estimate.step_time_s > 0):
        return _refused(case, "model_error", f"step time {estimate.step_time_s}")
    return Prediction(case.run, None, estimate, case.timed, case.job, case.layout)


def _refused(case: Case, reason: SkipReason, detail: str) -> Prediction:
    return Prediction(case.run, Skipped(case.run, reason, detail), None)
