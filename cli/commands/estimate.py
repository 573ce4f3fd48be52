"""`plan estimate`: what one layout costs."""

from __future__ import annotations

from collections.abc import Iterator

from trainplan.cli.options.layout_text import parse_layout
from trainplan.cli.options.stated import Question
from trainplan.cli.render.estimate import estimate_document, estimate_page
from trainplan.cli.render.parts.text import gib, seconds
from trainplan.cli.terminal.age import command_seconds
from trainplan.cli.terminal.clock import Clock
from trainplan.cli.terminal.output import answer
from trainplan.costmodel.base import PlanError
from trainplan.costmodel.spec import Layout
from trainplan.planner.plan import SearchOptions
from trainplan.planner.questions import search as asked
from trainplan.planner.questions.changes.variations import Case
from trainplan.planner.questions.imbalance import imbalance_notes
from trainplan.planner.questions.offload_notes import offload_notes
from trainplan.planner.questions.remedies import Remedy, remedies
from trainplan.planner.questions.width_notes import width_notes

REMEDY_SECONDS = 5.0
"""Until then what would make a layout fit is looked for; most take less than one."""


def command(question: Question, layout: str, memory_margin: float, *, as_json: bool) -> None:
    """Print the price of a layout."""
    job = question.job
    chosen = parse_layout(layout, job.cluster)
    measured = question.measured
    estimate = asked.estimate(job, chosen, measured, memory_margin=memory_margin)
    beside = tuple(_with_sequence_parallel(question, layout, chosen, memory_margin))
    notes = (
        *beside,
        *imbalance_notes(job, chosen),
        *offload_notes(chosen, estimate, measured.profile),
        *width_notes(job, chosen, estimate, measured),
        *asked.notes(job, measured),
        *question.notes,
    )
    found: tuple[Remedy, ...] | None = None
    if not estimate.memory.fits:
        case = Case(
            job, SearchOptions(memory_margin=memory_margin, search_options="none"), measured
        )
        with Clock(command_seconds() + REMEDY_SECONDS) as clock:
            found = remedies(case, chosen, clock)
    spent = asked.spent_of(job, chosen, estimate, measured)
    told = (job, chosen, estimate, notes, found)
    document = estimate_document(*told, spent=spent)
    answer(document, estimate_page(*told, spent=spent), as_json=as_json)


def _with_sequence_parallel(
    question: Question, text: str, layout: Layout, memory_margin: float
) -> Iterator[str]:
    """What sequence parallelism would change, where a layout with tp leaves it unsaid."""
    printed = "=" not in text  # then it says all: SP, or no SP
    if printed or layout.tp == 1 or layout.sequence_parallel or "sequence_parallel" in text:
        return
    other = layout.model_copy(update={"sequence_parallel": True})
    try:
        priced = asked.estimate(question.job, other, question.measured, memory_margin=memory_margin)
    except PlanError:
        return
    yield (
        f"sequence_parallel is not in the layout, so it is off: with sequence_parallel=true a step "
        f"takes {seconds(priced.step_time_s)} and "
        f"{gib(priced.memory.peak_reserved_bytes)} GiB"
    )
