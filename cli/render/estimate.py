"""One priced layout, as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rich.console import Group, RenderableType

from cli.render.groups import groups_part
from cli.render.headline import fit_line, headline, job_line
from cli.render.memory_bar import memory_table
from cli.render.plan import notes_part
from cli.render.terms import terms_table
from costmodel.explicit import Estimate
from costmodel.spec.job import Job
from costmodel.spec.layout import Layout
from planner.layout_document import layout_json
from planner.plan import estimate_json, job_json


def estimate_page(
    job: Job, layout: Layout, estimate: Estimate, notes: tuple[str, ...]
) -> Iterator[RenderableType]:
    """The numbers, then where the time and the memory go."""
    yield headline(job, layout, estimate)
    yield Group(job_line(job), *([fit_line(estimate.memory)] if estimate.memory.fits else []))
    yield from groups_part(job, layout)
    yield terms_table(estimate)
    yield Group("Memory of each pipeline rank, GiB", memory_table(estimate.memory))
    if notes:
        yield notes_part(notes)


def estimate_document(
    job: Job, layout: Layout, estimate: Estimate, notes: tuple[str, ...]
) -> Mapping[str, object]:
    """The public document of `plan estimate --json`."""
    return {
        **job_json(job),
        "layout": layout_json(job, layout),
        "estimate": estimate_json(estimate),
        "provenance": {"notes": list(notes)},
    }
