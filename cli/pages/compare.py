"""Two plans side by side, as text and as JSON."""

from collections.abc import Iterator

from rich.text import Text

from trainplan.cli.blocks import Part, stacked
from trainplan.cli.documents import CompareDocument
from trainplan.cli.pages.parts.differences import (
    differences_table,
    fields_table,
    memories_table,
    release_line,
    with_stages,
)
from trainplan.cli.pages.parts.headline import estimate_line, fit_line, goodput_lines
from trainplan.cli.pages.parts.objective import proof_words
from trainplan.cli.words import layout_line
from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.hardware import ClusterSpec
from trainplan.planner.comparisons import Comparison, Side

HEADS = ("first", "second")
LONGEST_VALUE = 34
"""Characters of a value in the table of fields on a terminal."""


def heads_of(*sides: tuple[ModelSpec, ClusterSpec, str]) -> tuple[str, str]:
    """`first` and `second`, each with its model, GPUs and runtime where they differ."""
    whats = [(model.name, cluster.text, runtime) for model, cluster, runtime in sides]
    pairs = [pair for pair in zip(*whats, strict=True) if pair[0] != pair[1]]
    if not pairs:
        return HEADS
    before, after = map(", ".join, zip(*pairs, strict=True))
    return f"{HEADS[0]} ({before})", f"{HEADS[1]} ({after})"


def compare_page(found: Comparison) -> Iterator[Part]:
    """The verdict, then what differs."""
    yield Text(CompareDocument.sentence(found), style="bold green")
    jobs = found.first.job, found.second.job
    heads = heads_of(*((job.model, job.cluster, job.runtime) for job in jobs))
    yield stacked(*_side(heads[0], found.first), *_side(heads[1], found.second))
    if found.job:
        yield fields_table("", found.job, HEADS, screen="Job", cut=LONGEST_VALUE)
    else:
        yield "The job is the same."
    if found.layout:
        sides = found.first.layout, found.second.layout
        fields = with_stages(found.layout, sides)
        yield fields_table("", fields, HEADS, screen="Layout", cut=LONGEST_VALUE)
    else:
        yield "The layout is the same."
    yield found.checkpoint.sentence
    one, other = found.first.estimate, found.second.estimate
    yield differences_table(found.terms, one, other, HEADS)
    yield from release_line([other.step_time_s / one.step_time_s - 1])
    yield memories_table(one.memory, other.memory, HEADS)


def _side(name: str, side: Side) -> Iterator[str]:
    yield f"{name}: {layout_line(side.layout, side.job.model)}"
    yield f"  {estimate_line(side.estimate, side.job)}"
    yield f"  proved under the cost model: {proof_words(side.proof)}"
    yield from (f"  {line}" for line in goodput_lines(side.job))
    if not side.estimate.memory.fits:
        yield f"  {fit_line(side.estimate.memory, side.job.model)}"
