"""How far runs were from fits that had not seen them, and the quantiles of it.

Sources weigh alike, whatever they print: from `SMALL_SOURCE` layouts on as one, below in
proportion. Runs that repeat a layout share the weight of one.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from trainplan.costmodel.columns import FloatColumn
from trainplan.costmodel.documents import IntervalEnds, MeasuredRun
from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.runtimes import traits_of
from trainplan.costmodel.uncertainty import LEVEL, Kind, kind_of_run, names_of_runs
from trainplan.costmodel.validate.steps import SMALL_SOURCE, TimedRow

TAIL = (1 - LEVEL) / 2
"""Share of runs below an interval, and above it, where those it is for are of the same sources."""
WIDER = 0.5
"""Sources that the runs of all other regimes count as, beside those of a regime itself.

Source: 0.25, 0.5, 0.75 and 1 were tried on runs of examples/accuracy. Ends of the first 446 hold
76, 82 to 86, 90 and 90 % of the next 152, on which nothing had been fitted; studies left out are
held in 77, 81, 83 and 84 % of cases. A level between regimes and all runs (by kind, architecture,
runtime, or GPU and precision) holds fewer runs of sources left out with wider intervals.
"""
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
    """A run that fits had not seen."""

    row: TimedRow
    regime: str
    without_study: Miss
    """Of the fit that had not seen its study."""
    without_source: Miss
    """Of the fit that had not seen its source."""

    @property
    def left_out(self) -> TimedRow:
        """The run as the fit without its source prices it."""
        seconds = self.row.measured_s * math.exp(-self.without_source.value)
        return replace(self.row, estimate=replace(self.row.estimate, step_time_s=seconds))

    @property
    def source(self) -> str:
        """Publication."""
        return self.row.run.source_group

    @property
    def study(self) -> str:
        """Model and publication: runs that are alike in more than machine and software."""
        return f"{self.source} {self.row.run.model.name}"


def left_out(
    rows: Sequence[TimedRow],
    without_study: Mapping[str, float],
    without_source: Mapping[str, float],
) -> tuple[Residual, ...]:
    """Residuals of the rows that were left out of fits.

    Both mappings are ln(predicted / measured) by the id of the run.
    """
    known = [row for row in rows if row.run.id in without_study and row.run.id in without_source]
    return tuple(
        Residual(
            row,
            names_of_runs(row.job, kind_of(row))[0],
            Miss(row.run.source_group, -without_study[row.run.id], weight),
            Miss(row.run.source_group, -without_source[row.run.id], weight),
        )
        for row, weight in zip(known, weights_of(known), strict=True)
    )


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
    """Equal for runs of one source that the model cannot tell apart."""
    machine = f"{job.cluster.groups} {job.training} {job.runtime} {job.options}"
    return f"{run.source_group} {run.model.name} {machine} {layout}"


def regimes_of(residuals: Sequence[Residual], tail: float) -> dict[str, IntervalEnds]:
    """Ends of every regime that runs are of."""
    names = sorted({one.regime for one in residuals})
    return {name: ends_of(name, residuals, tail) for name in names}


def ends_of(regime: str, residuals: Sequence[Residual], tail: float = TAIL) -> IntervalEnds:
    """Ends of one regime; those of all runs where none is of it.

    Runs of the regime are judged by fits that knew other studies of their source, the others by
    fits that had not seen their source.
    """
    own = [one.without_study for one in residuals if one.regime == regime]
    return ends(own, [one.without_source for one in residuals], tail)


def ends(own: Sequence[Miss], wider: Sequence[Miss] = (), tail: float = TAIL) -> IntervalEnds:
    """Quantiles of the runs of a regime and, as `WIDER` sources, of a wider group.

    The fewer sources a regime has, the more the wider group says. An interval holds its estimate.
    """
    values = np.array([one.value for one in (*own, *wider)])
    inside, outside = source_weights(own), source_weights(wider)
    total = outside.sum()
    weights = np.concatenate([inside, outside * (WIDER / total if total else 1.0)])
    low, high = (round(quantile(values, weights, at), DIGITS) for at in (tail, 1 - tail))
    runs = own or wider
    return IntervalEnds(
        low=min(low, 0.0),
        high=max(high, 0.0),
        runs=len(runs),
        sources=len({one.source for one in runs}),
    )


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
