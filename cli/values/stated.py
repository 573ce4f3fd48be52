"""What the shared options state: job, machine, settings of the runtime, where the answer goes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import get_args

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from trainplan.cli import words
from trainplan.cli.files import (
    is_there,
    load_measured,
    load_model,
    load_routing,
    refuse_existing,
    try_writing,
    write_text,
)
from trainplan.cli.terminal import json_text, named, remark
from trainplan.cli.values.lengths import with_lengths
from trainplan.cli.values.machine import machines_stated
from trainplan.cli.values.tower import with_tower
from trainplan.costmodel.base import SpecError, shortened, unknown_name
from trainplan.costmodel.calibration import NOTHING, Measured, precision_note, usual_precision
from trainplan.costmodel.hardware import ClusterSpec
from trainplan.costmodel.job import (
    DEFAULT_RUNTIME,
    Job,
    OptimizerSpec,
    Packing,
    Precision,
    RoutingSpec,
    RuntimeOptions,
    StatePrecision,
    TrainingSpec,
    with_trained,
)
from trainplan.costmodel.run_costs import WORLD_KG_CO2_PER_KWH
from trainplan.costmodel.runtimes import runtime as traits_named
from trainplan.costmodel.runtimes import runtime_with
from trainplan.costmodel.spec import first_complaint
from trainplan.planner.questions import no_cpu
from trainplan.planner.runtimes import TRAINERS, runtime_chosen

WRITTEN = "trainplan.cli.pages.report.registry:written"
"""Imported when a report is requested."""


@dataclass(frozen=True, slots=True)
class ReportFile:
    """Where the answer goes as a page with charts; nowhere without a path."""

    report: Path | None
    force: bool

    def check(self) -> None:
        """Refuse early what could not be written later.

        Raises:
            FileError: The file exists, or its folder or disk refuses it.
        """
        if self.report:
            refuse_existing(self.report, force=self.force)
            try_writing(self.report)

    def write(
        self, document: Mapping[str, object], name: str = "", measured: Measured = NOTHING
    ) -> None:
        """Write the page of a document, as `plan report` would of its file `name`.

        Raises:
            PlanError: The document has nothing to draw, or the folder refuses the file.
        """
        if self.report is None:
            return
        page = named(WRITTEN)(name=name, text=json_text(document), measured=measured)
        assert isinstance(page, str)
        write_text(self.report, page, force=self.force)
        remark(f"wrote {self.report}")


PLAN_FILE = "plan.json"
"""What commands of a page call a plan that was not written."""


@dataclass(frozen=True, slots=True)
class Question:
    """The job, and what the user stated of runtime and machine."""

    job: Job
    notes: tuple[str, ...]
    measured: Measured
    states_runtime: bool
    offers: tuple[tuple[str, Question], ...] = ()
    """The same on each offer, with its name, where offers are compared."""

    def launchable(self) -> Question:
        """The same under a runtime that launch files are written for, where none is stated."""
        return self if self.states_runtime else self._under_chosen(files=True)

    def trained_by(self, name: str) -> Question:
        """The same under a runtime that a trainer has, where none is stated."""
        if self.states_runtime:
            return self
        job, title = TRAINERS[name].chosen(self.job), TRAINERS[name].title
        why = f"runtime {job.runtime}, the first on which {title} trains the job"
        return replace(self, job=job, notes=(why, *self.notes))

    def priced(self) -> Question:
        """The same under a runtime that has a price for it, where the usual one has none."""
        return self._under_chosen(files=False)

    def _under_chosen(self, *, files: bool) -> Question:
        job, why = runtime_chosen(self.job, files=files)
        return replace(self, job=job, notes=(why, *self.notes)) if why else self


def question(
    *,
    model: str,
    tower: str | None = None,
    cluster: str | None,
    nodes: int | None = None,
    gpus: int | None = None,
    gpu: str | None = None,
    nic: str | None = None,
    power_limit: str | None = None,
    price: str | None = None,
    global_batch_size: int,
    seq_length: int | None,
    lengths: str | None,
    packing: Packing | None,
    precision: Precision | None,
    optimizer: str,
    state_precision: StatePrecision,
    tokens: int | None,
    train: str | None,
    loss_tokens: float,
    runtime: str | None,
    runtime_version: str | None,
    runtime_options: RuntimeOptions,
    reserve_bytes: int,
    reserve_host_bytes: int,
    kg_co2_per_kwh: float | str | None = None,
    pue: float | None = None,
    profiles: tuple[Path, ...],
    **failing: object,
) -> Question:
    """The job of `--model` to `--profile`.

    Raises:
        PlanError: A name is unknown, or a file is wrong.
    """
    machines, whole = machines_stated(
        load_measured(profiles, alone=False),
        cluster=cluster,
        nodes=nodes,
        gpus=gpus,
        gpu=gpu,
        nic=nic,
        power_limit=power_limit,
        price=price,
        **failing,
    )
    training = TrainingSpec(
        seq_length=seq_length or 1,
        global_batch_size=global_batch_size,
        precision=precision or usual_precision(machines),
        loss_tokens=loss_tokens,
        tokens=tokens,
        optimizer=OptimizerSpec.parse(optimizer),
        state_precision=state_precision,
    )
    _remark_batch(training)
    training = with_lengths(training, lengths, packing)
    trained = with_trained(with_tower(load_model(model), tower), train)
    chosen = runtime or runtime_with(training, trained if machines.on_cpu else None)
    job = Job(
        model=trained,
        training=training,
        cluster=_with_power(machines, kg_co2_per_kwh, pue),
        runtime=chosen,
        release=runtime_version,
        options=runtime_options,
        reserve_bytes=reserve_bytes,
        reserve_host_bytes=reserve_host_bytes,
    )
    if runtime_version is not None and not runtime_version.strip():
        raise SpecError("--runtime-version is empty: give a release, such as nemo:26.04, or none")
    notes = (*_chosen_notes(runtime, job), *_version_notes(chosen, runtime_version))
    if precision is None and machines.on_cpu:
        notes = (precision_note(machines, whole), *notes)
    stated = Question(job, notes, whole, states_runtime=runtime is not None)
    return stated if runtime or machines.on_cpu else stated.priced()


def _with_power(cluster: ClusterSpec, carbon: float | str | None, pue: float | None) -> ClusterSpec:
    """The cluster with what is stated of its electricity."""
    kg = WORLD_KG_CO2_PER_KWH if isinstance(carbon, str) else carbon
    stated = {"kg_co2_per_kwh": kg, "pue": pue}
    return cluster.model_copy(update={k: v for k, v in stated.items() if v is not None})


def _chosen_notes(stated: str | None, job: Job) -> tuple[str, ...]:
    if job.cluster.on_cpu and not traits_named(job.runtime).trains_on_cpu:
        return (f"{no_cpu(job.runtime)}: the figures are those of its layers on this one",)
    if stated is not None or job.runtime == DEFAULT_RUNTIME:
        return ()
    if job.cluster.on_cpu:
        return (f"runtime {job.runtime}: {no_cpu(DEFAULT_RUNTIME)}",)
    return (
        f"runtime {job.runtime}: the first that has the optimizer {job.training.optimizer.name}, "
        f"which {DEFAULT_RUNTIME} has not; `plan catalog optimizers` lists all that have it",
    )


MOST_TOKENS_OF_A_STEP = 1 << 30
"""Tokens of a step above which a batch may have been given in tokens. Source: assumed."""


def _remark_batch(training: TrainingSpec) -> None:
    batch, length = training.global_batch_size, training.seq_length
    if length <= batch and batch * length > MOST_TOKENS_OF_A_STEP:
        remark(
            f"--global-batch-size counts sequences: a step of {batch:,} has "
            f"{words.tokens(batch * length)} tokens; {words.tokens(batch)} tokens are "
            f"{batch // length:,} sequences"
        )


def _version_notes(name: str, version: str | None) -> tuple[str, ...]:
    checked = traits_named(name).version
    if version is None or version == checked or version == checked.split()[0]:
        return ()
    shown = shortened("".join(filter(str.isprintable, version)))
    return (
        f"rules and options were checked against {name} {checked}, you run {shown}: "
        "`plan doctor --runtime-path` compares the options",
    )


@dataclass(frozen=True, slots=True)
class Destination:
    """Where the answer goes."""

    as_json: bool
    output: Path | None
    force: bool
    report: Path | None = None

    def check(self) -> None:
        """Refuse early what could not be written later.

        Raises:
            FileError: A file exists, or its folder or disk refuses it.
            SpecError: Both files are one.
        """
        if self.output and self.output == self.report:
            raise SpecError(f"--output and --report are both {self.output}: give two names")
        self._page.check()
        if self.output:
            refuse_existing(self.output, force=self.force)
            try_writing(self.output)

    def write(self, text: str) -> None:
        """Write the file that was requested.

        Raises:
            FileError: It exists by now, or its folder refuses it.
        """
        if self.output:
            write_text(self.output, text, force=self.force)
            remark(f"wrote {self.output}")

    def write_report(self, document: Mapping[str, object], measured: Measured) -> None:
        """Write the page that was requested.

        Raises:
            FileError: As `write`.
        """
        self._page.write(document, str(self.output or PLAN_FILE), measured)

    @property
    def _page(self) -> ReportFile:
        return ReportFile(self.report, self.force)


def listed() -> tuple[str, ...]:
    """Every setting with its values."""
    return tuple(f"{name}={_values(field)}" for name, field in FIELDS.items())


def _values(field: FieldInfo) -> str:
    kinds = get_args(field.annotation)  # X | None
    if RoutingSpec in kinds:
        return RoutingSpec.FORMS
    if bool in kinds:
        return "true|false"
    counted = any(get_args(kind)[:1] == (int,) for kind in kinds)
    number = ("N",) if counted or not _named(field) else ()
    return "|".join((*number, *_named(field)))


def _named(field: FieldInfo) -> Mapping[str, str | int]:
    """The values that an option names, by how they are written."""
    kinds = get_args(field.annotation)  # X | None
    named = (value for kind in kinds for value in get_args(kind) if isinstance(value, str | int))
    return {str(value): value for value in named}


FIELDS = RuntimeOptions.model_fields


def parse_options(texts: tuple[str, ...]) -> RuntimeOptions:
    """Read the settings.

    Raises:
        SpecError: A text is not NAME=VALUE, is given twice, or the value is none of the allowed.
        CatalogError: No such setting; the message names the nearest.
        FileError: The file of a routing holds no counts.
    """
    values: dict[str, str | int | RoutingSpec] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise SpecError(f"--option {text!r}: write NAME=VALUE, such as attention=unfused")
        if name not in FIELDS:
            raise unknown_name("option", name, FIELDS, f"known: {', '.join(FIELDS)}")
        if name in values:
            raise SpecError(f"--option {name} is given twice: give it once")
        values[name] = _named(FIELDS[name]).get(value, value)
    chosen = values.get("routing")
    if isinstance(chosen, str) and not RoutingSpec.is_named(chosen):
        if not is_there(Path(chosen)):
            raise SpecError(
                f"--option routing={chosen[:60]}: no such file; or write {RoutingSpec.FORMS}"
            )
        values["routing"] = load_routing(Path(chosen))
    try:
        return RuntimeOptions.model_validate(values)
    except ValidationError as error:
        first = first_complaint(error)
        if not first.place:
            raise SpecError(f"--option {first.reason}") from None
        name = str(first.place[0])
        raise SpecError(f"--option {name}={values[name]}: {first.reason}") from None
