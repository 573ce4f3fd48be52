"""Two plans side by side, as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict

from rich.console import Group, RenderableType
from rich.text import Text

from trainplan.cli.render.parts.differences import (
    differences_table,
    fields_table,
    memories_table,
)
from trainplan.cli.render.parts.headline import estimate_line, fit_line
from trainplan.cli.words import layout_line, percent
from trainplan.planner.plan.layout_document import layout_json
from trainplan.planner.plan.plan import estimate_json, job_json
from trainplan.planner.questions.compare import Comparison, Side

SCHEMA = "trainplan/compare/v1"
HEADS = ("first", "second")


def compare_page(found: Comparison) -> Iterator[RenderableType]:
    """The verdict, then what differs."""
    yield Text(verdict(found), style="bold green")
    yield Group(*_side("first", found.first), *_side("second", found.second))
    if found.job:
        yield fields_table("Job", found.job, *HEADS)
    else:
        yield "The job is the same."
    if found.layout:
        yield fields_table("Layout", found.layout, *HEADS)
    else:
        yield "The layout is the same."
    one, other = found.first.estimate, found.second.estimate
    yield differences_table(found.terms, one, other, heads=HEADS)
    yield memories_table(one.memory, other.memory, HEADS)


def verdict(found: Comparison) -> str:
    """Which one is faster, and how sure that is."""
    ratio = found.throughput_ratio
    if ratio == 1:
        return "Both are equally fast."
    name, times = ("second", ratio) if ratio > 1 else ("first", 1 / ratio)
    line = f"The {name} trains {times:.3g} times as many tokens per second"
    chance = found.probability_second_faster
    if chance is None:
        return f"{line}; their jobs differ."
    likely = chance if ratio > 1 else 1 - chance
    return f"{line}; it is the faster one in {percent(likely, 0)} of cases."


def _side(name: str, side: Side) -> Iterator[str]:
    yield f"{name}: {layout_line(side.layout, side.job.model)}"
    yield f"  {estimate_line(side.estimate)}"
    if not side.estimate.memory.fits:
        yield f"  {fit_line(side.estimate.memory)}"


def compare_document(found: Comparison) -> Mapping[str, object]:
    """The public document `trainplan/compare/v1`."""
    return {
        "schema": SCHEMA,
        "verdict": verdict(found),
        "throughput_ratio": found.throughput_ratio,
        "probability_second_faster": found.probability_second_faster,
        "job": [asdict(field) for field in found.job],
        "layout": [asdict(field) for field in found.layout],
        "terms": [asdict(term) for term in found.terms],
        "first": _side_json(found.first),
        "second": _side_json(found.second),
    }


def _side_json(side: Side) -> Mapping[str, object]:
    return {
        **job_json(side.job),
        "layout": layout_json(side.job, side.layout),
        "estimate": estimate_json(side.estimate),
    }
