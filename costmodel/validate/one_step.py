"""What one measured step of another layout, on the same machine and software, buys."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from trainplan.costmodel.calibration import Shared, fit_of_one, machine_spread, shared_by
from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.uncertainty import seen
from trainplan.costmodel.validate.cases.names import gpu_called
from trainplan.costmodel.validate.steps import TimedRow, mean_of_medians

Kinship = Callable[[Shared, Shared], bool]


@dataclass(frozen=True, slots=True)
class Calibrated:
    """Median absolute error of one source before and after."""

    source: str
    """Name."""
    n: int
    """Runs with a partner."""
    before_fraction: float
    """Median error without."""
    after_fraction: float
    """Each run counts once: with the median over its partners."""


@dataclass(frozen=True, slots=True)
class OneStep:
    """All sources, and the mean of their medians with small sources pooled."""

    sources: tuple[Calibrated, ...]
    before_fraction: float
    after_fraction: float


@dataclass(frozen=True, slots=True)
class OneSteps(OneStep):
    """With partners of the family of each run, and of others."""

    same_model: OneStep | None
    """With partners of the same model and sequence length alone."""
    other_family: OneStep | None
    """With partners of another family."""


@dataclass(frozen=True, slots=True)
class Step:
    """A measured step against its prediction."""

    source: str
    machine: tuple[str | None, ...]
    """GPU, precision, runtime and source: steps that share them ran the same way."""
    shared: Shared
    log_off: float
    """Logarithm of predicted over measured."""
    seen: bool
    """Were the constants fitted on runs of such a machine?"""


def same_model(one: Shared, other: Shared) -> bool:
    """Are both of one model at one sequence length?"""
    return one.job == other.job


def same_family(one: Shared, other: Shared) -> bool:
    """Are both of one family, or even one model?"""
    return one.family == other.family


def other_family(one: Shared, other: Shared) -> bool:
    """Are they of different families?"""
    return one.family != other.family


def step_of(row: TimedRow) -> Step:
    """A row as a step; its machine was seen where its kind is in `catalog/intervals.toml`."""
    off = math.log(row.predicted_s / row.measured_s)
    gpu = gpu_called(row.run.cluster.gpu)
    ran = row.job, row.layout
    return measured_step(row.run.source_group, ran, off, gpu, was_seen=seen(row.job))


def measured_step(
    source: str, ran: tuple[Job, Layout], log_off: float, gpu: str | None, *, was_seen: bool
) -> Step:
    """A step of a source, with how far off it was predicted."""
    job, layout = ran
    machine = gpu, job.training.precision, job.runtime, source
    return Step(source, machine, shared_by(job, layout), log_off, was_seen)


def after_one_step(rows: Iterable[TimedRow]) -> OneSteps | None:
    """Each run predicted after a partner of another layout was measured; null: none has one."""
    return scored([step_of(row) for row in rows])


def scored(steps: Sequence[Step]) -> OneSteps | None:
    """The same of steps.

    The speed that `plan calibrate` takes from the partner alone divides the prediction. Partners
    share GPU, precision, runtime and source.
    """
    partners = Partners(steps)
    found = _over_sources(partners, same_family)
    if found is None:
        return None
    model, other = (_over_sources(partners, kin) for kin in (same_model, other_family))
    return OneSteps(found.sources, found.before_fraction, found.after_fraction, model, other)


def errors_after_one_step(rows: Iterable[TimedRow]) -> Iterator[tuple[TimedRow, tuple[float, ...]]]:
    """Every run that has partners of its family, with its signed error after each was measured."""
    kept = list(rows)
    found = Partners([step_of(row) for row in kept]).errors(same_family)
    for row, errors in zip(kept, found, strict=True):
        if errors:
            yield row, errors


class Partners:
    """Steps, each with what it shows of the others of its machine."""

    def __init__(self, steps: Sequence[Step]) -> None:
        """Fits every step alone."""
        self.steps = steps
        self._machines: dict[object, list[tuple[Shared, Callable[[Shared], float]]]] = {}
        for step in steps:
            self._machines.setdefault(step.machine, []).append((step.shared, _speeds(step)))

    def errors(self, kin: Kinship) -> Iterator[tuple[float, ...]]:
        """Signed errors of every step, after each partner of another layout that is its kin."""
        for step in self.steps:
            own = step.shared
            yield tuple(
                math.expm1(step.log_off - speed(own))
                for partner, speed in self._machines[step.machine]
                if partner.layout != own.layout and kin(partner, own)
            )


def _speeds(partner: Step) -> Callable[[Shared], float]:
    """Log speed of what shares something with a step that was measured."""
    one = partner.shared
    fit = fit_of_one(one, partner.log_off, machine_spread(was_seen=partner.seen))
    machine, family, model = (
        fit.log_speed(*names)[0] for names in ((), (one.family,), (one.family, one.job))
    )

    def speed(other: Shared) -> float:
        if same_model(one, other):
            return model
        return family if same_family(one, other) else machine

    return speed


def _over_sources(partners: Partners, kin: Kinship) -> OneStep | None:
    """The error of every source, and their mean; null: no step has a partner."""
    before: dict[str, list[float]] = {}
    after: dict[str, list[float]] = {}
    for step, errors in zip(partners.steps, partners.errors(kin), strict=True):
        if errors:
            before.setdefault(step.source, []).append(abs(math.expm1(step.log_off)))
            after.setdefault(step.source, []).append(median(map(abs, errors)))
    means = [mean_of_medians(group.items()) for group in (before, after)]
    if not means[0] or not means[1]:
        return None
    sources = tuple(
        Calibrated(name, len(errors), median(errors), median(after[name]))
        for name, errors in sorted(before.items())
    )
    return OneStep(sources, means[0][0], means[1][0])
