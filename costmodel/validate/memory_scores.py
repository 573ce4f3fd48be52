"""Memory: error of the peak by kind, and right and wrong verdicts about what fits."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from trainplan.costmodel.documents import MeasuredRun, MemoryKind
from trainplan.costmodel.validate.predict import Prediction, peak_memory_gib
from trainplan.costmodel.validate.steps import Errors, errors


@dataclass(frozen=True, slots=True)
class PeakRow:
    """One measured peak against the predicted one."""

    run: MeasuredRun
    kind: MemoryKind
    measured_gib: float
    predicted_gib: float

    @property
    def error_fraction(self) -> float:
        """Predicted over measured, minus one."""
        return self.predicted_gib / self.measured_gib - 1


@dataclass(frozen=True, slots=True)
class MemoryErrors:
    """Error of the peak memory."""

    by_kind: tuple[Errors, ...]
    by_source: tuple[Errors, ...]
    """Name is `SOURCE, KIND`: kinds are not comparable."""


@dataclass(frozen=True, slots=True)
class Verdicts:
    """What fits and what does not, against labels."""

    labels: int
    true_fits: int
    false_fits: tuple[str, ...]
    """Ids of runs that the model lets pass and that do not fit."""
    false_refusals: tuple[str, ...]
    """Ids of runs that the model refuses and that fit."""
    true_refusals: int

    @property
    def answered(self) -> int:
        """Labels the model could answer."""
        return self.fitting + self.not_fitting

    @property
    def fitting(self) -> int:
        """Answered runs that fit."""
        return self.true_fits + len(self.false_refusals)

    @property
    def not_fitting(self) -> int:
        """Answered runs that do not fit."""
        return self.true_refusals + len(self.false_fits)

    @property
    def false_fit_fraction(self) -> float | None:
        """Share of the runs that do not fit which the model lets pass."""
        return len(self.false_fits) / self.not_fitting if self.not_fitting else None

    @property
    def false_refusal_fraction(self) -> float | None:
        """Share of the runs that fit which the model refuses."""
        return len(self.false_refusals) / self.fitting if self.fitting else None


def is_scored(run: MeasuredRun, *, everything: bool) -> bool:
    """Memory and labels are scored unless the record calls itself suspect."""
    return everything or not run.suspect


def peak_rows(predictions: Iterable[Prediction], *, everything: bool) -> tuple[PeakRow, ...]:
    """Every measured peak that could be predicted; a run may give two, of different kinds."""
    return tuple(
        row
        for one in predictions
        if is_scored(one.run, everything=everything)
        and (not one.run.use or "memory" in one.run.use)
        for row in _peaks(one)
    )


def _peaks(one: Prediction) -> Iterator[PeakRow]:
    measured, estimate = one.run.measured, one.estimate
    if estimate is None:
        return
    kind = measured.peak_memory_kind or "allocated"
    rank = measured.peak_memory_rank or "max"
    if measured.peak_memory_gib is not None:
        predicted = peak_memory_gib(estimate, kind, rank)
        yield PeakRow(one.run, kind, measured.peak_memory_gib, predicted)
    if measured.peak_reserved_gib is not None and kind != "reserved":
        predicted = peak_memory_gib(estimate, "reserved", rank)
        yield PeakRow(one.run, "reserved", measured.peak_reserved_gib, predicted)


def memory_errors(rows: Iterable[PeakRow]) -> MemoryErrors:
    """Error by kind, and by source and kind."""
    kinds: dict[str, list[float]] = {}
    sources: dict[str, list[float]] = {}
    for row in rows:
        kinds.setdefault(row.kind, []).append(row.error_fraction)
        name = f"{row.run.source_group}, {row.kind}"
        sources.setdefault(name, []).append(row.error_fraction)
    return MemoryErrors(
        tuple(errors(name, fractions) for name, fractions in sorted(kinds.items())),
        tuple(errors(name, fractions) for name, fractions in sorted(sources.items())),
    )


def verdicts(predictions: Iterable[Prediction], *, everything: bool) -> Verdicts:
    """The confusion table of all runs with a label."""
    labelled = [
        one
        for one in predictions
        if one.run.fits is not None and is_scored(one.run, everything=everything)
    ]
    answers = [(one.run.id, one.fits, one.run.fits) for one in labelled if one.fits is not None]
    return Verdicts(
        labels=len(labelled),
        true_fits=sum(written and is_so for _, written, is_so in answers if is_so is not None),
        false_fits=tuple(name for name, written, is_so in answers if written and not is_so),
        false_refusals=tuple(name for name, written, is_so in answers if not written and is_so),
        true_refusals=sum(not written and not is_so for _, written, is_so in answers),
    )
