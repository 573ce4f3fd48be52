"""What a runtime needs to be exported to, and to be checked against its source."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from trainplan.costmodel.axes import AXES
from trainplan.costmodel.base import UnsupportedError
from trainplan.costmodel.spec import Job, Layout
from trainplan.planner.exporters.config import LaunchConfig


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
    file, which must be there."""
    recorded_flags: str
    """File beside this one with the options of the release `export` is written for."""

    def __call__(self, job: Job, layout: Layout) -> LaunchConfig:
        """The launch of one layout.

        Raises:
            UnsupportedError: An axis that is not written is not off.
            PlanError: As `export`.
        """
        for axis in AXES:
            if axis.name not in self.writes and not axis.is_off(layout):
                raise UnsupportedError(
                    f"{self.runtime} has no option for {axis.name} = {axis.text(layout)}: set it "
                    f"to {axis.codec.text(axis.off)}, or export to a runtime that has one"
                )
        return self.export(job, layout)
