"""Step times: measured against predicted, row by row, and the error of groups of rows."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from types import MappingProxyType

from trainplan.costmodel.documents import MeasuredRun
from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.step import Estimate
from trainplan.costmodel.validate.cases.names import gpu_called
from trainplan.costmodel.validate.predict import Prediction

LOW_PRECISION = ("fp8", "mxfp8", "nvfp4")
SMALL_SOURCE = 8
"""Sources with fewer rows count as one, named `POOLED`: a median of three rows shows little."""
POOLED = "other"
NOT_STATED = "not stated"


@dataclass(frozen=True, slots=True)
class Errors:
    """Errors, predicted / measured - 1, of a group of rows."""

    name: str
    """Of the group."""
    n: int
    """Rows."""
    bias_fraction: float
    """Median of the signed errors: below zero the model is too fast, or too small."""
    median_fraction: float
    """Median of the absolute errors."""
    mean_fraction: float
    """Mean of the absolute errors."""


@dataclass(frozen=True, slots=True)
class TimedRow:
    """A priced run with a measured step time."""

    prediction: Prediction
    estimate: Estimate
    measured_s: float

    @property
    def run(self) -> MeasuredRun:
        """The run."""
        return self.prediction.run

    @property
    def job(self) -> Job:
        """The job it was priced as."""
        assert self.prediction.job
        return self.prediction.job

    @property
    def layout(self) -> Layout:
        """The layout it was priced as."""
        assert self.prediction.layout
        return self.prediction.layout

    @property
    def predicted_s(self) -> float:
        """By the model."""
        return self.estimate.step_time_s

    @property
    def error_fraction(self) -> float:
        """Predicted over measured, minus one."""
        return self.predicted_s / self.measured_s - 1


def measured_step_seconds(run: MeasuredRun) -> float | None:
    """Step time of a run, or what its throughput implies; null where neither is stated."""
    measured, training, gpus = run.measured, run.training, run.cluster.num_gpus
    if measured.step_time_s is not None:
        return measured.step_time_s
    rate, batch, length = (
        measured.tokens_per_s_per_gpu,
        training.global_batch_size,
        training.seq_length,
    )
    if rate is None or batch is None or length is None or gpus is None:
        return None
    return batch * length / (rate * gpus)


def has_comparable_step(run: MeasuredRun, *, everything: bool) -> bool:
    """Is the step time of this run scored? A run that states so in `use`, or states nothing."""
    wanted = not run.use or bool({"step_time", "throughput_only"} & set(run.use))
    if measured_step_seconds(run) is None or not wanted:
        return False
    return everything or run.is_strict


def timed_rows(predictions: Iterable[Prediction], *, everything: bool) -> tuple[TimedRow, ...]:
    """Priced runs with a measured step time; the `strict` ones unless `everything`."""
    return tuple(
        TimedRow(one, one.estimate, seconds)
        for one in predictions
        if has_comparable_step(one.run, everything=everything)
        and one.estimate
        and one.timed
        and (seconds := measured_step_seconds(one.run)) is not None
    )


def errors(name: str, fractions: Sequence[float]) -> Errors:
    """Bias, median and mean of at least one signed error."""
    sizes = [abs(one) for one in fractions]
    return Errors(name, len(sizes), median(fractions), median(sizes), fmean(sizes))


def errors_by(
    rows: Iterable[TimedRow], names_of: Callable[[MeasuredRun], Iterable[str]]
) -> tuple[Errors, ...]:
    """Error of every group, the largest group first; a row may be in several, or none."""
    groups: dict[str, list[float]] = {}
    for row in rows:
        for name in names_of(row.run):
            groups.setdefault(name, []).append(row.error_fraction)
    found = [errors(name, fractions) for name, fractions in groups.items()]
    return tuple(sorted(found, key=lambda one: (-one.n, one.name)))


def pooled(groups: Iterable[tuple[str, Sequence[float]]]) -> Mapping[str, Sequence[float]]:
    """Groups by name, those of fewer than eight values as one."""
    kept: dict[str, list[float]] = {}
    for name, values in groups:
        kept.setdefault(name if len(values) >= SMALL_SOURCE else POOLED, []).extend(values)
    return kept


def mean_of_medians(groups: Iterable[tuple[str, Sequence[float]]]) -> tuple[float, int] | None:
    """Mean over sources of the median absolute error, and the number of sources; small ones pooled.

    Every source counts once, so that no source with many rows decides alone.
    """
    medians = [median(map(abs, values)) for values in pooled(groups).values()]
    return (fmean(medians), len(medians)) if medians else None


def by_source(rows: Iterable[TimedRow]) -> Mapping[str, Sequence[float]]:
    """Signed errors of every source."""
    groups: dict[str, list[float]] = {}
    for row in rows:
        groups.setdefault(row.run.source_group, []).append(row.error_fraction)
    return groups


def _features(run: MeasuredRun) -> Iterable[str]:
    return [name for name, has in FEATURES.items() if has(run)]


def _more(degree: str) -> Callable[[MeasuredRun], bool]:
    return lambda run: (getattr(run.layout, degree) or 1) > 1


def _recompute(kind: str) -> Callable[[MeasuredRun], bool]:
    return lambda run: run.layout.recompute == kind


FEATURES: Mapping[str, Callable[[MeasuredRun], bool]] = MappingProxyType(
    {
        "tp > 1": _more("tp"),
        "pp > 1": _more("pp"),
        "vpp > 1": _more("vpp"),
        "cp > 1": _more("cp"),
        "ep > 1": _more("ep"),
        "fsdp": lambda run: bool(run.layout.fsdp) or run.layout.zero_stage == 3,
        "low precision": lambda run: run.training.precision in LOW_PRECISION,
        "mixture of experts": lambda run: run.model.moe is not None,
        "unfused attention": lambda run: run.attention_backend == "unfused",
        "several nodes": lambda run: (
            (run.cluster.num_gpus or 1) > (run.cluster.gpus_per_node or 1 << 30)
        ),
        **{f"recompute {kind}": _recompute(kind) for kind in ("none", "selective", "full")},
        "recompute by share": _recompute("partial"),
    }
)
"""Features of a run by which errors are grouped; a run has any number of them."""
GROUPINGS: Mapping[str, Callable[[MeasuredRun], Iterable[str]]] = MappingProxyType(
    {
        "source": lambda run: [run.source_group],
        "gpu": lambda run: [gpu_called(run.cluster.gpu) or NOT_STATED],
        "runtime": lambda run: [run.runtime],
        "precision": lambda run: [run.training.precision or NOT_STATED],
        "feature": _features,
    }
)
"""Name of a grouping -> the groups of a run."""
