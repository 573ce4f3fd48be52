"""The folder of a tuning run: its trials as they end, then the tuned plan and the calibration."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Self

from trainplan.cli.files import FileError, refuse_folder, write_text
from trainplan.cli.terminal import json_text
from trainplan.costmodel.calibration import Measured
from trainplan.costmodel.documents import Outcome, Trial
from trainplan.costmodel.job import Job
from trainplan.planner.tuning import Finished, Launch, tuned_plan
from trainplan.profiler.launch import Files
from trainplan.profiler.trials import FILE, TrialJournal
from trainplan.profiler.watch import only_run

PLAN, CALIBRATION, PROFILE, LOCK = "plan.json", "calibration.json", "profile.json", ".lock"


LONGEST_NAME = 100
"""Characters of a folder's own name; most file systems take 255 bytes."""


def free_folder(name: str) -> Path:
    """`name-1`, or the first number that is free."""
    clean = "".join(c if c.isalnum() or c in "-._" else "-" for c in name[:LONGEST_NAME])
    return next(path for path in (Path(f"{clean}-{n}") for n in count(1)) if not path.exists())


class TuningFolder:
    """The folder of one run, which it holds alone while the block lasts."""

    def __init__(self, path: Path, *, resume: bool) -> None:
        self.path, self.resume = path, resume
        self._held = ExitStack()

    def __enter__(self) -> Self:
        """Make it, or take the one that is there.

        Raises:
            FileError: It exists and is not resumed, does not exist and is resumed,
                or cannot be made.
            ProfilerError: Another run holds it.
        """
        kept = (FILE, PROFILE, Files.of_output(self.profile).journal.name)
        begun = any((self.path / name).exists() for name in kept)
        if self.resume and not begun:
            raise FileError(f"{self.path}: has no {FILE} to go on from; leave --resume out")
        if self.path.exists() and not self.resume:
            what = "--resume goes on there, or choose" if begun else "choose"
            raise FileError(f"{self.path}: exists; {what} another")
        refuse_folder(self.path, force=True)
        try:
            self.path.mkdir(exist_ok=True)
        except OSError as error:
            raise FileError(f"{self.path}: cannot be made: {error.strerror}") from error
        self._held.enter_context(only_run(self.path / LOCK))
        return self

    def __exit__(self, *ended: object) -> None:
        """Let it go; nothing is left of a run that kept nothing."""
        self._held.close()
        if not any(self.path.iterdir()):
            self.path.rmdir()

    @property
    def profile(self) -> Path:
        """Measurements of this machine, where none were given."""
        return self.path / PROFILE

    def trials(
        self, job: Job, launch: Launch, ran_by: str
    ) -> tuple[Sequence[tuple[Trial, Outcome]], Launch]:
        """Trials of before, and a launch that keeps each trial when it ends.

        Raises:
            SpecError: Those of before are of another job, or something else ran them.
        """
        journal = TrialJournal(self.path / FILE)
        with self._reported():
            before = journal.read(job, ran_by) if self.resume else None
            if before is None:
                journal.begin(job, ran_by)

        def kept(trial: Trial) -> Outcome:
            outcome = launch(trial)
            with self._reported():
                journal.append(trial, outcome)
            return outcome

        ended = {one.trial.number: (one.trial, one.outcome) for one in before or ()}
        return list(ended.values()), kept

    @contextmanager
    def _reported(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            where = self.path / FILE
            raise FileError(f"{where}: cannot be read or written: {error.strerror}") from error

    def write_result(self, text: str, found: Finished, measured: Measured) -> Mapping[str, object]:
        """Keep the plan with the fastest layout measured, and what was learnt of the machine.

        Returns:
            That plan's document.
        """
        if found.calibration:
            calibration = json_text(found.calibration.document())
            write_text(self.path / CALIBRATION, calibration, force=True)
        tuned = tuned_plan(text, found, measured)
        write_text(self.path / PLAN, json_text(tuned), force=True)
        return tuned
