"""What a runtime needs to be exported to, and to be checked against its source."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from trainplan.costmodel.spec.job import Job
from trainplan.costmodel.spec.layout import Layout
from trainplan.planner.exporters.config import LaunchConfig


@dataclass(frozen=True, slots=True)
class Exporter:
    """One runtime: how its command line is written, and where its options are defined."""

    export: Callable[[Job, Layout], LaunchConfig]
    source_patterns: tuple[str, ...]
    """Files of a checkout (patterns below its root) that define the options; the first names one
    file, which must be there."""
    recorded_flags: str
    """File beside this one with the options of the release `export` is written for."""

    def __call__(self, job: Job, layout: Layout) -> LaunchConfig:
        """The launch of one layout; errors as `export`."""
        return self.export(job, layout)
