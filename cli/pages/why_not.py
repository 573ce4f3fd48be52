"""A layout against the plan's, as text and as JSON."""

from collections.abc import Iterator

from rich.text import Text

from trainplan.cli.blocks import Part, headed, stacked
from trainplan.cli.documents import WhyNotDocument
from trainplan.cli.pages.parts.breakdown import memory_table
from trainplan.cli.pages.parts.differences import differences_table, remedies_part
from trainplan.cli.pages.parts.headline import estimate_line, goodput_lines, job_line
from trainplan.cli.words import layout_line
from trainplan.planner.comparisons import WhyNot

HEADS = ("plan", "this layout")


def why_not_page(found: WhyNot) -> Iterator[Part]:
    """The verdict, then its evidence, then what would help."""
    style = "bold green" if found.probability_faster else "bold red"
    yield Text(WhyNotDocument.sentence(found), style=style)
    job, best = found.best.job, found.best
    name = f"with {', '.join(found.fields)}" if found.fields else "given"
    lines = [
        f"{name}: {layout_line(found.layout, job.model)}",
        f"plan:  {layout_line(best.layout, job.model)}",
        f"  {estimate_line(best.estimate, job)}",
        *goodput_lines(job),
    ]
    if found.other:
        lines.insert(1, f"  {estimate_line(found.other.estimate, found.other.job)}")
        if found.other.job.options != job.options:
            own = found.other.job.options.arguments().values()
            lines.insert(2, f"  its settings: {' '.join(own) or 'none'}")
    yield stacked(*lines)
    yield job_line(job)
    for rule in found.broken:
        yield headed(f"Rule {rule.name}", rule.says, f"source: {rule.source}")
    if found.other and found.overflows:
        memory = found.other.estimate.memory
        yield stacked("Memory of each pipeline rank, GiB", memory_table(memory))
    if found.other and found.terms:
        estimates = (best.estimate, found.other.estimate)
        yield differences_table(found.terms, *estimates, HEADS)
    if found.verdict in ("refused", "too large"):
        yield remedies_part(
            found.remedies, found.layout, found.best, searched=found.remedies_searched
        )
