"""Options that several commands share, as decorators that hand over one value instead of ten."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import click

from trainplan.cli.files.disk import refuse_existing, write_text
from trainplan.cli.files.inputs import load_model
from trainplan.cli.files.profiles import load_measured, machines_of
from trainplan.cli.options.parameters import finite, token_count
from trainplan.cli.options.runtime import OPTION
from trainplan.cli.terminal.output import remark
from trainplan.costmodel.measured.calibration import Measured
from trainplan.costmodel.runtimes import RUNTIMES, runtime
from trainplan.costmodel.spec.job import Job
from trainplan.costmodel.spec.options import RuntimeOptions
from trainplan.costmodel.spec.training import LARGEST_SIZE, Precision, TrainingSpec

Command = Callable[..., None]
Decorator = Callable[[Command], Command]

MODEL = click.option(
    "--model",
    required=True,
    metavar="MODEL",
    help="A preset (`plan catalog models`), a Hugging Face config.json or its folder, or our YAML.",
)
CLUSTER = click.option(
    "--cluster",
    required=True,
    metavar="CLUSTER",
    help="NODESxGPUS:GPU such as 8x8:h100-sxm, a YAML file (`plan catalog clusters`), or a file of "
    "`plan profile`.",
)
GLOBAL_BATCH_SIZE = click.option(
    "--global-batch-size",
    required=True,
    type=click.IntRange(1, LARGEST_SIZE),
    help="Sequences per optimizer step, over all replicas.",
)
SEQ_LENGTH = click.option(
    "--seq-length",
    required=True,
    type=click.IntRange(1, LARGEST_SIZE),
    help="Tokens per sequence.",
)
PRECISION = click.option(
    "--precision",
    type=click.Choice(get_args(Precision)),
    default="bf16",
    show_default=True,
    help="Number format of the matrix products.",
)
TOKENS = click.option(
    "--tokens",
    callback=token_count,
    metavar="N",
    help="Tokens of the whole run (15T, 300B, 1e12): adds days, GPU-hours and money.",
)
RUNTIME = click.option(
    "--runtime",
    type=click.Choice(tuple(RUNTIMES)),
    metavar="RUNTIME",
    default="megatron-lm",
    show_default=True,
    help=f"Training runtime the layout is for: {', '.join(RUNTIMES)}.",
)
RUNTIME_VERSION = click.option(
    "--runtime-version",
    metavar="VERSION",
    help="Version you run; a note tells if the rules were checked against another.",
)
PROFILE = click.option(
    "--profile",
    "profiles",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Measurements instead of the catalog: a file of `plan profile` (several merge) or of "
    "`plan calibrate`.",
)
JSON = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON document and nothing else."
)
CANDIDATE = click.option(
    "--candidate",
    type=click.IntRange(1, 1 << 30),
    metavar="N",
    help="Rank of another layout of the plan's table.  [default: the best]",
)
FORCE = click.option("--force", is_flag=True, help="Replace files that exist.")


def memory_margin(default: float) -> Decorator:
    """`--memory-margin` with its default."""
    return click.option(
        "--memory-margin",
        type=click.FloatRange(0, 1, max_open=True),
        callback=finite,
        default=default,
        show_default=True,
        help="Share of GPU memory that must stay free.",
    )


@dataclass(frozen=True, slots=True)
class Question:
    """The job, and what the user said about the runtime and the machine."""

    job: Job
    notes: tuple[str, ...]
    measured: Measured


def gathered(name: str, build: Callable[..., object], options: Sequence[Decorator]) -> Decorator:
    """Add `options` to a command and pass it `build(**values)` under one name."""
    taken = tuple(inspect.signature(build).parameters)

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def run(**values: object) -> None:
            own = {key: values.pop(key) for key in taken}
            command(**values, **{name: build(**own)})

        wrapped: Command = run
        for option in reversed(options):
            wrapped = option(wrapped)
        return wrapped

    return decorate


def _question(
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
    checked = runtime(name).version
    if version is None or version == checked or version == checked.split()[0]:
        return ()
    shown = "".join(filter(str.isprintable, version))
    return (
        f"rules and options were checked against {name} {checked}, you run {shown}: "
        "`plan doctor --runtime-path` compares the options",
    )


job_options = gathered(
    "question",
    _question,
    (
        MODEL,
        CLUSTER,
        GLOBAL_BATCH_SIZE,
        SEQ_LENGTH,
        PRECISION,
        TOKENS,
        RUNTIME,
        RUNTIME_VERSION,
        OPTION,
        PROFILE,
    ),
)
"""`--model` to `--profile`, as `question`."""


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


OUTPUT = click.option(
    "--output",
    type=click.Path(path_type=Path),
    help="Also write the plan here (`plan export` reads it).",
)
destination_options = gathered("destination", Destination, (OUTPUT, FORCE, JSON))
"""`--output --force --json`, as `destination`."""
