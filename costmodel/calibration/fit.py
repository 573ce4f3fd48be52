"""Fit the scalars of a machine on measured steps.

Runs are priced here and fitted in `measured.scalars`: the speed of the machine, of the families and
of the models that ran. Bandwidth between nodes and fixed overhead are fitted only where the runs
identify them, and where they predict layouts left out of the fit better than the speed alone
does. Where no scalar predicts these better than none, all are refused.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from trainplan.costmodel.base import SpecError
from trainplan.costmodel.calibration.choice import choice_of
from trainplan.costmodel.calibration.effects import effects_of, machine_spread_of, shared_by
from trainplan.costmodel.calibration.machine import profile_digest, with_scalars
from trainplan.costmodel.calibration.scalars import (
    INTER_NODE,
    NETWORK_FACTORS,
    OVERHEAD,
    Fit,
    Steps,
    fit_of,
)
from trainplan.costmodel.candidates import context_of
from trainplan.costmodel.columns import FloatColumn
from trainplan.costmodel.documents import (
    Calibration,
    CalibrationRun,
    FittedFactor,
    FittedScalar,
    Scalars,
    SharedSpeed,
)
from trainplan.costmodel.job import Job, Precision
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.layouts import LayoutTable
from trainplan.costmodel.machine import Machine, machine_of
from trainplan.costmodel.measured import measured_machine
from trainplan.costmodel.model import model_flop_per_step
from trainplan.costmodel.profiles import Profile
from trainplan.costmodel.step import step_seconds
from trainplan.costmodel.uncertainty import NORMAL_80

LEAST_HARM = 1e-4
"""By how much left-out layouts must be predicted worse for scalars to be refused.

Source: assumed; below it is the rounding of a measured step time.
"""
NO_FACTOR = FittedFactor(value=1.0, low=1.0, high=1.0, identified=False)
NO_OVERHEAD = FittedScalar(value=0.0, low=0.0, high=0.0, identified=False)
"""Scalars that change nothing."""


@dataclass(frozen=True, slots=True)
class Observation:
    """One measured step and what ran."""

    id: str
    source: str
    job: Job
    layout: Layout
    step_time_s: float


@dataclass(frozen=True, slots=True)
class RunKind:
    """Runs that share one calibration."""

    gpu: str
    precision: Precision
    runtime: str

    def __str__(self) -> str:
        return f"{self.gpu} {self.precision} {self.runtime}"


def kind_of(observation: Observation) -> RunKind:
    """GPU, precision and runtime of a run.

    Raises:
        SpecError: Its cluster mixes GPUs.
    """
    job = observation.job
    gpus = sorted({group.gpu for group in job.cluster.groups})
    if len(gpus) > 1:
        raise SpecError(
            f"{observation.id}: ran on {' and '.join(gpus)}: a calibration is of one kind of GPU"
        )
    return RunKind(gpus[0], job.training.precision, job.runtime)


def kinds_of(observations: Iterable[Observation]) -> Mapping[RunKind, tuple[Observation, ...]]:
    """Runs by kind, the largest group first.

    Raises:
        SpecError: As `kind_of`.
    """
    groups: dict[RunKind, list[Observation]] = {}
    for observation in observations:
        groups.setdefault(kind_of(observation), []).append(observation)
    ranked = sorted(groups.items(), key=lambda item: (-len(item[1]), str(item[0])))
    return MappingProxyType({kind: tuple(group) for kind, group in ranked})


def calibrate(observations: Sequence[Observation], profile: Profile | None = None) -> Calibration:
    """Fit the scalars that the runs identify, on the machine of the catalog or of a profile.

    Raises:
        SpecError: No run, runs of several GPUs, precisions or runtimes, or a profile of another.
        PlanError: A run names something unknown.
    """
    kinds = kinds_of(observations)
    if len(kinds) != 1:
        raise SpecError(
            "one calibration is of one GPU, precision and runtime; these runs are of "
            f"{len(kinds)}: {', '.join(map(str, kinds)) or 'none'}"
        )
    (kind,) = kinds
    if profile and profile.gpu != kind.gpu:
        raise SpecError(
            f"the profile was measured on {profile.gpu}, the runs are of {kind.gpu}: give one of "
            "that GPU, or leave --profile out"
        )
    steps = _steps(observations, profile)
    _check_magnitude(observations, steps)
    choice = choice_of(steps)
    fit = fit_of(steps, choice.free)
    before = _predicted(observations, profile, [Scalars() for _ in observations])
    without = _median_error(before, steps.measured)
    refused = choice.error is not None and choice.error > without + LEAST_HARM
    scalars = [Scalars() if refused else fit.scalars(*_effects_of(o)) for o in observations]
    after = _predicted(observations, profile, scalars)
    return Calibration(
        gpu=kind.gpu,
        precision=kind.precision,
        runtime=kind.runtime,
        models=tuple(dict.fromkeys(o.job.model.name for o in observations)),
        profile_digest=profile_digest(profile) if profile else None,
        speed=NO_FACTOR if refused else _speed(fit),
        log_speed_spread=fit.log_speed()[1],
        speeds=() if refused else tuple(_speeds(fit, observations)),
        inter_node_bandwidth=NO_FACTOR if refused else _bandwidth(fit),
        fixed_overhead_seconds=NO_OVERHEAD if refused else _overhead(fit),
        error_before_fraction=without,
        error_after_fraction=_median_error(after, steps.measured),
        error_left_out_fraction=choice.error,
        refused=refused,
        runs=tuple(
            CalibrationRun(
                id=run.id,
                source=run.source,
                measured_step_time_s=run.step_time_s,
                before_step_time_s=float(before[row]),
                after_step_time_s=float(after[row]),
            )
            for row, run in enumerate(observations)
        ),
    )


def _check_magnitude(observations: Sequence[Observation], steps: Steps) -> None:
    """Is every run what its record states, to an order of magnitude?

    Raises:
        SpecError: A step is many times as long or short as predicted.
    """
    factors = np.exp(steps.log_predicted(np.zeros_like(steps.start))) / steps.measured
    for run, factor in zip(observations, factors.tolist(), strict=True):
        if not FittedFactor.LEAST < factor < FittedFactor.LARGEST:
            raise SpecError(
                f"{run.id}: the measured step of {run.step_time_s:.4g} s is {1 / factor:.3g} times "
                "the predicted one: check its unit, its batch and what ran"
            )
        _check_speed(run)


def _check_speed(run: Observation) -> None:
    """Is it no faster than its GPUs can multiply?

    Raises:
        SpecError: Not even at the datasheet's peak.
    """
    machine = machine_of(run.job.cluster, run.job.training.precision)
    peak = machine.peak_flop_per_second * run.job.cluster.num_gpus
    mfu = model_flop_per_step(run.job) / run.step_time_s / peak
    if mfu > 1:
        raise SpecError(
            f"{run.id}: a step of {run.step_time_s:.4g} s takes {mfu:.3g} times the peak FLOP/s of "
            f"{run.job.cluster.num_gpus} GPUs: check its unit (tokens_per_s_per_gpu is of one), "
            "its batch and what ran"
        )


def _steps(observations: Sequence[Observation], profile: Profile | None) -> Steps:
    priced = [_priced_steps(observation, profile) for observation in observations]
    shared = [shared_by(o.job, o.layout) for o in observations]
    effects = effects_of(shared, machine_spread_of(observations[0].job))
    return Steps(np.array([o.step_time_s for o in observations]), np.log(np.array(priced)), effects)


def _effects_of(observation: Observation) -> tuple[str, str]:
    shared = shared_by(observation.job, observation.layout)
    return shared.family, shared.job


def _machine(job: Job, profile: Profile | None) -> Machine:
    training = job.training
    return measured_machine(job.cluster, training.precision, profile, optimizer=training.optimizer)


def _priced_steps(observation: Observation, profile: Profile | None) -> FloatColumn:
    """Step time of a run with each network factor.

    Source: as `costmodel.step.simulate.step_seconds`.
    """
    job, table = observation.job, LayoutTable.of([observation.layout])
    machine = _machine(job, profile)
    candidates = context_of(job, machine).with_table(table)

    def seconds(machine: Machine) -> float:
        return float(step_seconds(replace(candidates, machine=machine))[0])

    if math.isinf(machine.nic_bytes_per_second):
        return np.full(len(NETWORK_FACTORS), seconds(machine))
    factors = (Scalars(inter_node_bandwidth=float(factor)) for factor in NETWORK_FACTORS)
    return np.array([seconds(with_scalars(machine, scalars)) for scalars in factors])


def _predicted(
    observations: Sequence[Observation], profile: Profile | None, scalars: Sequence[Scalars]
) -> FloatColumn:
    """Step time of every run under scalars of its own.

    Source: as `costmodel.step.simulate.step_seconds`.
    """
    times = []
    for observation, own in zip(observations, scalars, strict=True):
        job, table = observation.job, LayoutTable.of([observation.layout])
        machine = with_scalars(_machine(job, profile), own)
        times.append(float(step_seconds(context_of(job, machine).with_table(table))[0]))
    return np.array(times)


def _speed(fit: Fit, *names: str) -> FittedFactor:
    """Speed of a job that has these effects."""
    return _factor(*fit.log_speed(*names), identified=True)


def _speeds(fit: Fit, observations: Sequence[Observation]) -> Iterator[SharedSpeed]:
    """Of the families and models that ran, in order of their names."""
    found = {shared_by(o.job, o.layout).job: shared_by(o.job, o.layout) for o in observations}
    for family in sorted({one.family for one in found.values()}):
        spread = fit.log_speed(family)[1]
        yield SharedSpeed(family=family, speed=_speed(fit, family), log_speed_spread=spread)
    for name, one in sorted(found.items()):
        yield SharedSpeed(
            family=one.family,
            model=one.model,
            seq_length=one.seq_length,
            speed=_speed(fit, one.family, name),
            log_speed_spread=fit.log_speed(one.family, name)[1],
        )


def _bandwidth(fit: Fit) -> FittedFactor:
    value, spread = float(fit.theta[INTER_NODE]), float(fit.spread[INTER_NODE])
    return _factor(value, spread, identified=bool(fit.free[INTER_NODE]))


def _factor(value: float, spread: float, *, identified: bool) -> FittedFactor:
    half = NORMAL_80 * spread
    return FittedFactor(
        value=math.exp(value),
        low=math.exp(value - half),
        high=math.exp(value + half),
        identified=identified,
    )


def _overhead(fit: Fit) -> FittedScalar:
    value, half = float(fit.theta[OVERHEAD]), NORMAL_80 * float(fit.spread[OVERHEAD])
    return FittedScalar(
        value=value,
        low=max(0.0, value - half),
        high=value + half,
        identified=bool(fit.free[OVERHEAD]),
    )


def _median_error(predicted: FloatColumn, measured: FloatColumn) -> float:
    return float(np.median(np.abs(predicted / measured - 1)))
