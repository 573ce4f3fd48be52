"""All scores of a file of measured runs."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trainplan.costmodel.validate.gains import Gains, gains
from trainplan.costmodel.validate.intervals import Coverage, coverage, coverage_by_regime
from trainplan.costmodel.validate.memory_scores import (
    MemoryErrors,
    Verdicts,
    memory_errors,
    peak_rows,
    verdicts,
)
from trainplan.costmodel.validate.one_step import OneSteps, after_one_step
from trainplan.costmodel.validate.predict import Prediction
from trainplan.costmodel.validate.ranking import Inside, Ranking, ranking
from trainplan.costmodel.validate.steps import (
    GROUPINGS,
    Errors,
    TimedRow,
    by_source,
    errors,
    errors_by,
    has_comparable_step,
    mean_of_medians,
    timed_rows,
)

LAYOUT_STUDY, ONE_NODE = "vtrain", 8
"""The one source that measured bad layouts as well as good ones, and the GPUs of its nodes."""


@dataclass(frozen=True, slots=True)
class Headline:
    """Step times in one line."""

    error_fraction: float
    """Mean over the sources of the median absolute error, small sources pooled."""
    num_sources: int
    num_priced: int
    num_requested: int
    """Runs with a measured step that the choice of rows allows."""


@dataclass(frozen=True, slots=True)
class LayoutStudy:
    """The multi-node runs of vTrain: many layouts of few models."""

    n: int
    mean_fraction: float
    ranking: Ranking


@dataclass(frozen=True, slots=True)
class Scores:
    """How well the model agrees with measured runs."""

    rows: tuple[TimedRow, ...]
    """Those whose step time is scored."""
    num_requested: int
    headline: Headline | None
    """Null: no step time could be compared."""
    step_time: Errors | None
    """Over all rows the same."""
    groups: Mapping[str, tuple[Errors, ...]]
    """Grouping -> its groups."""
    ranking: Ranking | None
    layout_study: LayoutStudy | None
    memory: MemoryErrors
    verdicts: Verdicts
    coverage: Coverage | None
    regimes: tuple[Coverage, ...]
    one_step: OneSteps | None
    gains: Gains | None
    """Of all twins that are priced, strict or not: a pair shares what its records leave out."""
    skipped: Mapping[str, int]
    """Reason -> rows, over all rows of the files."""


def scores(
    predictions: Sequence[Prediction], *, everything: bool = False, inside: Inside | None = None
) -> Scores:
    """Every score.

    Step times of `strict` rows, memory and labels of rows that are not suspect; of all rows with
    `everything`. `inside`: as in `ranking`.
    """
    rows = timed_rows(predictions, everything=everything)
    comparable = sum(has_comparable_step(one.run, everything=everything) for one in predictions)
    skipped = Counter(one.skipped.reason for one in predictions if one.skipped)
    return Scores(
        rows=rows,
        num_requested=comparable,
        headline=headline(rows, comparable),
        step_time=errors("all", [row.error_fraction for row in rows]) if rows else None,
        groups={name: errors_by(rows, names_of) for name, names_of in GROUPINGS.items()},
        ranking=ranking(rows, inside),
        layout_study=layout_study(rows),
        memory=memory_errors(peak_rows(predictions, everything=everything)),
        verdicts=verdicts(predictions, everything=everything),
        coverage=coverage(rows),
        regimes=coverage_by_regime(rows),
        one_step=after_one_step(rows),
        gains=gains(predictions),
        skipped=dict(skipped.most_common()),
    )


def headline(rows: Sequence[TimedRow], num_requested: int) -> Headline | None:
    """The mean of the per-source medians; null without a row."""
    found = mean_of_medians(by_source(rows).items())
    return Headline(*found, len(rows), num_requested) if found else None


def worst(rows: Sequence[TimedRow], number: int) -> tuple[TimedRow, ...]:
    """The rows that are most off, as a factor: half and double weigh the same."""
    by_factor = sorted(rows, key=lambda row: -_factor(row))
    return tuple(by_factor[:number])


def _factor(row: TimedRow) -> float:
    quotient = row.predicted_s / row.measured_s
    return max(quotient, 1 / quotient)


def layout_study(rows: Sequence[TimedRow]) -> LayoutStudy | None:
    """That of some rows; null where they hold no layouts of it."""
    studied = [
        row
        for row in rows
        if row.run.source_group == LAYOUT_STUDY and (row.run.cluster.num_gpus or 0) > ONE_NODE
    ]
    order = ranking(studied)
    if order is None:
        return None
    mean = errors(LAYOUT_STUDY, [row.error_fraction for row in studied]).mean_fraction
    return LayoutStudy(len(studied), mean, order)
