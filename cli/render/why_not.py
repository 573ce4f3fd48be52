"""A layout against the plan's, as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict

from rich.console import Group, RenderableType
from rich.text import Text

from trainplan.cli.render.parts.breakdown import memory_table
from trainplan.cli.render.parts.differences import (
    differences_table,
    remedies_json,
    remedies_part,
)
from trainplan.cli.render.parts.headline import estimate_line, job_line
from trainplan.cli.words import gib, layout_line, percent, plural, seconds
from trainplan.planner.plan.layout_document import layout_json
from trainplan.planner.plan.plan import estimate_json, job_json
from trainplan.planner.questions.why_not import Overflow, WhyNot

SCHEMA = "trainplan/why-not/v1"
HEADS = ("plan", "this layout")
SAME_TIME = 1e-6
"""A smaller share of the step is no loss."""


def why_not_page(found: WhyNot) -> Iterator[RenderableType]:
    """The verdict, then its evidence, then what would help."""
    yield Text(verdict(found), style="bold green" if found.probability_faster else "bold red")
    job, best = found.best.job, found.best
    lines = [
        f"asked: {layout_line(found.layout, job.model)}",
        f"plan:  {layout_line(best.layout, job.model)}",
        f"  {estimate_line(best.estimate)}",
    ]
    if found.other:
        lines.insert(1, f"  {estimate_line(found.other.estimate)}")
    yield Group(*lines)
    yield job_line(job)
    for rule in found.broken:
        yield Group(Text(f"Rule {rule.name}", style="bold"), rule.says, f"source: {rule.source}")
    if found.other and found.overflows:
        memory = found.other.estimate.memory
        yield Group("Memory of each pipeline rank, GiB", memory_table(memory))
    if found.other and found.terms:
        estimates = (best.estimate, found.other.estimate)
        yield differences_table(found.terms, *estimates, heads=HEADS)
    if found.verdict in ("refused", "too large"):
        yield remedies_part(found.remedies, found.layout, found.best)


def verdict(found: WhyNot) -> str:
    """Why the layout is not the answer, in a sentence."""
    if found.verdict == "refused":
        names = " and ".join(rule.name for rule in found.broken)
        return f"Nobody can run it: it breaks {names}."
    if found.verdict == "too large":
        return _too_large(found)
    if found.verdict == "same":
        return "It is the plan's own layout."
    step, lost = found.best.estimate.step_time_s, found.lost_s or 0.0
    chance = percent(found.probability_faster or 0.0, 0)
    if found.verdict == "faster":
        reasons = "; ".join(found.reasons) or "no reason known why the plan does not have it"
        saved = f"{seconds(-lost)} a step faster than the plan, {percent(-lost / step)}"
        return f"It is {saved}: {reasons}."
    line = f"It loses {seconds(lost)} a step, {percent(lost / step)}"
    if lost / step < SAME_TIME:
        line = "It takes the same time"
    if found.verdict == "near tie":
        line += f", less than the model can tell apart: it is faster in {chance} of cases"
        listed = found.listed_rank
        return line + (f"; number {listed} of the plan's table." if listed else ".")
    return f"{line}; it is faster after all in {chance} of cases."


def _too_large(found: WhyNot) -> str:
    over = found.overflows[0] if found.overflows else None
    usable = gib(found.usable_bytes)
    if over is None:
        return f"It does not fit in the {usable} GiB that the margin leaves."
    which = f"pipeline rank {over.rank.rank} needs {gib(over.rank.total_bytes)} GiB"
    line = f"It does not fit: {which}, {gib(over.over_bytes)} GiB over the {usable} usable"
    if len(found.overflows) > 1:
        line += f"; {plural(len(found.overflows), 'rank')} are over"
    return line + ("; without the memory margin it fits." if found.fits_without_margin else ".")


def why_not_document(found: WhyNot) -> Mapping[str, object]:
    """The public document `trainplan/why-not/v1`."""
    job, best, other = found.best.job, found.best, found.other
    return {
        "schema": SCHEMA,
        **job_json(job),
        "verdict": found.verdict,
        "text": verdict(found),
        # as it was asked: what follows from an illegal layout has no meaning
        "layout": found.layout.model_dump(mode="json"),
        "estimate": estimate_json(other.estimate) if other else None,
        "best": {"layout": layout_json(job, best.layout), "estimate": estimate_json(best.estimate)},
        "broken_rules": [
            {"rule": rule.name, "says": rule.says, "source": rule.source} for rule in found.broken
        ],
        "usable_bytes": found.usable_bytes,
        "fits_without_margin": found.fits_without_margin,
        "overflows": [_overflow_json(overflow) for overflow in found.overflows],
        "lost_s": found.lost_s,
        "terms": [asdict(term) for term in found.terms],
        "probability_faster": found.probability_faster,
        "reasons": list(found.reasons),
        "listed_rank": found.listed_rank,
        "remedies": remedies_json(found.remedies),
    }


def _overflow_json(overflow: Overflow) -> Mapping[str, object]:
    return {
        "pipeline_rank": overflow.rank.rank,
        "total_bytes": overflow.rank.total_bytes,
        "over_bytes": overflow.over_bytes,
    }
