"""How far runs were from fits that had not seen their source, and how wide that makes an interval.

A source is the unit of evidence: errors of its runs go together, and the reader is another
source. Its error is the root mean square of its runs, which holds what lies between sources and
what lies within one; from `SMALL_SOURCE` layouts on it counts as one source, below in proportion.
Runs that repeat a layout share the weight of one.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from trainplan.costmodel.columns import FloatColumn
from trainplan.costmodel.documents import IntervalWidth, MeasuredRun
from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.runtimes import traits_of
from trainplan.costmodel.uncertainty import LEVEL, Kind, kind_of_run, names_of_runs
from trainplan.costmodel.validate.steps import SMALL_SOURCE, TimedRow

PRIOR = 1.0
"""Sources that all runs, and those of a kind, count as more than those of a kind, and of a regime.

Source: 0.5 to 3 were tried on runs of examples/accuracy with and without a level of kinds: with 1
and kinds every kind of 15 runs (runtime, GPU, precision, experts, FSDP, sequences of 16k tokens and
more) is held in more than half of cases when its source is left out, as with no other.
"""
LEAST = 0.03
"""Error below which a source is as good as any, in log units: what equal steps differ by.

Source: assumed; 0.01 to 0.05 give the same widths to 2 %.
"""
ANGLES = 20001
"""Points of the integral of `student`: four digits."""
DIGITS = 3


@dataclass(frozen=True, slots=True)
class Miss:
    """ln(measured / predicted) of one run."""

    source: str
    value: float
    weight: float
    """Less than 1 where runs repeat a layout."""


@dataclass(frozen=True, slots=True)
class Residual:
    """A run that the fit had not seen, nor any other run of its source."""

    row: TimedRow
    regime: str
    miss: Miss

    @property
    def left_out(self) -> TimedRow:
        """The run as that fit prices it."""
        seconds = self.row.measured_s * math.exp(-self.miss.value)
        return replace(self.row, estimate=replace(self.row.estimate, step_time_s=seconds))

    @property
    def kind(self) -> str:
        """Kind of the run."""
        return kind_in(self.regime)


@dataclass(frozen=True, slots=True)
class Scale:
    """How far a source is off."""

    log: float
    """Mean logarithm of the errors of sources: one that is far off does not decide alone."""
    sources: float = 0.0
    """As many as those of the group itself count."""

    @property
    def half_width(self) -> float:
        """Half of an interval for another source, before it is widened; in log units.

        Source: the predictive distribution of a normal variable of known mean and unknown variance,
        of which `PRIOR` and `sources` observations are known, is Student's t (Gelman et al.,
        Bayesian Data Analysis, 3rd edition, sections 2.6 and 3.2; as the interval for a new study,
        Higgins, Thompson and Spiegelhalter, J. Royal Statistical Society A 172, 2009).
        """
        return math.exp(self.log) * student((1 + LEVEL) / 2, PRIOR + self.sources)


def kind_in(regime: str) -> str:
    """The kind that the name of a regime ends with."""
    return regime.rpartition(" ")[2]


def left_out(rows: Sequence[TimedRow], without_source: Mapping[str, float]) -> tuple[Residual, ...]:
    """Residuals of rows, by ln(predicted / measured) of fits without their source, by run.

    What is not among these no fit has seen yet: it is priced as it is.
    """
    return tuple(
        Residual(
            row,
            names_of_runs(row.job, kind_of(row))[0],
            Miss(row.run.source_group, -without_source.get(row.run.id, miss_of(row)), weight),
        )
        for row, weight in zip(rows, weights_of(rows), strict=True)
    )


def miss_of(row: TimedRow) -> float:
    """ln(predicted / measured)."""
    return math.log(row.predicted_s / row.measured_s)


def kind_of(row: TimedRow) -> Kind:
    """Kind of run that a row is."""
    graph = traits_of(row.job).host.cuda_graph
    share = row.estimate.terms.host / row.estimate.step_time_s
    return kind_of_run(row.job, graph, row.layout.zero_stage, share)


def weights_of(rows: Iterable[TimedRow]) -> Sequence[float]:
    """One over the rows of a source that are of one job and layout."""
    keys = [key_of(row) for row in rows]
    counts = Counter(keys)
    return [1 / counts[key] for key in keys]


def key_of(row: TimedRow) -> str:
    """The `layout_key` of a row."""
    return layout_key(row.run, row.job, row.layout)


def layout_key(run: MeasuredRun, job: Job, layout: Layout) -> str:
    """Equal for runs of one source that the model cannot distinguish."""
    machine = f"{job.cluster.groups} {job.training} {job.runtime} {job.options}"
    return f"{run.source_group} {run.model.name} {machine} {layout}"


def scale_of(misses: Iterable[Miss], parent: Scale | None = None) -> Scale:
    """How far sources are off, and those of a wider group as `PRIOR` sources; without any, these.

    One source may show that errors are larger than its parent's, and only a second that they are
    less: of what lies between sources one shows nothing. Source: the logarithm of a scale that
    varies over sources, shrunk to its parent's.
    """
    sources: dict[str, list[Miss]] = {}
    for one in misses:
        sources.setdefault(one.source, []).append(one)
    weights = [sum(one.weight for one in own) for own in sources.values()]
    counts = [min(weight / SMALL_SOURCE, 1.0) for weight in weights]
    squares = (sum(one.weight * one.value**2 for one in own) for own in sources.values())
    logs = (
        count * math.log(square / weight + LEAST**2) / 2
        for count, square, weight in zip(counts, squares, weights, strict=True)
    )
    known, own = sum(counts), sum(logs)
    if parent is None:
        return Scale(own / known, known)
    mean = own / known if known else parent.log
    between = known if mean > parent.log else max(known - 1, 0.0)
    return Scale((PRIOR * parent.log + between * mean) / (PRIOR + between), known)


class Scales:
    """Those of kinds and regimes, each shrunk to what it is one of."""

    def __init__(self, residuals: Iterable[Residual]) -> None:
        """Of the runs that are known."""
        self._kinds: dict[str, list[Miss]] = {}
        self._regimes: dict[str, list[Miss]] = {}
        for one in residuals:
            self._kinds.setdefault(one.kind, []).append(one.miss)
            self._regimes.setdefault(one.regime, []).append(one.miss)

    def of_kind(self, kind: str) -> Scale:
        """Of a source on a machine and software of which no run is known."""
        every = scale_of(one for group in self._kinds.values() for one in group)
        return Scale(scale_of(self._kinds.get(kind, ()), every).log)

    def of_regime(self, regime: str) -> Scale:
        """Of a source like those that ran it."""
        return scale_of(self._regimes.get(regime, ()), self.of_kind(kind_in(regime)))

    def widths(self, widened: float) -> dict[str, IntervalWidth]:
        """Of every regime that runs are of."""
        return {
            name: width(self.of_regime(name), widened, own)
            for name, own in sorted(self._regimes.items())
        }


def width(scale: Scale, widened: float, misses: Sequence[Miss]) -> IntervalWidth:
    """Half-width, with the runs and sources that it is of."""
    return width_of(misses, widened * scale.half_width)


def width_of(misses: Sequence[Miss], half_width: float) -> IntervalWidth:
    """The same, of a half-width."""
    sources = len({one.source for one in misses})
    return IntervalWidth(half_width=round(half_width, DIGITS), runs=len(misses), sources=sources)


def student(at: float, degrees: float) -> float:
    """Quantile of Student's t above a half.

    Source: derived; t = sqrt(n) tan(a), where the density of the angle is cos(a)^(n - 1).
    """
    angles = np.linspace(0, math.pi / 2, ANGLES)
    density = np.cos(angles) ** (degrees - 1)
    share = np.concatenate([[0.0], np.cumsum(density[1:] + density[:-1])])
    angle = float(np.interp((2 * at - 1) * share[-1], share, angles))
    return math.sqrt(degrees) * math.tan(angle)


def source_weights(misses: Sequence[Miss]) -> FloatColumn:
    """Weight of every run among the others.

    Source: a convention, that of the fit: a source is the unit of evidence.
    """
    sizes: dict[str, float] = {}
    for one in misses:
        sizes[one.source] = sizes.get(one.source, 0.0) + one.weight
    return np.array([one.weight / max(sizes[one.source], SMALL_SOURCE) for one in misses])


def quantile(values: FloatColumn, weights: FloatColumn, at: float) -> float:
    """Weighted quantile; every distinct value lies in the middle of its weight."""
    distinct, place = np.unique(values, return_inverse=True)
    each = np.bincount(place, weights)
    return float(np.interp(at * each.sum(), np.cumsum(each) - each / 2, distinct))
