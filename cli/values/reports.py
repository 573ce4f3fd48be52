"""Reports beside an answer: `--report FILE`."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from trainplan.cli.files import refuse_existing, try_writing, write_text
from trainplan.cli.terminal import json_text, named, remark
from trainplan.costmodel.calibration import NOTHING, Measured

WRITTEN = "trainplan.cli.pages.report.registry:written"
"""Imported when a report is asked for."""


@dataclass(frozen=True, slots=True)
class ReportFile:
    """Where the answer goes as a page with charts; nowhere without a path."""

    report: Path | None
    force: bool

    def check(self) -> None:
        """Refuse early what could not be written later.

        Raises:
            FileError: The file exists, or its folder or disk refuses it.
        """
        if self.report:
            refuse_existing(self.report, force=self.force)
            try_writing(self.report)

    def write(
        self, document: Mapping[str, object], name: str = "", measured: Measured = NOTHING
    ) -> None:
        """Write the page of a document, as `plan report` would of its file `name`.

        Raises:
            PlanError: The document has nothing to draw, or the folder refuses the file.
        """
        if self.report is None:
            return
        page = named(WRITTEN)(name=name, text=json_text(document), measured=measured)
        assert isinstance(page, str)
        write_text(self.report, page, force=self.force)
        remark(f"wrote {self.report}")
