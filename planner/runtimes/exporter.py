"""What writes the launches of a runtime, and what it refuses."""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache, wraps
from importlib import resources
from typing import Concatenate, ParamSpec, TypeVar

from trainplan.costmodel.architecture import Method
from trainplan.costmodel.axes import AXES, Axis
from trainplan.costmodel.base import SpecError, UnsupportedError
from trainplan.costmodel.columns import BoolColumn
from trainplan.costmodel.job import Job, StatePrecision
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.layouts import LayoutTable, Rule, evenly
from trainplan.costmodel.runtimes import RuntimeTraits, traits_of
from trainplan.planner.launch import LaunchConfig

PERMUTED = (
    "expert_placement={0}: {1} has no option for it and takes experts in the order of the "
    "checkpoint: permute their weights, their states and the rows of the router there, as in the "
    "file of `plan explain PLAN --placement FILE`; the price is that of the permuted checkpoint"
)


@cache
def recorded(file: str) -> frozenset[str]:
    """Those in a file of this folder, or of another package: `package:file`; of no file, none.

    A file that names another as its `base` has what that one has, in its `section`.
    """
    if not file:
        return frozenset()
    package, _, name = file.rpartition(":")
    text = resources.files(package or __package__).joinpath(name).read_text("utf-8")
    read = json.loads(text)
    base = (flag.removeprefix("--") for flag in recorded(read["base"])) if "base" in read else ()
    return frozenset((*read["flags"], *(f"--{read['section']}.{name}" for name in base)))


Others = ParamSpec("Others")
Written = TypeVar("Written")


def refuse_broken(rules: Iterable[Rule], job: Job, layout: Layout) -> None:
    """Check a layout by rules.

    Raises:
        UnsupportedError: It breaks one; the message is the rule's own.
    """
    table = LayoutTable.of([layout])
    for rule in rules:
        if rule.broken(job, table)[0]:
            raise UnsupportedError(rule.says)


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
    states: frozenset[StatePrecision] = frozenset({"o0"})
    """Formats of states that `export` writes; a job with another one is refused."""
    trains: frozenset[Method] = frozenset()
    """What it writes of `Trained.method`; a job that trains another way is refused."""
    by_words: bool = False
    """Are its options keys of a configuration? Each part of one is a word of the sources."""
    fork_flags: frozenset[str] | None = None
    """Options of the release, of a fork that has no file of them."""
    refuses: tuple[Rule, ...] = ()
    """Layouts that no option gives though every axis of them is written: no search answers one."""
    saves: frozenset[str] = frozenset({"sync", "async", "local"})
    """Ways to save of `FailureSpec.save` that its options give, or the user's own script may; a job
    with another one is refused."""
    joins_islands: bool = False
    """Does `export` write launches that outer steps join? Others are refused."""
    packs: str = ""
    """What the user's data has to do where rows are packed; empty: what is written cannot keep the
    sequences of a row apart."""

    @property
    def flags(self) -> frozenset[str]:
        """Options of the release that `export` is written for."""
        return recorded(self.recorded_flags) if self.fork_flags is None else self.fork_flags

    @property
    def rules(self) -> tuple[Rule, ...]:
        """What a search must respect for its answer to have launch files."""
        axes = (axis for axis in AXES if axis.name not in self.writes)
        return (*map(self._writes_no, axes), *self.refuses)

    def _writes_no(self, axis: Axis) -> Rule:
        def broken(job: Job, table: LayoutTable) -> BoolColumn:
            """No option gives another value."""
            column = getattr(table, axis.column)
            return ~evenly(table) if axis.name == "stages" else column != axis.number(axis.off)

        return Rule(
            name=f"{self.runtime}_writes_no_{axis.column}",
            columns=frozenset({axis.column}),
            broken=broken,
            says=f"{self.runtime} has no option for {axis.name}: leave it at "
            f"{axis.codec.text(axis.off)}, or use another runtime",
            source=f"what `plan export` writes for {self.runtime}",
        )

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
        if job.outer and not self.joins_islands:
            raise UnsupportedError(
                f"{self.runtime} has no outer steps among islands: plan for torchtitan, which has "
                "torchft's (--runtime torchtitan), or leave --allow diloco out"
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
        refuse_broken(self.refuses, job, layout)
        self._refuse_states(job)
        self._refuse_saves(job)
        packing = job.training.packing
        if packing != "none" and not self.packs:
            raise UnsupportedError(
                f"{self.runtime}: what is written for it computes a row as one sequence, so rows "
                f"packed {packing} would mix theirs: use --packing none, or another runtime"
            )
        launch = self.export(job, layout)
        packed = (f"rows are packed {packing}: {self.packs}",) if packing != "none" else ()
        options = job.options
        popular = job.model.moe and options.routing and options.routing.has_popular_experts
        placement = PERMUTED.format(options.expert_placement, self.runtime)
        placed = (placement,) if popular and options.permutes_experts else ()
        return replace(launch, notes=(*launch.notes, *packed, *placed))

    def _refuse_states(self, job: Job) -> None:
        """Check that what is written can say how states are updated and stored."""
        name, level = job.training.optimizer.name, job.training.state_precision
        if name not in self.optimizers:
            raise UnsupportedError(
                f"{self.runtime}: no launch files are written for optimizer {name}, only for "
                f"{', '.join(sorted(self.optimizers))}: plan for one, or set it up by hand"
            )
        if level not in self.states:
            patch = "" if level == "bf16" else " or patch MS-AMP in by hand (Azure/MS-AMP-Examples)"
            raise UnsupportedError(
                f"{self.runtime} has no option for --state-precision {level}: leave it out{patch}"
            )

    def _refuse_saves(self, job: Job) -> None:
        """Check that the runtime saves as the job is priced."""
        failures = job.cluster.failures
        if failures and failures.save not in self.saves:
            raise UnsupportedError(
                f"{self.runtime} has no saves that are {failures.save}, only "
                f"{', '.join(sorted(self.saves))}: take one of these with --save, or another "
                "runtime"
            )
