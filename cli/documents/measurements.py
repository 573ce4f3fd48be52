"""Documents of `plan validate`, `plan verify`, `plan schedule` and `plan simulate`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from trainplan.cli.documents.parts import Document, WrittenLayout
from trainplan.costmodel.step.results import Terms
from trainplan.costmodel.validate.intervals import Coverage
from trainplan.costmodel.validate.one_step import OneSteps
from trainplan.costmodel.validate.ranking import RankingGroup, RankingSize
from trainplan.costmodel.validate.steps import Errors


@dataclass(frozen=True, kw_only=True)
class ValidatedRow(Document):
    """One record."""

    KEYS = "validate_rows"
    id: str
    source_group: str
    strict: bool
    predicted_step_time_s: float | None
    predicted_step_time_low_s: float | None
    predicted_step_time_high_s: float | None
    measured_step_time_s: float | None
    step_time_error_fraction: float | None
    terms: Terms | None
    predicted_peak_memory_gib: float | None
    measured_peak_memory_gib: float | None
    peak_memory_kind: str | None
    peak_memory_error_fraction: float | None
    predicted_fits: bool | None
    measured_fits: bool | None
    skip_reason: str | None
    skip_detail: str | None
    scored: bool


@dataclass(frozen=True, kw_only=True)
class ValidatedGroup(Document, Errors):
    """Error of a group of rows."""

    KEYS = "validate_groups"
    quantity: Literal["step_time", "peak_memory"]
    by: str


@dataclass(frozen=True, kw_only=True)
class StepTimeErrors(Document):
    """Of all step times."""

    num_asked: int
    num_priced: int
    num_sources: int
    mean_of_source_medians_fraction: float | None
    bias_fraction: float | None
    median_fraction: float | None
    mean_fraction: float | None


@dataclass(frozen=True, kw_only=True)
class RankingErrors(Document):
    """Order of the layouts of every job."""

    groups: tuple[RankingGroup, ...]
    mean_spearman: float | None
    mean_regret_fraction: float | None
    sizes: tuple[RankingSize, ...]


@dataclass(frozen=True, kw_only=True)
class LayoutStudy(RankingErrors):
    """One study of layouts on several nodes."""

    n: int
    mean_fraction: float


@dataclass(frozen=True, kw_only=True)
class FitVerdicts(Document):
    """Whether a job fits, said and measured."""

    labels: int
    answered: int
    true_fits: int
    false_fits: int
    false_refusals: int
    true_refusals: int
    false_fit_fraction: float | None
    false_refusal_fraction: float | None
    false_fit_ids: tuple[str, ...]
    false_refusal_ids: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Overall(Document):
    """All rows together."""

    KEYS = "validate_overall"
    step_time: StepTimeErrors
    ranking: RankingErrors
    multi_node_layout_study: LayoutStudy | None
    fits: FitVerdicts
    coverage: tuple[Coverage, ...]
    after_one_step: OneSteps | None
    skipped: dict[str, int]


@dataclass(frozen=True, kw_only=True)
class ValidateDocument(Document):
    """Predictions against measured runs; errors are predicted / measured - 1."""

    KEYS = "validate"
    schema: Literal["trainplan/validate/v1"]
    rows: tuple[ValidatedRow, ...]
    groups: tuple[ValidatedGroup, ...]
    overall: Overall


@dataclass(frozen=True, kw_only=True)
class Combination(Document):
    """A layout of a few processes, beside one process."""

    name: str
    layout: WrittenLayout  # type: ignore[valid-type]
    equal: bool
    failure: str | None
    """Why it did not run; null: it ran."""
    loss_difference: float | None
    """Relative."""
    grad_norm_difference: float | None
    """Relative."""
    tolerance: float | None
    """What the order of sums explains."""
    parameters_equal: bool | None
    """Those of every rank are as the cost model says."""
    sent_equal: bool | None
    """Bytes sent in a step are as the cost model says."""
    saved_difference: float | None
    """Of the bytes kept for the backward pass, relative to the cost model's."""
    differences: tuple[str, ...]
    """A line each."""
    seconds: float | None
    """That it ran."""


@dataclass(frozen=True, kw_only=True)
class VerifyStarted(Document):
    """The first line."""

    event: Literal["started"]
    schema: Literal["trainplan/verify/v1"]
    trainer: str
    nproc: int
    """Processes of each."""
    combinations: tuple[str, ...]
    not_run: tuple[str, ...]
    """What of the plan is not run, and why."""


@dataclass(frozen=True, kw_only=True)
class VerifyRan(Combination):
    """A line when a combination has run."""

    event: Literal["ran"]


@dataclass(frozen=True, kw_only=True)
class VerifyEnded(Document):
    """The last line."""

    event: Literal["ended"]
    schema: Literal["trainplan/verify/v1"]
    verdict: str
    equal: bool
    combinations: tuple[Combination, ...]
    not_run: tuple[str, ...]


VerifyEvent = VerifyStarted | VerifyRan | VerifyEnded


@dataclass(frozen=True, kw_only=True)
class ScheduleDocument(Document):
    """A pipeline schedule; times are in the unit of the durations."""

    KEYS = "schedule"
    makespan: float
    max_stage_span: float
    bubble_fraction: float
    lower_bound: float
    gap_fraction: float
    optimal: bool
    peak_activations: tuple[float, ...]
    peak_activations_released_at_input_grad: tuple[float, ...]
    kind: str
    pp: int
    vpp: int
    num_microbatches: int
    placement: str
    runs_on: tuple[str, ...]
    peak_activation_bytes: tuple[float, ...] = ()
    """Of every rank, where bytes of the activations are stated."""


@dataclass(frozen=True, kw_only=True)
class RefusedKind(Document):
    """A kind that does not run in this shape."""

    kind: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class RankingDocument(Document):
    """All schedules of a shape."""

    schedules: tuple[ScheduleDocument, ...]
    """By makespan."""
    refused: tuple[RefusedKind, ...]


@dataclass(frozen=True, kw_only=True)
class SimulatedRank(Document):
    """One pipeline rank."""

    KEYS = "simulated_rank"
    rank: int
    busy_s: float
    first_start_s: float
    last_end_s: float
    dp_traffic_s: float
    peak_activations: float


@dataclass(frozen=True, kw_only=True)
class LaneSpan(Document):
    """What a lane does for some time."""

    lane: str
    name: str
    start_s: float
    end_s: float


@dataclass(frozen=True, kw_only=True)
class SimulateDocument(Document):
    """The pipeline of a plan on a clock."""

    KEYS = "simulate"
    schedule: str
    pp: int
    vpp: int
    num_microbatches: int
    makespan_s: float
    bubble_fraction: float
    lower_bound_s: float
    gap_fraction: float
    optimal: bool
    pipeline_ranks: tuple[SimulatedRank, ...]
    dp_comm_s: float
    optimizer_s: float
    overhead_s: float
    step_time_s: float
    lanes: tuple[LaneSpan, ...]
