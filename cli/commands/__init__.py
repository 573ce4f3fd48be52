"""Commands, one file each. To add one: write its file, add one line to `COMMANDS`.

A module is imported only when its command is typed, so the summaries stand here: `plan --help`
must not wait for numpy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a command lives and what `plan --help` says of it."""

    module: str
    summary: str


COMMANDS: Mapping[str, Entry] = MappingProxyType(
    {
        "search": Entry("cli.commands.search", "Find the fastest layout that fits, with proof."),
        "estimate": Entry("cli.commands.estimate", "Price one layout: time, memory, fit."),
        "profile": Entry("cli.commands.profile", "Measure this machine: compute, memory, links."),
        "import": Entry("cli.commands.import_profile", "Read a profile of another tool."),
        "calibrate": Entry("cli.commands.calibrate", "Correct the estimate by measured steps."),
        "validate": Entry("cli.commands.validate", "Compare predictions with measured runs."),
        "schedule": Entry("cli.commands.schedule", "Time and proof of a pipeline schedule."),
        "simulate": Entry("cli.commands.simulate", "Run the schedule of a plan on a clock."),
        "explain": Entry("cli.commands.explain", "Say what limits a plan, what more would buy."),
        "why-not": Entry("cli.commands.why_not", "Say why a layout is not the answer."),
        "compare": Entry("cli.commands.compare", "Compare two plans, term by term."),
        "sweep": Entry("cli.commands.sweep", "Vary the job of a plan; search every point."),
        "export": Entry("cli.commands.export", "Write the launch script of a plan."),
        "catalog": Entry("cli.commands.catalog", "Show known GPUs, models and clusters."),
        "doctor": Entry("cli.commands.doctor", "Check installation, runtime or a profile."),
        "completion": Entry("cli.commands.completion", "Print the completion script of a shell."),
    }
)
"""Command name -> entry, in the order of the help page; the module's `command` is the command."""
