"""What the options of `plan schedule` describe, and the files it and `plan simulate` write."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from trainplan.cli.files import FileError, refuse_existing, write_text
from trainplan.cli.pages import Extra, trace_text
from trainplan.cli.terminal import remark
from trainplan.cli.values.stage_times import read_stage_times
from trainplan.costmodel.program import Placement, Shape
from trainplan.costmodel.schedules import SCHEDULES
from trainplan.costmodel.timeline import Timeline
from trainplan.planner.runtimes import schedule_csv
from trainplan.planner.schedules import (
    Extras,
    Pipeline,
    StageTimes,
    freed_bytes,
    known,
    require_size,
    stage_seconds,
)

ALL = "all"
ONE_SECOND = 1.0
"""A duration that is not stated: the unit of the others."""


@dataclass(frozen=True, slots=True)
class Way:
    """Where the schedule comes from; exactly one of the three."""

    kind: str | None
    synthesise: bool
    from_csv: Path | None

    def default_vpp(self, placement: Placement | None) -> int:
        """Virtual stages of a rank, unless stated: one, or what the schedule needs."""
        if placement == "v" and (self.synthesise or self.kind == ALL):
            return 2
        if self.kind in (None, ALL):
            return 1
        schedule = SCHEDULES[self.kind]
        return schedule.least_vpp if schedule.least_vpp == schedule.most_vpp else 1


def way(*, kind: str | None, synthesise: bool, from_csv: Path | None) -> Way:
    """The one of the three that was given.

    Raises:
        UsageError: None was, or several.
        CatalogError: No such kind.
    """
    if (kind is not None) + synthesise + (from_csv is not None) != 1:
        raise click.UsageError(
            "give one of --kind KIND, --kind all, --synthesise and --from-csv FILE; kinds: "
            f"{', '.join(SCHEDULES)}"
        )
    if kind is not None and kind != ALL:
        known(kind)
    return Way(kind, synthesise, from_csv)


@dataclass(frozen=True, slots=True)
class Sizes:
    """What is stated of the pipeline's shape."""

    pp: int | None
    vpp: int | None
    num_microbatches: int | None
    placement: Placement | None
    microbatch_group_size: int | None
    sequence_chunks: int
    memory_limit: int | None
    split_backward: bool

    def shape(self, way: Way) -> Shape:
        """The shape of a schedule that is made.

        Raises:
            UsageError: A size is missing.
        """
        if self.pp is None or self.num_microbatches is None:
            sizes = {"--pp 4": self.pp, "--num-microbatches 8": self.num_microbatches}
            lacking = [name for name, value in sizes.items() if value is None]
            names = " and ".join(name.split()[0] for name in lacking)
            raise click.UsageError(f"missing {names}: add `{' '.join(lacking)}`")
        return Shape(
            self.pp,
            self.vpp or way.default_vpp(self.placement),
            self.num_microbatches,
            self.microbatch_group_size,
            self.memory_limit,
            self.sequence_chunks,
        )


@dataclass(frozen=True, slots=True)
class Durations:
    """What is stated of the passes' durations."""

    forward: float | None
    input_grad: float | None
    weight_grad: float | None
    p2p: float
    stage_times: Path | None
    attention_share: float
    vocab_forward: float
    vocab_backward: float
    offload: float
    offload_chunks: int | None

    def pipeline(
        self, shape: Shape, *, stages: int | None = None, split_backward: bool
    ) -> Pipeline:
        """The pipeline of `plan schedule`; `stages` where not pp * vpp.

        Raises:
            PlanError: A duration or the file of durations is wrong.
        """
        require_size(shape)
        extras = Extras(
            shape.sequence_chunks,
            self.attention_share,
            self.vocab_forward,
            self.vocab_backward,
            self.offload,
        )
        times = self._stages(stages or shape.pp * shape.vpp)
        copied = (self.offload_chunks or shape.vpp) if self.offload else 0
        seconds, freed = stage_seconds(times, extras), freed_bytes(times)
        return Pipeline(shape, seconds, self.p2p, split_backward, copied, freed)

    def _stages(self, count: int) -> tuple[StageTimes, ...]:
        stated = (self.forward, self.input_grad, self.weight_grad)
        if self.stage_times:
            if any(value is not None for value in stated):
                raise click.UsageError(
                    "--stage-times replaces --forward, --input-grad and --weight-grad: give one"
                )
            return read_stage_times(self.stage_times, count)
        times = (ONE_SECOND if value is None else value for value in stated)
        return (StageTimes(*times),) * count


@dataclass(frozen=True, slots=True)
class Outputs:
    """Where the answer goes."""

    csv: Path | None
    trace: Path | None
    force: bool
    width: int | None
    """Columns of the timeline; null: those of the page."""
    as_json: bool

    def check(self) -> None:
        """Refuse early what could not be written later.

        Raises:
            FileError: A file exists, its folder refuses it, or two are the same.
        """
        paths = self.paths
        for path in paths:
            refuse_existing(path, force=self.force)
        if len({path.parent.resolve() / path.name for path in paths}) < len(paths):
            raise FileError(f"{paths[0]}: is stated for --csv and --trace: choose two names")

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files that were requested."""
        return tuple(path for path in (self.csv, self.trace) if path)

    def write(self, timeline: Timeline, extras: Sequence[Extra] = ()) -> None:
        """Write the files that were requested.

        Raises:
            PlanError: torch has no such schedule, it is too long for a trace, or a file cannot be
                written.
        """
        made = [(self.csv, schedule_csv(timeline.program))] if self.csv else []
        if self.trace:
            made.append((self.trace, trace_text(timeline, extras)))
        for path, text in made:
            write_text(path, text, force=self.force)
            remark(f"wrote {path}")
