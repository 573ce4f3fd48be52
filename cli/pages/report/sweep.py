"""The report of `plan sweep`: scaling curves with the best layout of each point."""

from collections.abc import Iterator

from trainplan.cli.blocks import (
    Block,
    Fact,
    Facts,
    Page,
    Paragraph,
    Section,
)
from trainplan.cli.pages.report.sweep_curves import (
    Swept,
    curve_charts,
    held_text,
    per_gpu,
)
from trainplan.cli.pages.sweep import points_table


def sweep_page(swept: Swept) -> Page:
    """The report of a sweep."""
    return Page(
        title=f"{swept.model.name}, {' and '.join(one.knob for one in swept.varied)} varied",
        answer=swept.verdict,
        certainty=tuple(_certainty(swept)),
        facts=Facts(tuple(_facts(swept))),
        sections=(
            Section("curves", "Curves", tuple(curve_charts(swept))),
            Section("points", "Best layout of each point", tuple(_points(swept))),
        ),
    )


def _certainty(swept: Swept) -> Iterator[Paragraph]:
    statuses = [point.status for one in swept.curves for point in one.points]
    counts = {name: statuses.count(name) for name in dict.fromkeys(statuses)}
    written = {
        "proved": "proved fastest under the cost model",
        "even": "proved but for uneven stages: `plan search` proves more",
        "found": "found, not proved: there may be a faster one",
        "memory": "do not fit",
        "rules": "have no legal layout",
        "untried": "were not tried: the time limit struck",
        "impossible": "are no job",
    }
    for name, count in counts.items():
        good = name == "proved"
        text = f"{count} of {len(statuses)} points: {written.get(name, name)}."
        yield Paragraph(text, "good" if good else "doubtful")
    if swept.weak:
        yield Paragraph("The batch grows with the GPUs: weak scaling.")


def _facts(swept: Swept) -> Iterator[Fact]:
    planned = [one for curve in swept.curves for one in curve.points if one.tokens_per_s]
    if not planned:
        return
    best = max(planned, key=lambda one: one.tokens_per_s or 0.0)
    yield Fact("most tokens/s", f"{best.tokens_per_s:,.0f}", held_text(best.settings))
    each = max(planned, key=per_gpu)
    yield Fact("most tokens/s/GPU", f"{per_gpu(each):,.0f}", held_text(each.settings))
    for knee in (one for one in planned if one.knee):
        yield Fact("knee", held_text(knee.settings), "GPUs beyond it give under 80 %")


def _points(swept: Swept) -> Iterator[Block]:
    for curve in swept.curves:
        held = held_text(curve.held)
        yield points_table(swept.varied[0].knob, curve.points, swept.model, held)
