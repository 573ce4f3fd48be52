"""Files that `plan schedule` and `plan simulate` write, and how they print."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trainplan.cli.files import FileError, refuse_existing, write_text
from trainplan.cli.pages import Extra, trace_text
from trainplan.cli.terminal import remark
from trainplan.costmodel.timeline import Timeline
from trainplan.planner.runtimes import schedule_csv


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
        """The files that were asked for."""
        return tuple(path for path in (self.csv, self.trace) if path)

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
