"""Files that `plan schedule` and `plan simulate` write, and how they print."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from cli.files import refuse_existing, write_text
from cli.options import FORCE, JSON, gathered
from cli.output import WIDTH, remark
from cli.render.chrome_trace import Extra, trace_text
from costmodel.timeline import Timeline
from planner.exporters.torch_schedule_csv import schedule_csv


@dataclass(frozen=True, slots=True)
class Outputs:
    """Where the answer goes."""

    csv: Path | None
    trace: Path | None
    force: bool
    width: int
    as_json: bool

    def check(self) -> None:
        """Refuse early what could not be written later.

        Raises:
            FileError: A file exists or its folder refuses it.
        """
        for path in (self.csv, self.trace):
            if path:
                refuse_existing(path, force=self.force)

    def write(self, timeline: Timeline, extras: Sequence[Extra] = ()) -> None:
        """Write the files that were asked for.

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


output_options = gathered(
    "outputs",
    Outputs,
    (
        click.option(
            "--csv",
            type=click.Path(path_type=Path),
            help="Write the schedule as torch's pipeline runtime loads it.",
        ),
        click.option(
            "--trace",
            type=click.Path(path_type=Path),
            help="Write a trace for ui.perfetto.dev; a unit of time is a second.",
        ),
        FORCE,
        click.option(
            "--width",
            type=click.IntRange(40, 1000),
            default=WIDTH,
            show_default=True,
            help="Columns of the timeline.",
        ),
        JSON,
    ),
)
"""`--csv --trace --force --width --json`, as `outputs`."""
