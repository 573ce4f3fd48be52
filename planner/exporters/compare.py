"""Does a runtime know the options we write? Against a recorded list, or against its source."""

from __future__ import annotations

import json
from collections.abc import Collection
from importlib import resources

from trainplan.planner.exporters import EXPORTERS
from trainplan.planner.exporters.config import LaunchConfig
from trainplan.planner.exporters.source_flags import flags_in_source, flags_in_sources

__all__ = [
    "flags_in_source",
    "flags_in_sources",
    "missing_flags",
    "recorded_flags",
]


def missing_flags(config: LaunchConfig, known: Collection[str]) -> tuple[str, ...]:
    """Options of a launch configuration that the runtime does not know, in order, once each."""
    emitted = dict.fromkeys(argument.flag for argument in config.arguments)
    return tuple(flag for flag in emitted if flag not in known)


def recorded_flags(runtime: str) -> frozenset[str]:
    """Options of the release a runtime's exporter is written for."""
    recorded = resources.files("trainplan.planner.exporters").joinpath(
        EXPORTERS[runtime].recorded_flags
    )
    return frozenset(json.loads(recorded.read_text("utf-8"))["flags"])
