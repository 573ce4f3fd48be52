"""What the shared options state: the job and its machine, and where the answer goes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from trainplan.cli.files.disk import refuse_existing, write_text
from trainplan.cli.files.inputs import load_model
from trainplan.cli.files.profiles import load_measured, machines_of
from trainplan.cli.terminal.output import remark
from trainplan.costmodel.measured import Measured
from trainplan.costmodel.runtimes import runtime as traits_named
from trainplan.costmodel.spec import Job, RuntimeOptions, TrainingSpec
from trainplan.costmodel.spec.training import Precision


@dataclass(frozen=True, slots=True)
class Question:
    """The job, and what the user said about the runtime and the machine."""

    job: Job
    notes: tuple[str, ...]
    measured: Measured


def question(
    *,
    model: str,
    cluster: str,
    global_batch_size: int,
    seq_length: int,
    precision: Precision,
    tokens: int | None,
    runtime: str,
    runtime_version: str | None,
    runtime_options: RuntimeOptions,
    profiles: tuple[Path, ...],
) -> Question:
    """The job of `--model` to `--profile`.

    Raises:
        PlanError: A name is unknown, or a file is wrong.
    """
    machines, whole = machines_of(cluster, load_measured(profiles, alone=False))
    training = TrainingSpec(
        seq_length=seq_length,
        global_batch_size=global_batch_size,
        precision=precision,
        tokens=tokens,
    )
    job = Job(
        model=load_model(model),
        training=training,
        cluster=machines,
        runtime=runtime,
        options=runtime_options,
    )
    return Question(job, _version_notes(runtime, runtime_version), whole)


def _version_notes(name: str, version: str | None) -> tuple[str, ...]:
    checked = traits_named(name).version
    if version is None or version == checked or version == checked.split()[0]:
        return ()
    shown = "".join(filter(str.isprintable, version))
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

    def check(self) -> None:
        """Refuse early what could not be written later.

        Raises:
            FileError: The file exists or its folder refuses it.
        """
        if self.output:
            refuse_existing(self.output, force=self.force)

    def write(self, text: str) -> None:
        """Write the file that was asked for.

        Raises:
            FileError: It exists by now, or its folder refuses it.
        """
        if self.output:
            write_text(self.output, text, force=self.force)
            remark(f"wrote {self.output}")
