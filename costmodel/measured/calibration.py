"""A machine as its measured steps say it is.

The scalars enter through `Machine`, which bounds and simulation share, so what is proven about one
holds for the other.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from hashlib import sha256

from trainplan.costmodel import catalog
from trainplan.costmodel.base import SpecError
from trainplan.costmodel.machine import Machine
from trainplan.costmodel.machine.hardware import Provenance
from trainplan.costmodel.machine.reserve import with_reserve
from trainplan.costmodel.measured.profile import measured_machine, profile_notes
from trainplan.costmodel.pipeline.node_groups import group_jobs
from trainplan.costmodel.spec import Job
from trainplan.costmodel.spec.evidence.calibration import Calibration, Scalars
from trainplan.costmodel.spec.evidence.measured_run import MeasuredRun
from trainplan.costmodel.spec.evidence.profile import Profile


@dataclass(frozen=True, slots=True)
class Measured:
    """What is known of a machine beyond the catalog.

    A calibration corrects what it was fitted on: the catalog, or the profile beside it.
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
        """Does it speak of the machine of a run?"""
        gpu = run.cluster.gpu
        return gpu is not None and (catalog.gpu_named(gpu) or gpu) == self.gpu


NOTHING = Measured()


def profile_digest(profile: Profile) -> str:
    """Names the measurements of a profile: the same for the same points in any order."""
    points = sorted(point.model_dump_json() for point in profile.points)
    return sha256("\n".join((profile.gpu, *points)).encode()).hexdigest()[:16]


def agreed(measured: Measured) -> Measured:
    """The same, where the calibration corrects the profile that is beside it.

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
            something else than what is beside it, or the reserve leaves no memory.
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
    machine = measured_machine(job.cluster, job.training.precision, measured.profile)
    machine = calibrated(machine, measured.calibration, job) if measured.calibration else machine
    machine = with_reserve(machine, job.reserve_bytes, job.reserve_host_bytes)
    if len(job.cluster.groups) == 1:
        return machine
    alone = (machine_for(one, measured) for one in group_jobs(job))
    return replace(machine, groups=tuple(alone))


def calibrated(machine: Machine, calibration: Calibration, job: Job) -> Machine:
    """The machine with the scalars of a calibration, and their provenance."""
    same = (calibration.runtime, calibration.precision) == (job.runtime, job.training.precision)
    return replace(
        with_scalars(machine, calibration.scalars),
        provenance=_provenance(machine, calibration),
        calibrated=same,
    )


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
    asked = {
        "runtime": (calibration.runtime, job.runtime),
        "precision": (calibration.precision, job.training.precision),
    }
    speed, count = calibration.speed, len(calibration.runs)
    found = [
        f"calibrated on {count} measured run{'s' if count > 1 else ''} of {calibration.gpu}: "
        f"speed {speed.value:.3g} of the {calibration.corrected}'s (80 %: {speed.low:.3g} to "
        f"{speed.high:.3g})"
    ]
    found += [
        f"calibrated on {name} {measured}, asked for {wanted}: steps may be off by more"
        for name, (measured, wanted) in asked.items()
        if measured != wanted
    ]
    if job.model.name not in calibration.models:
        found.append(
            f"calibrated on {' and '.join(calibration.models)}: steps of another model are "
            "corrected less well than those of another layout"
        )
    return tuple(found)


def _provenance(machine: Machine, calibration: Calibration) -> tuple[Provenance, ...]:
    """Fitted and assumed numbers become measured; datasheet numbers only where a scalar acts."""
    count = len(calibration.runs)
    steps = f"{count} measured step{'s' if count > 1 else ''} ({_listed(calibration)})"
    base = calibration.corrected
    speed = f"{calibration.speed.value:.3g} times the {base}'s speed, from {steps}"
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
