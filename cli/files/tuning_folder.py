"""The folder of a tuning run: its trials as they end, then the tuned plan and the calibration."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Self

from trainplan.cli.files.disk import FileError, write_text
from trainplan.cli.files.profiles import calibration_json
from trainplan.cli.terminal.output import json_text
from trainplan.costmodel.spec.evidence.trial import Outcome, Trial
from trainplan.planner.plan.layout_document import layout_json
from trainplan.planner.plan.plan import job_json
from trainplan.planner.tuning.events import Finished


def free_folder(name: str) -> Path:
    """`name-1`, or the first number that is free."""
    clean = "".join(c if c.isalnum() or c in "-._" else "-" for c in name)
    return next(path for path in (Path(f"{clean}-{n}") for n in count(1)) if not path.exists())


class TuningFolder:
    """The folder of one run, held by it alone while the block lasts."""

    def __init__(self, path: Path, *, resume: bool, dry_run: bool) -> None:
        self.path, self.resume, self.dry_run = path, resume, dry_run

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *ended: object) -> None:
        pass

    @property
    def profile(self) -> Path:
        """Measurements of this machine, where none were given."""
        return self.path / "profile.json"

    def write_profile(self, text: str) -> None:
        """Keep them."""
        write_text(self.profile, text, force=True)
        
    def kept(self, launch):
        return launch
    def earlier(self):
        return ()
    def write_result(self, text: str, found: Finished) -> None:
        """The plan with the fastest layout that was measured, and what was learnt of the machine."""
        if found.calibration:
            calibration = json_text(calibration_json(found.calibration))
            write_text(self.path / CALIBRATION, calibration, force=True)
        write_text(self.path / PLAN, tuned_plan(text, found), force=True)


def tuned_plan(text: str, found: Finished) -> str:
    """A plan's document with the best measured layout in place of the best priced one.

    What was proved stays as it was, beside `tuned`: what was measured.
    """
    document: dict[str, object] = json.loads(text)
    document["tuned"] = found.model_dump(mode="json", exclude={"event", "calibration"})
    if found.best:
        ...
    return json_text(document)
