"""A machine as its measured steps show it.

The scalars enter through `Machine`, which bounds and simulation share, so what is proven about one
holds for the other.
"""

from dataclasses import dataclass, replace
from hashlib import sha256

from trainplan.costmodel import catalog
from trainplan.costmodel.base import SpecError
from trainplan.costmodel.calibration.effects import family_of
from trainplan.costmodel.candidates import Context, context_of
from trainplan.costmodel.documents import (
    Calibration,
    FittedFactor,
    MeasuredRun,
    Scalars,
    SharedSpeed,
)
from trainplan.costmodel.job import Job
from trainplan.costmodel.machine import Machine, Provenance, with_reserve
from trainplan.costmodel.measured import measured_machine, profile_notes
from trainplan.costmodel.outer import with_outer
from trainplan.costmodel.pipeline import group_jobs
from trainplan.costmodel.profiles import Profile
from trainplan.costmodel.uncertainty import calibrated_regime


@dataclass(frozen=True, slots=True)
class Measured:
    """What is known of a machine beyond the catalog.

    A calibration corrects what it was fitted on: the catalog, or the profile given with it.
    """

    profile: Profile | None = None
    """Measurements of its parts."""
    calibration: Calibration | None = None
    """How fast whole steps ran."""

    @property
    def gpu(self) -> str | None:
        """The GPU it is of; null: nothing was measured."""
        known = self.profile or self.calibration
        return known.gpu if known else None

    def corrects(self, run: MeasuredRun) -> bool:
        """Is it of the machine of a run?"""
        gpu = run.cluster.gpu
        return gpu is not None and (catalog.gpu_named(gpu) or gpu) == self.gpu


NOTHING = Measured()


def profile_digest(profile: Profile) -> str:
    """Names the measurements of a profile: the same for the same points in any order."""
    points = sorted(point.model_dump_json() for point in profile.points)
    return sha256("\n".join((profile.gpu, *points)).encode()).hexdigest()[:16]


def agreed(measured: Measured) -> Measured:
    """The same, where the calibration corrects the profile given with it.

    Raises:
        SpecError: It was fitted on another profile, or on the catalog.
    """
    _check_both_or_none(measured)
    profile, calibration = measured.profile, measured.calibration
    if profile and calibration and profile_digest(profile) != calibration.profile_digest:
        raise SpecError(
            "this calibration corrects another profile: fit it again, with `plan calibrate "
            "--profile` of all files of this one"
        )
    return measured


def _check_both_or_none(measured: Measured) -> None:
    calibration = measured.calibration
    if calibration and measured.profile and not calibration.profile_digest:
        raise SpecError(
            "this calibration corrects the catalog, not a profile: fit it on top of the profile, "
            "with `plan calibrate --profile`, or give one or the other"
        )
    if calibration and calibration.profile_digest and not measured.profile:
        raise SpecError(
            "this calibration corrects a profile: give that with --profile as well, or fit it "
            "without one"
        )


def machine_for(job: Job, measured: Measured = NOTHING) -> Machine:
    """The machine of a job as it was measured.

    Raises:
        SpecError: The profile or the calibration is of another GPU, or the calibration corrects
            something else than what is given with it, or the reserve leaves no memory.
        PlanError: As `machine_of`.
    """
    _check_both_or_none(measured)
    others = sorted({group.gpu for group in job.cluster.groups} - {measured.gpu})
    if others and measured.gpu:
        what = "profile was measured" if measured.profile else "calibration was fitted"
        raise SpecError(
            f"the {what} on {measured.gpu}, the cluster has {' and '.join(others)}: give one of "
            "that GPU, or leave --profile out"
        )
    training = job.training
    machine = measured_machine(
        job.cluster, training.precision, measured.profile, optimizer=training.optimizer
    )
    machine = calibrated(machine, measured.calibration, job) if measured.calibration else machine
    machine = with_reserve(machine, job.reserve_bytes, job.reserve_host_bytes)
    machine = with_outer(machine, job)
    if len(job.cluster.groups) == 1:
        return machine
    alone = (machine_for(one, measured) for one in group_jobs(job))
    return replace(machine, groups=tuple(alone))


def context_for(job: Job, measured: Measured = NOTHING) -> Context:
    """A job resolved: with its machine as it was measured, and the traits of its runtime.

    Raises:
        PlanError: As `machine_for` and `traits_of`.
    """
    return context_of(job, machine_for(job, measured))


def calibrated(machine: Machine, calibration: Calibration, job: Job) -> Machine:
    """The machine with the scalars of a calibration, and their provenance.

    Steps that need no correction have validated the parts as well as those that do.
    """
    machine = replace(machine, unvalidated=False)
    if calibration.refused:
        return machine
    return replace(
        with_scalars(machine, scalars_for(job, calibration)),
        provenance=_provenance(machine, calibration, job),
        calibrated=_same_kind(job, calibration)
        and _names(job, calibration)
        and _is_known(job, calibration),
    )


def scalars_for(job: Job, calibration: Calibration) -> Scalars:
    """What a calibration states of a job."""
    return Scalars(
        speed=speed_for(job, calibration).value,
        inter_node_bandwidth=calibration.inter_node_bandwidth.value,
        fixed_overhead_seconds=calibration.fixed_overhead_seconds.value,
    )


def speed_for(job: Job, calibration: Calibration) -> FittedFactor:
    """Speed of a job: that of its model, its family or all jobs, whichever was measured.

    Another precision or runtime has a share of what all jobs have.

    Source: costmodel/catalog/spreads.toml, `carried`.
    """
    if _same_kind(job, calibration):
        known = shared_speed(job, calibration)
        return known.speed if known else calibration.speed
    speed, share = calibration.speed, catalog.spreads().runs.carried.value
    value = speed.value**share
    low, high = (value * end / speed.value for end in (speed.low, speed.high))
    return speed.model_copy(update={"value": value, "low": low, "high": high})


def shared_speed(job: Job, calibration: Calibration) -> SharedSpeed | None:
    """The speed of the jobs most like this one; null: no run was of its model or family."""
    family, model, length = family_of(job.model), job.model.name, job.training.seq_length
    for one in ((family, model, length), (family, None, None)):
        for known in calibration.speeds:
            if (known.family, known.model, known.seq_length) == one:
                return known
    return None


def _same_kind(job: Job, calibration: Calibration) -> bool:
    kind = calibration.runtime, calibration.precision
    return kind == (job.runtime, job.training.precision)


def _names(job: Job, calibration: Calibration) -> bool:
    """Is it of the model or family of the job? Earlier releases knew one speed for all."""
    return not calibration.speeds or shared_speed(job, calibration) is not None


def _is_known(job: Job, calibration: Calibration) -> bool:
    """Is the speed known as well as steps are after a measured one? A run far off leaves it open.

    Source: costmodel/catalog/intervals.toml, the regimes of calibrated machines.
    """
    speed = speed_for(job, calibration)
    least, most = catalog.intervals().regimes[calibrated_regime(job)].factors
    return speed.high * least <= speed.low * most


def with_scalars(machine: Machine, scalars: Scalars) -> Machine:
    """The machine with other scalars: `step.estimate.with_overhead` applies two of them."""
    return replace(
        machine,
        speed=machine.speed * scalars.speed,
        nic_bytes_per_second=machine.nic_bytes_per_second * scalars.inter_node_bandwidth,
        fixed_overhead_seconds=machine.fixed_overhead_seconds + scalars.fixed_overhead_seconds,
    )


def measured_notes(job: Job, measured: Measured) -> tuple[str, ...]:
    """What was measured, and where the job is not quite that."""
    of_profile = profile_notes(job, measured.profile) if measured.profile else ()
    of_steps = calibration_notes(job, measured.calibration) if measured.calibration else ()
    return (*of_profile, *of_steps)


def calibration_notes(job: Job, calibration: Calibration) -> tuple[str, ...]:
    """What was measured, and where the job is not quite that."""
    count = len(calibration.runs)
    runs = f"{count} measured run{'s' if count > 1 else ''} of {calibration.gpu}"
    if calibration.refused:
        return (f"the calibration on {runs} changes nothing: {refusal(calibration)}",)
    speed = speed_for(job, calibration)
    found = [
        f"calibrated on {runs}: speed {speed.value:.3g} of the {calibration.corrected}'s (80 %: "
        f"{speed.low:.3g} to {speed.high:.3g})"
    ]
    pairs = {
        "runtime": (calibration.runtime, job.runtime),
        "precision": (calibration.precision, job.training.precision),
    }
    found += [
        f"calibrated on {name} {measured}, requested {wanted}: a part of the speed is carried over"
        for name, (measured, wanted) in pairs.items()
        if measured != wanted
    ]
    if job.model.name not in calibration.models:
        found.append(
            f"calibrated on {' and '.join(calibration.models)}: steps of another model are "
            "corrected less, by what they have in common"
        )
    return tuple(found)


def refusal(calibration: Calibration) -> str:
    """Why it was refused, with the numbers."""
    before, left_out = calibration.error_before_fraction, calibration.error_left_out_fraction or 0.0
    return (
        f"layouts predicted from the others are {100 * left_out:.1f} % off with a correction, "
        f"{100 * before:.1f} % without"
    )


def _provenance(machine: Machine, calibration: Calibration, job: Job) -> tuple[Provenance, ...]:
    """Fitted and assumed numbers become measured; datasheet numbers only where a scalar acts."""
    count = len(calibration.runs)
    steps = f"{count} measured step{'s' if count > 1 else ''} ({_listed(calibration)})"
    base = calibration.corrected
    speed = f"{speed_for(job, calibration).value:.3g} times the {base}'s speed, from {steps}"
    nic = calibration.inter_node_bandwidth
    network = f"{nic.value:.3g} times the datasheet, from {steps}"
    kept = [
        Provenance(p.quantity, "measured", f"{network}; datasheet: {p.source}")
        if p.quantity.endswith(" NIC") and nic.identified
        else Provenance(p.quantity, "measured", f"{speed}; {base}: {p.source}")
        if p.kind != "datasheet"
        else p
        for p in machine.provenance
    ]
    overhead = calibration.fixed_overhead_seconds
    if overhead.identified:
        kept.append(
            Provenance("fixed overhead", "measured", f"{overhead.value:.3g} s a step, from {steps}")
        )
    return tuple(kept)


SHOWN_RUNS = 3


def _listed(calibration: Calibration) -> str:
    names = [run.id for run in calibration.runs]
    more = len(names) - SHOWN_RUNS
    return ", ".join(names[:SHOWN_RUNS]) + (f" and {more} more" if more > 0 else "")
