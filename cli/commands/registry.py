"""Which commands there are, in the order of the help page, with their summaries."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

COMPLETE = "_PLAN_COMPLETE"
"""Variable by which a shell asks for completions."""


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a command is and what `plan --help` says of it."""

    module: str
    """Its module in this package."""
    summary: str


COMMANDS: Mapping[str, Entry] = MappingProxyType(
    {
        "search": Entry("search", "Find the fastest layout that fits, with proof."),
        "estimate": Entry("estimate", "Price one layout: time, memory, fit."),
        "profile": Entry("profile", "Measure this machine: compute, memory, links."),
        "import": Entry("import_profile", "Read a profile of another tool."),
        "tune": Entry("tune", "Find the fastest layout by running the likeliest ones."),
        "calibrate": Entry("calibrate", "Correct the estimate by measured steps."),
        "validate": Entry("validate", "Compare predictions with measured runs."),
        "schedule": Entry("schedule", "Time and proof of a pipeline schedule."),
        "simulate": Entry("simulate", "Run the schedule of a plan on a clock."),
        "explain": Entry("explain", "Name what limits a plan, what more would buy."),
        "report": Entry("report", "Write a plan, or another answer, as one page with charts."),
        "why-not": Entry("why_not", "Explain why a layout is not the answer."),
        "compare": Entry("compare", "Compare two plans, term by term."),
        "replan": Entry("replan", "Find what to go on with when nodes are lost."),
        "sweep": Entry("sweep", "Vary the job of a plan; search every point."),
        "check": Entry("check", "Check a launch you have; list the edits that pay."),
        "export": Entry("export", "Write the launch script of a plan."),
        "verify": Entry("verify", "Run a plan, shrunk to a few processes, and compare."),
        "serve": Entry(
            "serve", "Answer other programs, as a server of the Model Context Protocol."
        ),
        "schema": Entry("schema", "Print the JSON Schema of a document."),
        "catalog": Entry(
            "catalog",
            "Show known GPUs, hosts, models, optimizers, methods of offload and clusters.",
        ),
        "doctor": Entry("doctor", "Check installation, plug-ins, runtime or a profile."),
        "completion": Entry("completion", "Print the completion script of a shell."),
    }
)
"""Command name -> entry, in the order of the help page; the module's `command` is the command."""
