"""One pipeline schedule, or all of them, as text and as JSON."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

from rich.text import Text

from trainplan.cli.blocks import Drawn, Part, headed, number, section, stacked, table
from trainplan.cli.pages.parts.breakdown import alike_joined
from trainplan.cli.pages.parts.timeline import timeline_text
from trainplan.cli.words import DOT, gib, percent
from trainplan.planner.schedules import Pipeline, Ranking, Scored, better

EXACT = 6
"""Digits of a time in a unit that only the user knows."""


def amount(value: float) -> str:
    """A time in the user's unit."""
    return f"{value:.{EXACT}g}"


def schedule_page(scored: Scored, pipeline: Pipeline, width: int | None) -> Iterator[Part]:
    """The answer, the picture, the memory, and what would be better."""
    yield headed(headline(scored), proof_text(scored))
    yield Drawn(partial(timeline_text, scored.timeline), width)
    yield _memory(scored)
    advice = [
        f"{hint.change}: {amount(hint.makespan)}{_saved(scored, hint.makespan)}"
        for hint in better(scored, pipeline)
    ]
    if advice:
        yield section("Could be better", *advice)


def headline(scored: Scored) -> str:
    """Name, time, bubble and distance from the best in one line."""
    return DOT.join(
        (
            scored.kind,
            f"makespan {amount(scored.makespan)}",
            f"bubble {percent(scored.timeline.bubble_fraction)}",
            gap_text(scored),
        )
    )


def gap_text(scored: Scored) -> str:
    """How far from the best order of its passes it is at most."""
    if scored.optimal:
        return "proved: no better order"
    return f"at most {percent(scored.gap_fraction)} above the best order"


def proof_text(scored: Scored, time: Callable[[float], str] = amount) -> str:
    """What is proved, in a sentence; `time` writes a duration."""
    passes = "whole backward passes" if scored.whole else "these passes"
    held = f"with at most {scored.memory} activations on a rank" if scored.memory else "at all"
    return f"No order of {passes} {held} ends before {time(scored.lower_bound)}."


def _saved(scored: Scored, makespan: float) -> str:
    change = makespan / scored.makespan - 1
    return f" ({change:+.1%})".replace("%", " %")


def _memory(scored: Scored) -> Part:
    """Peaks of every rank; equal neighbours share a row."""
    held = [f"{peak:g}" for peak in scored.peaks], [f"{p:g}" for p in scored.peaks_at_input_grad]
    sizes = [[gib(peak) for peak in scored.peak_bytes]] if scored.peak_bytes else []
    ranks = zip(map(str, range(len(held[0]))), *held, *sizes, strict=True)
    heads = ("activations held", "freed at the input gradient", *(["GiB"] if sizes else []))
    found = table("", ("rank", *map(number, heads)), ranks)
    unit = "Most activations at once, of one micro batch through one virtual stage each"
    return headed(unit, replace(found, rows=alike_joined(found.rows)))


def ranking_page(ranking: Ranking) -> Iterator[Part]:
    """The fastest, the table of all, and what does not run."""
    yield Text(headline(ranking.schedules[0]), style="bold")
    yield stacked(_table(ranking), Text(ORDER))
    if ranking.refused:
        yield table("", ("does not run", "why"), _folded(ranking))


ORDER = (
    "better order: by how much more than the fastest order of the same passes a schedule may take, "
    "on the same ranks with the same memory"
)


def _folded(ranking: Ranking) -> Iterator[tuple[str, str]]:
    """Schedules that do not run, and why; those that only want another vpp in one row."""
    vpp = ranking.schedules[0].vpp
    other = [one for one in ranking.refused if one.other_vpp]
    if other:
        names = ", ".join(one.kind for one in other)
        yield "another vpp", f"{names}: not with vpp={vpp}"
    for one in ranking.refused:
        if not one.other_vpp:
            yield one.kind, one.reason


def _table(ranking: Ranking) -> Part:
    times = (number("makespan", amount), number("bubble", percent), number("better order"))
    rows = (
        (
            one.kind,
            one.makespan,
            one.timeline.bubble_fraction,
            "none" if one.optimal else f"<= {percent(one.gap_fraction)}",
            max(one.peaks),
            (", ".join(one.runs_on) or "no runtime")
            + ", weights twice" * (one.timeline.program.copies > 1),
        )
        for one in ranking.schedules
    )
    return table("", ("schedule", *times, number("held", "{:g}".format), "runs on"), rows)
