"""Does the model put layouts of one job in the right order?"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from trainplan.costmodel.layout import Layout
from trainplan.costmodel.uncertainty import is_near_tie, place_of_tie
from trainplan.costmodel.validate.cases.names import gpu_called
from trainplan.costmodel.validate.steps import TimedRow

SIZES = (3, 5, 10)
"""Least layouts of the groups that are listed: the more there are, the more can be lost."""
FEWEST_LAYOUTS = SIZES[0]
"""Groups with fewer distinct layouts show little of an order."""
Inside = Callable[[TimedRow], bool]
"""Does the layout of a row stay inside what was measured?"""
TIE_DIGITS = 9
"""Digits of the logarithm in which two predictions must differ: rounding is no order."""


@dataclass(frozen=True, slots=True)
class RankingGroup:
    """Layouts of one job, measured by one source or several."""

    model: str
    """Name of the model."""
    gpu: str
    """Catalog name."""
    num_gpus: int
    """How many."""
    runtime: str
    """Runtime."""
    num_layouts: int
    """Distinct layouts."""
    spearman: float
    """Rank correlation of predicted and measured step times: 1 is the right order."""
    regret_fraction: float
    """Measured time of the layout the model would pick over the best measured, minus one; of those
    of the same price, of the slowest."""
    near_ties: int
    """Layouts that the model cannot rank against the one it picks, with it."""
    regret_by_evidence_fraction: float
    """Regret of the first of these as a search lists them: inside what was measured, then by time.
    """
    regret_after_ties_fraction: float
    """Regret once these were measured and the fastest of them is taken."""


@dataclass(frozen=True, slots=True)
class RankingSize:
    """Means over the groups of so many layouts."""

    layouts: str
    """Numbers of layouts, such as `5 to 9`."""
    groups: int
    """Jobs with so many."""
    mean_spearman: float
    """Mean rank correlation."""
    mean_regret_fraction: float
    """Mean regret of the layout the model picks."""
    mean_near_ties: float
    """Mean number of layouts that it cannot rank against that one, with it."""
    mean_regret_by_evidence_fraction: float
    """Mean regret of the first of these as a search lists them."""
    mean_regret_after_ties_fraction: float
    """Mean regret once these were measured and the fastest of them is taken."""


@dataclass(frozen=True, slots=True)
class Ranking:
    """All groups and their means."""

    groups: tuple[RankingGroup, ...]
    mean_spearman: float
    mean_regret_fraction: float
    sizes: tuple[RankingSize, ...]
    """By the number of layouts, few first."""


def ranking(rows: Iterable[TimedRow], inside: Inside | None = None) -> Ranking | None:
    """Order of the layouts of every job with at least three; null where there is no such job.

    `inside` states whether a layout stays inside what was measured; without it none is checked.

    Runs are of one job that share model, machine, batch, sequence, precision and runtime; runs of
    one layout count once, with their mean.
    """
    groups = tuple(filter(None, (_group(job, inside) for job in jobs_of(rows))))
    if not groups:
        return None
    return Ranking(
        tuple(sorted(groups, key=lambda one: (-one.num_layouts, one.model, one.num_gpus))),
        fmean(one.spearman for one in groups),
        fmean(one.regret_fraction for one in groups),
        tuple(sizes_of(groups)),
    )


def spearman(first: Sequence[float], second: Sequence[float]) -> float:
    """Correlation of the ranks, equal values sharing theirs; 0 where one is constant."""
    one, other = _ranks(first), _ranks(second)
    if len(set(one)) == 1 or len(set(other)) == 1:
        return 0.0
    return float(np.corrcoef(one, other)[0, 1])


def _ranks(values: Sequence[float]) -> Sequence[float]:
    rounded = np.round(np.log(values), TIE_DIGITS)
    _, place, counts = np.unique(rounded, return_inverse=True, return_counts=True)
    middle = np.cumsum(counts) - (counts - 1) / 2
    return [float(one) for one in middle[place]]


def jobs_of(rows: Iterable[TimedRow]) -> Iterable[Sequence[TimedRow]]:
    """Rows by their job."""
    jobs: dict[object, list[TimedRow]] = {}
    for row in rows:
        jobs.setdefault(job_of(row), []).append(row)
    return jobs.values()


def job_of(row: TimedRow) -> object:
    """Equal for runs that differ in layout, software release or source alone."""
    run = row.run
    return (
        run.model.model_dump_json(exclude={"name"}),
        gpu_called(run.cluster.gpu),
        run.cluster.num_gpus,
        run.training.global_batch_size,
        run.training.seq_length,
        run.training.precision,
        run.runtime,
    )


def _group(rows: Sequence[TimedRow], inside: Inside | None) -> RankingGroup | None:
    layouts: dict[Layout, list[TimedRow]] = {}
    for row in rows:
        layouts.setdefault(row.layout, []).append(row)
    if len(layouts) < FEWEST_LAYOUTS:
        return None
    predicted = [fmean(row.predicted_s for row in same) for same in layouts.values()]
    measured = [fmean(row.measured_s for row in same) for same in layouts.values()]
    run, best, each = rows[0].run, min(measured), list(layouts)
    equal = [i for i, one in enumerate(_ranks(predicted)) if one == min(_ranks(predicted))]
    picked = max(equal, key=lambda i: measured[i])
    ties = [
        i
        for i, layout in enumerate(each)
        if is_near_tie(layout, predicted[i], each[picked], predicted[picked])
    ]
    known = {i: inside(layouts[each[i]][0]) if inside else None for i in ties}
    listed = min(ties, key=lambda i: (*place_of_tie(known[i], predicted[i]), -measured[i]))
    return RankingGroup(
        run.model.name,
        gpu_called(run.cluster.gpu) or "",
        run.cluster.num_gpus or 0,
        run.runtime,
        len(layouts),
        spearman(predicted, measured),
        measured[picked] / best - 1,
        len(ties),
        measured[listed] / best - 1,
        min(measured[i] for i in ties) / best - 1,
    )


def sizes_of(groups: Sequence[RankingGroup]) -> Iterator[RankingSize]:
    """Means by the number of layouts, few first."""
    for least, beyond in zip(SIZES, (*SIZES[1:], None), strict=True):
        own = [
            g for g in groups if g.num_layouts >= least and (not beyond or g.num_layouts < beyond)
        ]
        if own:
            yield RankingSize(
                f"{least} to {beyond - 1}" if beyond else f"{least} or more",
                len(own),
                fmean(one.spearman for one in own),
                fmean(one.regret_fraction for one in own),
                fmean(one.near_ties for one in own),
                fmean(one.regret_by_evidence_fraction for one in own),
                fmean(one.regret_after_ties_fraction for one in own),
            )
