"""`plan estimate`: what one layout costs."""

from __future__ import annotations

from trainplan.cli.options.layout_text import parse_layout
from trainplan.cli.options.stated import Question
from trainplan.cli.render.estimate import estimate_document, estimate_page
from trainplan.cli.terminal.clock import Clock
from trainplan.cli.terminal.output import show, show_json
from trainplan.planner.plan import SearchOptions
from trainplan.planner.questions import search as answer
from trainplan.planner.questions.changes.variations import Case
from trainplan.planner.questions.remedies import Remedy, remedies

REMEDY_SECONDS = 5.0
"""Until then what would make a layout fit is looked for; most take less than one."""


def command(question: Question, layout: str, memory_margin: float, *, as_json: bool) -> None:
    """Print the price of a layout."""
    job = question.job
    chosen = parse_layout(layout, job.cluster)
    measured = question.measured
    estimate = answer.estimate(job, chosen, measured, memory_margin=memory_margin)
    notes = (*answer.notes(job, measured), *question.notes)
    found: tuple[Remedy, ...] | None = None
    if not estimate.memory.fits:
        case = Case(
            job, SearchOptions(memory_margin=memory_margin, search_options="none"), measured
        )
        with Clock(REMEDY_SECONDS) as clock:
            found = remedies(case, chosen, clock)
    if as_json:
        show_json(estimate_document(job, chosen, estimate, notes, found))
    else:
        show(*estimate_page(job, chosen, estimate, notes, found))
