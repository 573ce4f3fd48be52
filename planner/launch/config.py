"""What an exporter hands to a launcher: one training command, whatever starts it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from trainplan.costmodel import catalog
from trainplan.costmodel.comm import DEFAULT_PROXY
from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.run_costs import run_steps
from trainplan.costmodel.runtimes import traits_of

PLACEHOLDER_STEPS = 1000
"""Optimizer steps where the job names no number of tokens."""


Group = Literal["model", "layout", "recompute", "optimizer", "precision", "data", "operations"]
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
    """Empty where its values stand alone."""
    values: tuple[Value, ...]
    """Empty for a switch."""
    group: Group
    assigned: bool = False
    """Written `flag=value` in one word, as keys of a configuration are."""
    reason: str = ""
    """One line: why it is set; empty: the plan says so."""
    given: str = ""
    """Variable without which it is left out; empty: it is always written."""


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
class DefaultVariable:
    """A variable of the script that the user may set before."""

    name: str
    value: str
    """Bash between double quotes, which may name other variables."""
    sentence: str
    """What it is."""


@dataclass(frozen=True, slots=True)
class Operations:
    """What a launcher does to keep a long run going."""

    restarts: int
    """Of torchrun, after a process failed; 0: its rendezvous takes none."""
    signal: str
    """On which the program saves and ends, as `USR1`; empty: on none."""
    warning_seconds: int
    """Between the signal and the end of the time."""
    save_minutes: int
    """Of the time limit, kept for the last checkpoint."""
    binds: bool = True
    """Is each process bound to the NUMA node of its GPU? torchrun stops where there is none."""

    @property
    def torchrun(self) -> str:
        """Options of torchrun, each with a space before it.

        Source: torch 2.14 `distributed/run.py`; `numa/binding.py` binds a process to the node of
        its GPU, since torch 2.9.
        """
        restarts = f" --max_restarts {self.restarts}" if self.restarts else ""
        return f"{restarts} --numa_binding node" if self.binds else restarts


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
    defaults: tuple[DefaultVariable, ...] = ()
    """Variables that the arguments name, and that the user may set."""
    operations: Operations | None = None
    """Null: the launcher only starts it."""
    by_ray: bool = False
    """Does one process start it, which has Ray start the ranks on the nodes of its cluster?"""

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
    beyond = (name for name in ("gtp", "egtp", "hpz") if getattr(layout, name) > 1)
    training = job.training
    return (
        f"model: {job.model.name}",
        f"cluster: {job.cluster.name}",
        f"training: sequence length {training.seq_length}, global batch size "
        f"{training.global_batch_size}, {training.precision}",
        "layout: " + " ".join(f"{name}={getattr(layout, name)}" for name in (*degrees, *beyond)),
        f"layout: micro_batch_size={layout.micro_batch_size} schedule={layout.schedule} "
        f"recompute={layout.recompute}",
        *_priced_with(job, layout),
    )


def _priced_with(job: Job, layout: Layout) -> Iterator[str]:
    """What the plan's time rests on that no option of the launch says."""
    traits, moe = traits_of(job), job.model.moe is not None
    on_graphs = traits.on_megatron_core and traits.host.cuda_graph != "full_iteration"
    release = job.release or (traits.host.release.container if moe and on_graphs else "")
    if release:
        yield f"priced with: release {release}{'' if job.release else ', assumed'}"
    for watts in dict.fromkeys(one.power_limit_w for one in job.cluster.groups):
        if watts is not None:
            yield f"priced with: boards that draw {watts:g} W (nvidia-smi --power-limit)"
    domain = min(one.domain_gpus(catalog.device(one)) for one in job.cluster.groups)
    across = moe and layout.ep * layout.etp > domain
    if across and job.cluster.by_proxies and traits.experts.sends_once_across:
        proxy = job.options.deepep_proxy
        assumed = "" if proxy else ", assumed"
        yield f"priced with: DeepEP over {proxy or DEFAULT_PROXY}{assumed}: install that build"


def steps_of(job: Job) -> int:
    """Optimizer steps of the whole run, or a placeholder, which a note should say."""
    return run_steps(job) or PLACEHOLDER_STEPS


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
