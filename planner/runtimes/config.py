"""What an exporter hands to a launcher: one training command, apart from how it is started."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import wraps
from typing import Concatenate, Literal, ParamSpec, TypeVar

from trainplan.costmodel.architecture import Method
from trainplan.costmodel.axes import AXES
from trainplan.costmodel.base import SpecError, UnsupportedError
from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.layouts import LayoutTable, Rule
from trainplan.costmodel.runtimes import RuntimeTraits, traits_of
from trainplan.costmodel.step.money import run_steps
from trainplan.planner.runtimes.recorded import recorded

Others = ParamSpec("Others")
Written = TypeVar("Written")
PLACEHOLDER_STEPS = 1000
"""Optimizer steps where the job names no number of tokens."""

Group = Literal["model", "layout", "recompute", "optimizer", "precision", "data"]
"""Heading under which an argument is printed."""


@dataclass(frozen=True, slots=True)
class UserVariable:
    """A value that only the user knows: the launch script reads it from the environment."""

    name: str


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """A file that the runtime reads, written beside the script."""

    name: str
    """A plain name: letters, digits, dots, underscores, dashes."""
    text: str
    filled_in: tuple[tuple[str, UserVariable], ...] = ()
    """Keys whose values in double quotes the script writes into the file before the run starts."""


Value = str | UserVariable | ConfigFile
"""Of an argument; a file stands for its path."""


@dataclass(frozen=True, slots=True)
class Argument:
    """One option of the runtime's command line."""

    flag: str
    values: tuple[Value, ...]
    """Empty for a switch."""
    group: Group
    assigned: bool = False
    """Written `flag=value` in one word, as keys of a configuration are."""


@dataclass(frozen=True, slots=True)
class EnvironmentVariable:
    """A variable the launch script sets before it starts the runtime."""

    name: str
    value: str
    reason: str
    """One line: why it is set."""


@dataclass(frozen=True, slots=True)
class RequiredVariable:
    """A variable the user must set."""

    name: str
    sentence: str
    """What it is, said when it is missing."""


@dataclass(frozen=True, slots=True)
class EntryPoint:
    """The program every rank runs: a file below a folder the user names."""

    folder: UserVariable
    file: str
    """A plain name: letters, digits, dots, underscores, slashes."""


@dataclass(frozen=True, slots=True)
class ModuleEntry:
    """The program every rank runs: a module that is installed on every node."""

    module: str
    """A dotted name: letters, digits, dots, underscores."""
    program: str | None = None
    """Console program that the installation brings, run in place of the module itself."""


@dataclass(frozen=True, slots=True)
class LaunchConfig:
    """One training command of one runtime."""

    runtime: str
    runtime_version: str
    """Version or commit whose options these are."""
    summary: tuple[str, ...]
    """Model, layout and the like: lines for the head of the script."""
    environment: tuple[EnvironmentVariable, ...]
    required_environment: tuple[RequiredVariable, ...]
    entry_point: EntryPoint | ModuleEntry
    arguments: tuple[Argument, ...]
    notes: tuple[str, ...]
    """What is approximated or left to the user."""
    files: tuple[ConfigFile, ...] = ()
    """What the program reads beside its arguments; those that are one are of these."""
    checked: str = ""
    """What the runtime's own code said of such launches, and which versions (tests/runtimes)."""
    keys: tuple[tuple[str, str], ...] = ()
    """What `files` set, flat: `("parallelism.tensor_parallel_degree", "8")`, in their order."""
    read_back: bool = True
    """Does `plan check` read this launch?"""

    @property
    def settings(self) -> tuple[tuple[str, str], ...]:
        """Everything that is set, (option or key, value), wherever it is written.

        The difference of two of these is an edit in the runtime's own words.
        """
        options = ((a.flag, " ".join(map(_plain, a.values))) for a in self.arguments)
        return (*options, *self.keys)


def summary(job: Job, layout: Layout) -> tuple[str, ...]:
    """What is started, for the head of a file."""
    degrees = ("tp", "pp", "vpp", "cp", "dp", "ep", "etp", "dp_replicate", "zero_stage")
    training = job.training
    return (
        f"model: {job.model.name}",
        f"cluster: {job.cluster.name}",
        f"training: sequence length {training.seq_length}, global batch size "
        f"{training.global_batch_size}, {training.precision}",
        "layout: " + " ".join(f"{name}={getattr(layout, name)}" for name in degrees),
        f"layout: micro_batch_size={layout.micro_batch_size} schedule={layout.schedule} "
        f"recompute={layout.recompute}",
    )


def steps_of(job: Job) -> int:
    """Optimizer steps of the whole run, or a placeholder, which a note should say."""
    return run_steps(job) or PLACEHOLDER_STEPS


def refuse_broken(rules: Iterable[Rule], job: Job, layout: Layout) -> None:
    """Check a layout by rules.

    Raises:
        UnsupportedError: It breaks one; the message is the rule's own.
    """
    table = LayoutTable.of([layout])
    for rule in rules:
        if rule.broken(job, table)[0]:
            raise UnsupportedError(rule.says)


def one_line(text: str) -> str:
    """Text that cannot leave its comment: control characters are written as escapes."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _plain(value: Value) -> str:
    return value if isinstance(value, str) else f"${value.name}"


def switch(group: Group, flag: str) -> Argument:
    """An option without a value."""
    return Argument(flag, (), group)


def option(group: Group, flag: str, *values: Value | float) -> Argument:
    """An option with its values; numbers are written so that they read back equal."""
    return Argument(flag, tuple(_text(value) for value in values), group)


def assigned(group: Group, key: str, value: str) -> Argument:
    """A key of a configuration with its value, in one word."""
    return Argument(key, (value,), group, assigned=True)


def _text(value: Value | float) -> Value:
    return repr(value) if isinstance(value, (int, float)) else value


def with_traits(
    write: Callable[Concatenate[Job, RuntimeTraits, Others], Written],
) -> Callable[Concatenate[Job, Others], Written]:
    """What writes a job, handed the traits of its runtime, which are resolved here alone."""

    @wraps(write)
    def written(job: Job, /, *args: Others.args, **kwargs: Others.kwargs) -> Written:
        return write(job, traits_of(job), *args, **kwargs)

    return written


@dataclass(frozen=True, slots=True)
class Exporter:
    """One runtime: how its command line is written, and where its options are defined."""

    runtime: str
    """Its id."""
    export: Callable[[Job, Layout], LaunchConfig]
    writes: frozenset[str]
    """Names of the axes that `export` writes; a layout is refused where another is not off."""
    source_patterns: tuple[str, ...]
    """Files of a checkout (patterns below its root) that define the options; the first names one
    file, which must be there. Empty: the exporter writes the program, too."""
    recorded_flags: str
    """File beside this one with the options of the release `export` is written for; of a plug-in,
    `package:file` or empty."""
    of_others: frozenset[str] = frozenset()
    """Options that it writes for the user's own script, or for a library: no source of the runtime
    defines them."""
    optimizers: frozenset[str] = frozenset({"adamw"})
    """Names of the optimizers that `export` writes; a job with another one is refused."""
    trains: frozenset[Method] = frozenset()
    """What it writes of `Trained.method`; a job that trains another way is refused."""
    by_words: bool = False
    """Are its options keys of a configuration? Each part of one is a word of the sources."""
    fork_flags: frozenset[str] | None = None
    """Options of the release, of a fork that has no file of them."""
    packs: str = ""
    """What the user's data has to do where rows are packed; empty: what is written cannot keep the
    sequences of a row apart."""

    @property
    def flags(self) -> frozenset[str]:
        """Options of the release that `export` is written for."""
        return recorded(self.recorded_flags) if self.fork_flags is None else self.fork_flags

    def __call__(self, job: Job, layout: Layout) -> LaunchConfig:
        """The launch of one layout.

        Raises:
            SpecError: The layout does not fill the cluster.
            UnsupportedError: An axis that is not written is not off, or rows are packed for a
                runtime that cannot.
            PlanError: As `export`.
        """
        if layout.world_size != job.cluster.num_gpus:
            raise SpecError(
                f"the layout needs tp * cp * pp * dp = {layout.world_size} GPUs but cluster "
                f"{job.cluster.name!r} has {job.cluster.num_gpus}; change dp or the cluster"
            )
        trained = job.model.trained
        if trained and trained.method not in self.trains:
            raise UnsupportedError(
                f"{self.runtime} has no option for --train {trained.text}: train every weight, or "
                "export to a runtime that has one"
            )
        for axis in AXES:
            if axis.name not in self.writes and not axis.is_off(layout):
                raise UnsupportedError(
                    f"{self.runtime} has no option for {axis.name} = {axis.text(layout)}: set it "
                    f"to {axis.codec.text(axis.off)}, or export to a runtime that has one"
                )
        self._refuse_states(job)
        packing = job.training.packing
        if packing == "none":
            return self.export(job, layout)
        if not self.packs:
            raise UnsupportedError(
                f"{self.runtime}: what is written for it computes a row as one sequence, so rows "
                f"packed {packing} would mix theirs: use --packing none, or another runtime"
            )
        launch = self.export(job, layout)
        return replace(launch, notes=(*launch.notes, f"rows are packed {packing}: {self.packs}"))

    def _refuse_states(self, job: Job) -> None:
        """Check that what is written can say how states are updated and stored."""
        name, level = job.training.optimizer.name, job.training.state_precision
        if name not in self.optimizers:
            raise UnsupportedError(
                f"{self.runtime}: no launch files are written for optimizer {name}, only for "
                f"{', '.join(sorted(self.optimizers))}: plan for one, or set it up by hand"
            )
        if level != "o0":
            raise UnsupportedError(
                f"{self.runtime} has no option for --state-precision {level}, which MS-AMP patches "
                "in (Azure/MS-AMP-Examples gpt3, --msamp): leave it out, or patch by hand"
            )
