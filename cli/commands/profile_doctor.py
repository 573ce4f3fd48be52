"""What a profile knows of its machine, checked by a step of the model it was measured for."""

from collections.abc import Sequence
from pathlib import Path

from trainplan.cli.blocks import show
from trainplan.cli.files import load_measured
from trainplan.cli.pages import coverage_page
from trainplan.costmodel.base import SpecError
from trainplan.costmodel.measured import shares_note
from trainplan.profiler.fit import step_coverage


def show_findings(paths: Sequence[Path]) -> None:
    """Print the page of `plan doctor PROFILE.json`.

    Raises:
        PlanError: The files are no profiles, or of a GPU nothing is known of.
    """
    measured = load_measured(paths)
    if measured.profile is None:
        raise SpecError(f"{paths[0]}: a calibration; give a file of `plan profile`")
    found = step_coverage(measured.profile, measured)
    page = coverage_page(measured.profile, found.known, found.step)
    show(*page, *shares_note(found.machine, measured.profile))
