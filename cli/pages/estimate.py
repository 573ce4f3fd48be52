"""One priced layout, as text and as JSON."""

from collections.abc import Iterator

from rich.text import Text

from trainplan.cli.blocks import Part, stacked
from trainplan.cli.pages.parts.breakdown import memory_table, terms_table
from trainplan.cli.pages.parts.differences import remedies_part
from trainplan.cli.pages.parts.evidence import evidence_lines, interval_lines
from trainplan.cli.pages.parts.headline import (
    chosen_lines,
    fit_line,
    headline,
    job_line,
    refusals,
)
from trainplan.cli.pages.parts.islands import island_lines
from trainplan.cli.pages.parts.lanes import lanes_part
from trainplan.cli.pages.parts.load_shift import load_shift_lines
from trainplan.cli.pages.parts.placement import groups_part
from trainplan.cli.pages.plan import notes_part
from trainplan.costmodel.step import Estimate
from trainplan.planner.comparisons import Remedy, Side
from trainplan.planner.evidence import evidence_of
from trainplan.planner.plan import OuterStep
from trainplan.planner.questions import StepFacts


def estimate_page(
    estimate: Estimate,
    side: Side,
    notes: tuple[str, ...],
    remedies: tuple[Remedy, ...] | None,
    *,
    facts: StepFacts,
    outer: OuterStep | None = None,
    searched: bool = True,
) -> Iterator[Part]:
    """The numbers, where the time and the memory go, and what makes it fit if it does not."""
    job, layout = side.job, side.layout
    spent, settings, shift = facts
    cannot, chosen = refusals(job, notes), chosen_lines(job, notes)
    chosen = (
        *island_lines(outer),
        *chosen,
        *load_shift_lines(shift, estimate.memory.peak_reserved_bytes),
    )
    yield headline(job, layout, estimate, *chosen, spent=spent, cannot=cannot)
    fit = [] if estimate.memory.is_doubtful else [fit_line(estimate.memory, job.model)]
    known = evidence_lines(evidence_of(job, layout))
    stated = (*known, *interval_lines(job, estimate.uncertainty))
    yield stacked(job_line(job, settings), *fit, *map(Text, stated))
    yield from groups_part(job, layout)
    yield terms_table(estimate)
    yield stacked("Memory of each pipeline rank, GiB", memory_table(estimate.memory))
    yield from lanes_part(estimate)
    if remedies is not None:
        yield remedies_part(remedies, layout, side, searched=searched)
    if others := tuple(note for note in notes if note not in (*cannot, *chosen)):
        yield notes_part(others)
