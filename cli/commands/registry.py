"""Which commands there are, in the order of the help page, with their summaries."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

COMPLETE = "_PLAN_COMPLETE"
"""Variable by which a shell requests completions."""


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a command is and how `plan --help` sums it up."""

    module: str
    """Its module in this package."""
    summary: str


QUESTIONS: Mapping[str, Mapping[str, Entry]] = MappingProxyType(
    {
        "Which layout is fastest, and does it fit": {
            "search": Entry("search", "Find the fastest layout that fits, with proof."),
            "estimate": Entry("estimate", "Price one layout: time, memory, fit."),
            "sweep": Entry("sweep", "Vary the job of a plan; search every point."),
            "schedule": Entry("schedule", "Time and proof of a pipeline schedule."),
            "simulate": Entry("simulate", "Run the schedule of a plan on a clock."),
        },
        "Why this one, and what would help": {
            "explain": Entry("explain", "Name what limits a plan, what more would buy."),
            "why-not": Entry("why_not", "Explain why a layout is not the answer."),
            "compare": Entry("compare", "Compare two plans, term by term."),
            "report": Entry("report", "Write a plan, or another answer, as one page with charts."),
        },
        "How do I launch it, and does my launch run": {
            "check": Entry("check", "Check a launch you have; list the edits that pay."),
            "export": Entry("export", "Write the launch script of a plan."),
            "verify": Entry("verify", "Run a plan, shrunk to a few processes, and compare."),
            "replan": Entry("replan", "Find what to go on with when nodes are lost."),
        },
        "How fast is my machine, and how far off is the model": {
            "profile": Entry("profile", "Measure this machine: compute, memory, links."),
            "import": Entry("import_profile", "Read a profile of another tool."),
            "tune": Entry("tune", "Find the fastest layout by running the likeliest ones."),
            "calibrate": Entry("calibrate", "Correct the estimate by measured steps."),
            "validate": Entry("validate", "Compare predictions with measured runs."),
        },
        "What is there, and is it set up": {
            "catalog": Entry(
                "catalog",
                "Show known GPUs, hosts, models, optimizers, methods of offload and clusters.",
            ),
            "doctor": Entry("doctor", "Check installation, plug-ins, runtime or a profile."),
            "serve": Entry(
                "serve", "Answer other programs, as a server of the Model Context Protocol."
            ),
            "schema": Entry("schema", "Print the JSON Schema of a document."),
            "completion": Entry("completion", "Print the completion script of a shell."),
        },
    }
)
"""Headings of the help page, each with its commands; a module's `command` is the command."""
COMMANDS: Mapping[str, Entry] = MappingProxyType(
    {name: entry for entries in QUESTIONS.values() for name, entry in entries.items()}
)
"""Command name -> entry, in the order of the help page."""
