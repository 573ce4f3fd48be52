"""What one measured step of another layout, on the same machine and software, buys."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from trainplan.costmodel.measured.scalars import speed_from_one_step
from trainplan.costmodel.validate.cases.names import gpu_called
from trainplan.costmodel.validate.steps import TimedRow, mean_of_medians


@dataclass(frozen=True, slots=True)
class Calibrated:
    """Median absolute error of one source before and after."""

    source: str
    n: int
    """Runs with a partner."""
    before_fraction: float
    after_fraction: float
    """Over all pairs of a run and a partner."""


@dataclass(frozen=True, slots=True)
class OneStep:
    """All sources, and the mean of their medians with small sources pooled."""

    sources: tuple[Calibrated, ...]
    before_fraction: float
    after_fraction: float


@dataclass(frozen=True, slots=True)
class _Row:
    source: str
    before: float
    after: tuple[float, ...]


def after_one_step(rows: Iterable[TimedRow]) -> OneStep | None:
    """Each run predicted after a partner of unlike layout was measured; null: no run has one.

    The speed that `plan calibrate` takes from the partner alone divides the prediction. Partners
    share GPU, precision, runtime and source.
    """
    found = [
        _Row(row.run.source_group, row.error_fraction, errors)
        for row, errors in errors_after_one_step(rows)
    ]
    if not found:
        return None
    sources: dict[str, list[_Row]] = {}
    for one in found:
        sources.setdefault(one.source, []).append(one)
    before = mean_of_medians(
        (name, [one.before for one in group]) for name, group in sources.items()
    )
    after = mean_of_medians((name, _pairs(group)) for name, group in sources.items())
    assert before
    assert after
    return OneStep(
        tuple(_calibrated(name, group) for name, group in sorted(sources.items())),
        before[0],
        after[0],
    )


def errors_after_one_step(
    rows: Iterable[TimedRow],
) -> Iterator[tuple[TimedRow, tuple[float, ...]]]:
    """Every run that has partners, with its signed error after each of them was measured."""
    machines: dict[object, list[TimedRow]] = {}
    for row in rows:
        run = row.run
        key = (gpu_called(run.cluster.gpu), run.training.precision, run.runtime, run.source_group)
        machines.setdefault(key, []).append(row)
    for group in machines.values():
        speeds = [speed_from_one_step(row.measured_s, row.predicted_s) for row in group]
        for row in group:
            after = tuple(
                row.predicted_s / speed / row.measured_s - 1
                for partner, speed in zip(group, speeds, strict=True)
                if partner.prediction.layout != row.prediction.layout
            )
            if after:
                yield row, after


def _pairs(group: Iterable[_Row]) -> list[float]:
    return [error for one in group for error in one.after]


def _calibrated(name: str, group: Sequence[_Row]) -> Calibrated:
    return Calibrated(
        name,
        len(group),
        median(abs(one.before) for one in group),
        median(map(abs, _pairs(group))),
    )
