"""Files of `--profile`: profiles, `trainplan/profile/v1`, and calibrations."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from trainplan.cli.files.documents import Document, read_document
from trainplan.cli.files.inputs import load_cluster
from trainplan.cli.files.readable import is_folder, is_there
from trainplan.costmodel.base import SpecError
from trainplan.costmodel.calibration import Measured, agreed
from trainplan.costmodel.documents import Calibration, Constants
from trainplan.costmodel.hardware import ClusterSpec, parse_cluster
from trainplan.costmodel.measured import with_measured_drives
from trainplan.costmodel.profiles import Profile
from trainplan.costmodel.spec import Sourced, Spec
from trainplan.profiler import fit

ABOVE_ZERO = ("flop_factor", "bus_gb_per_s", "max_efficiency", "value")
"""Numbers of a curve that something is divided by; the others may be zero."""


def load_measured(paths: Sequence[Path], *, alone: bool = True) -> Measured:
    """Read all files of `--profile`; several profiles merge.

    Not `alone`, a profile in `--cluster` may follow, and whether a calibration corrects what is
    with it is printed then.

    Raises:
        FileError: A file cannot be read, is neither a profile nor a calibration, or is wrong.
        SpecError: Two calibrations, one of something else, or profiles of different GPUs.
    """
    documents = [read_document(path) for path in paths]
    calibrations = [d for d in documents if d.values.get("schema") == Calibration.SCHEMA]
    if len(calibrations) > 1:
        raise SpecError(
            f"--profile {calibrations[1].path}: a second calibration; calibrate once, on all runs"
        )
    profiles = [profile_of(d) for d in documents if d not in calibrations]
    measured = Measured(
        profile=fit.merged(profiles) if profiles else None,
        calibration=_calibration_of(calibrations[0]) if calibrations else None,
    )
    return agreed(measured) if alone else measured


def profile_of(document: Document) -> Profile:
    """A profile out of its document.

    Raises:
        FileError: It is none, is of another version, or wrong.
    """
    values = dict(document.values)
    schema = values.pop("schema", None)
    if schema is None and "groups" in values:
        raise document.error("a cluster file is YAML: name it .yaml, and JSON in it is read")
    if schema is None:
        raise document.error(
            "neither a profile nor a calibration: the key 'schema' is missing; `plan profile` and "
            "`plan calibrate` write it"
        )
    if schema != Profile.SCHEMA:
        raise document.error(
            f"schema {str(schema)[:60]!r} is neither {Profile.SCHEMA!r} nor "
            f"{Calibration.SCHEMA!r}: "
            "make it with `plan profile` or `plan calibrate` of this version"
        )
    profile = Document(document.path, values, document.root).validated(Profile)
    for field, allowed in _numbers(profile):
        if not allowed:
            raise document.error("no number that a machine can have; measure anew", field)
    return profile


def _numbers(profile: Profile) -> Iterator[tuple[tuple[str, ...], bool]]:
    """Fields that formulas take as they are, and whether they can."""
    for name, constant in profile.constants.items():
        yield ("constants", name), name in Constants.model_fields and constant.value > 0
    fitted = profile.fitted
    curves: Mapping[tuple[str, ...], Spec] = {
        **{("gemm", name): curve for name, curve in fitted.gemm.items()},
        **{("collectives", name): curve for name, curve in fitted.collectives.items()},
        **{("sustained", name): value for name, value in fitted.sustained.items()},
        **({("attention",): fitted.attention} if fitted.attention else {}),
    }
    for where, curve in curves.items():
        for name, value in curve:
            if isinstance(value, float):
                least_is_above = name in ABOVE_ZERO
                yield ("fitted", *where, name), value > 0 if least_is_above else value >= 0
    for name, number in profile.device or ():
        if isinstance(number, Sourced) and name != "host_factor":
            yield ("device", name), number.value > 0


def machines_of(text: str, measured: Measured) -> tuple[ClusterSpec, Measured]:
    """The cluster that `--cluster` names, and with a profile for a cluster what it measured.

    A device the catalog does not have takes its numbers from `--profile`, nodes
    without stated drives the drive that was measured.

    Raises:
        PlanError: As `load_cluster`, a second profile of another GPU, or a calibration of
            something else.
    """
    cluster, whole = _machines_of(text, measured)
    return with_measured_drives(cluster, whole.profile) if whole.profile else cluster, whole


def _machines_of(text: str, measured: Measured) -> tuple[ClusterSpec, Measured]:
    path = Path(text)
    if path.suffix == ".json" and is_there(path) and not is_folder(path):
        profile = profile_of(read_document(path))
        others = [measured.profile] if measured.profile else []
        whole = replace(measured, profile=fit.merged([profile, *others]))
        return fit.cluster_of(profile), agreed(whole)
    measured = agreed(measured)
    if measured.profile and measured.profile.device and text.endswith(f":{measured.profile.gpu}"):
        return with_device(parse_cluster(text), measured.profile), measured
    return load_cluster(text), measured


def with_device(cluster: ClusterSpec, profile: Profile) -> ClusterSpec:
    """The cluster with the numbers of the profile's device where it has that."""
    groups = tuple(
        group.model_copy(update={"device": profile.device}) if group.gpu == profile.gpu else group
        for group in cluster.groups
    )
    return cluster.model_copy(update={"groups": groups})


def profile_text(profile: Profile) -> str:
    """A profile as its file: one point a line, so that a diff shows what changed."""
    lines = []
    for key, value in profile.document().items():
        if isinstance(value, list) and value:
            inner = ",\n".join("  " + json.dumps(one, ensure_ascii=False) for one in value)
            lines.append(f"{json.dumps(key)}: [\n{inner}\n ]")
        else:
            lines.append(f"{json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}")
    return "{" + ",\n ".join(lines) + "}\n"


def _calibration_of(document: Document) -> Calibration:
    """A calibration out of a document with its schema.

    Raises:
        FileError: It is wrong.
    """
    values = {name: value for name, value in document.values.items() if name != "schema"}
    return Document(document.path, values, document.root).validated(Calibration)
