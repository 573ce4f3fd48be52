"""The document of `plan validate`."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Literal, Self

from trainplan.costmodel.step import Terms
from trainplan.costmodel.validate import (
    Coverage,
    Errors,
    GainErrors,
    OneSteps,
    Prediction,
    RankingGroup,
    RankingSize,
    Scores,
    Verdicts,
    measured_step_seconds,
)
from trainplan.planner.documents import Document

NO_RANKING = SimpleNamespace(groups=(), mean_spearman=None, mean_regret_fraction=None, sizes=())
"""Where no job has three layouts."""


@dataclass(frozen=True, kw_only=True)
class ValidatedRow(Document):
    """One record."""

    id: str
    """Of the record; file and line where it has none."""
    source_group: str
    """Who measured; `user` where the record does not name them."""
    strict: bool
    """The record is complete: only such step times are scored unless `--all` is given."""
    predicted_step_time_s: float | None
    """Null where the GPU is not stated."""
    predicted_step_time_low_s: float | None
    """Lower end of the interval."""
    predicted_step_time_high_s: float | None
    """Upper end of the interval."""
    measured_step_time_s: float | None
    """As stated, or what the stated tokens per second imply."""
    step_time_error_fraction: float | None
    """Of the step time."""
    terms: Terms | None
    """Exposed seconds by term, as `estimate.terms`."""
    predicted_peak_memory_gib: float | None
    """Of the kind and on the rank that the record names."""
    measured_peak_memory_gib: float | None
    """As stated."""
    peak_memory_kind: str | None
    """`allocated`, `reserved` or `device`."""
    peak_memory_error_fraction: float | None
    """Of the peak."""
    predicted_fits: bool | None
    """Does it fit `device_memory_gib` of the record, or the memory of its GPU, less the margin?"""
    measured_fits: bool | None
    """The label."""
    skip_reason: str | None
    """Null: priced, for memory alone where the GPU is not stated. Else `incomplete`, `gpu_unknown`,
    `runtime_unknown`, `schedule_unknown`, `recompute_unknown`, `stages_differ`,
    `layout_impossible`, `other_task`, `invalid_record` or `model_error`."""
    skip_detail: str | None
    """The same in words."""
    scored: bool
    """Its step time counts in the scores."""

    @classmethod
    def of(cls, one: Prediction, *, scored: bool) -> Self:
        """Of a record, priced or not."""
        run, estimate = one.run, one.estimate if one.timed else None
        interval = estimate.uncertainty if estimate else None
        step, peak = measured_step_seconds(run), run.measured.peak_memory_gib
        return cls(
            id=run.id,
            source_group=run.source_group,
            strict=run.is_strict,
            predicted_step_time_s=one.step_time_s,
            predicted_step_time_low_s=interval.step_time_low_s if interval else None,
            predicted_step_time_high_s=interval.step_time_high_s if interval else None,
            measured_step_time_s=step,
            step_time_error_fraction=_error(one.step_time_s, step),
            terms=estimate.terms if estimate else None,
            predicted_peak_memory_gib=one.peak_memory_gib,
            measured_peak_memory_gib=peak,
            peak_memory_kind=run.measured.peak_memory_kind,
            peak_memory_error_fraction=_error(one.peak_memory_gib, peak),
            predicted_fits=one.fits,
            measured_fits=run.fits,
            skip_reason=one.skipped.reason if one.skipped else None,
            skip_detail=one.skipped.detail if one.skipped else None,
            scored=scored,
        )


@dataclass(frozen=True, kw_only=True)
class Grouped(Document):
    """What a group of rows is."""

    quantity: Literal["step_time", "peak_memory"]
    """`step_time` or `peak_memory`."""
    by: str
    """`source`, `gpu`, `runtime`, `precision`, `feature`; for memory `kind` or `source and
    kind`."""


@dataclass(frozen=True, kw_only=True)
class ValidatedGroup(Grouped, Errors):
    """Error of a group of rows."""


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

    @classmethod
    def of(cls, scores: Scores) -> Self:
        """Of all scores."""
        errors, headline = scores.step_time, scores.headline
        return cls(
            num_asked=scores.num_requested,
            num_priced=len(scores.rows),
            num_sources=headline.num_sources if headline else 0,
            mean_of_source_medians_fraction=headline.error_fraction if headline else None,
            bias_fraction=errors.bias_fraction if errors else None,
            median_fraction=errors.median_fraction if errors else None,
            mean_fraction=errors.mean_fraction if errors else None,
        )


@dataclass(frozen=True, kw_only=True)
class RankingErrors(Document):
    """Order of the layouts of every job."""

    groups: tuple[RankingGroup, ...]
    mean_spearman: float | None
    mean_regret_fraction: float | None
    sizes: tuple[RankingSize, ...]


@dataclass(frozen=True, kw_only=True)
class MeanOfRows(Document):
    """Of so many rows."""

    n: int
    mean_fraction: float


@dataclass(frozen=True, kw_only=True)
class LayoutStudy(MeanOfRows, RankingErrors):
    """One study of layouts on several nodes."""


@dataclass(frozen=True, kw_only=True)
class FitVerdicts(Document):
    """Whether a job fits, predicted and measured."""

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

    @classmethod
    def of(cls, verdicts: Verdicts) -> Self:
        """Of all labels."""
        return cls.of_fields(
            verdicts,
            false_fits=len(verdicts.false_fits),
            false_refusals=len(verdicts.false_refusals),
            false_fit_ids=verdicts.false_fits,
            false_refusal_ids=verdicts.false_refusals,
        )


@dataclass(frozen=True, kw_only=True)
class ValidatedGain(Document):
    """One changed setting: how the step time of a run compares with the base of its twins."""

    name: str
    """Of the twins."""
    id: str
    """Of the changed run."""
    kind: str
    """What was changed."""
    source_group: str
    measured_fraction: float
    """Of the base: negative is a gain."""
    priced_fraction: float
    sign_right: bool
    """A change below 1 % has no sign: right where it is priced below 3 %."""
    size_right: bool
    """Within 8 points."""


@dataclass(frozen=True, kw_only=True)
class Overall(Document):
    """All rows together."""

    step_time: StepTimeErrors
    """`mean_of_source_medians_fraction` is the headline: `num_sources` sources, those with fewer
    than 8 rows as one; `num_priced` of `num_asked` rows. `bias_fraction`, `median_fraction` and
    `mean_fraction` count every row equally."""
    ranking: RankingErrors
    """`groups`, `mean_spearman` and `mean_regret_fraction` over jobs with at least 3 measured
    layouts; `sizes`: means by their number."""
    multi_node_layout_study: LayoutStudy | None
    """The same over the `n` multi-node runs of the source `vtrain`, and `mean_fraction`, their mean
    error; null where there are none."""
    fits: FitVerdicts
    """Of `labels` labels the model `answered` some: `true_fits`, `false_fits` (passed, does not
    fit), `false_refusals` (refused, fits), `true_refusals`; `false_fit_fraction` of the runs that
    do not fit, `false_refusal_fraction` of those that fit; `false_fit_ids`, `false_refusal_ids`."""
    coverage: tuple[Coverage, ...]
    """Shares of measured steps inside, below and above their interval: all, then by regime; regimes
    of fewer than 8 runs as one."""
    after_one_step: OneSteps | None
    """With `--calibrate`: `sources`, and `before_fraction` and `after_fraction`, their means, after
    a step of the same model family; the same under `same_model` (of the same model and sequence
    length alone) and `other_family`."""
    gains: tuple[GainErrors, ...]
    """Of runs that differ in one setting (`twins` of a record): all, then by kind."""
    skipped: dict[str, int]
    """Records not priced, by reason."""

    @classmethod
    def of(cls, scores: Scores, *, calibrate: bool) -> Self:
        """Of all scores; what one step teaches with `calibrate`."""
        study, coverage = scores.layout_study, scores.coverage
        return cls(
            step_time=StepTimeErrors.of(scores),
            ranking=RankingErrors.of_fields(scores.ranking or NO_RANKING),
            multi_node_layout_study=LayoutStudy.of_fields(
                study.ranking, n=study.n, mean_fraction=study.mean_fraction
            )
            if study
            else None,
            fits=FitVerdicts.of(scores.verdicts),
            coverage=(coverage, *scores.regimes) if coverage else (),
            after_one_step=scores.one_step if calibrate else None,
            gains=(scores.gains.overall, *scores.gains.kinds) if scores.gains else (),
            skipped=dict(scores.skipped),
        )


@dataclass(frozen=True, kw_only=True)
class ValidateDocument(Document):
    """Predictions against measured runs; errors are predicted / measured - 1."""

    SCHEMA = "trainplan/validate/v1"
    schema: Literal["trainplan/validate/v1"]
    """`trainplan/validate/v1`."""
    rows: tuple[ValidatedRow, ...]
    """Every record of the files, priced or not."""
    groups: tuple[ValidatedGroup, ...]
    """Errors by source, GPU, runtime, precision and feature; of memory by kind and source."""
    gains: tuple[ValidatedGain, ...]
    """Pairs of runs that differ in one setting."""
    overall: Overall
    """Errors, order of layouts, verdicts about memory, coverage of the intervals, what was
    skipped."""

    @classmethod
    def of(cls, predictions: Sequence[Prediction], scores: Scores, *, calibrate: bool) -> Self:
        """Of records and their scores."""
        scored = {id(row.prediction) for row in scores.rows}
        return cls.of_fields(
            scores,
            rows=tuple(ValidatedRow.of(one, scored=id(one) in scored) for one in predictions),
            groups=tuple(_groups(scores)),
            gains=tuple(map(ValidatedGain.of_fields, scores.gains.pairs if scores.gains else ())),
            overall=Overall.of(scores, calibrate=calibrate),
        )


def _groups(scores: Scores) -> Iterator[ValidatedGroup]:
    for by, groups in scores.groups.items():
        yield from (ValidatedGroup.of_fields(one, quantity="step_time", by=by) for one in groups)
    for by, groups in (
        ("kind", scores.memory.by_kind),
        ("source and kind", scores.memory.by_source),
    ):
        yield from (ValidatedGroup.of_fields(one, quantity="peak_memory", by=by) for one in groups)


def _error(predicted: float | None, measured: float | None) -> float | None:
    return None if predicted is None or measured is None else predicted / measured - 1
