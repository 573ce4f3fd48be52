"""The first screen: what stands out of the answer in numbers, and how sure it is."""

from __future__ import annotations

from collections.abc import Iterator

from trainplan.cli.render.parts.evidence import plan_evidence_lines
from trainplan.cli.render.parts.headline import refusals
from trainplan.cli.render.parts.text import gib, percent, seconds, seconds_like
from trainplan.cli.render.plan import certificate_text
from trainplan.cli.report.blocks import Fact, Facts, Paragraph
from trainplan.planner.plan import Plan


def certainty(plan: Plan) -> Iterator[Paragraph]:
    """What is proved, what is only modelled, what is doubtful."""
    for line in refusals(plan.job, plan.notes):
        yield Paragraph(line, "bad")
    proved = plan.certificate.optimal
    yield Paragraph(_joined(certificate_text(plan)), "good" if proved else "doubtful")
    inside = plan.evidence is not None and plan.evidence.inside
    for line in plan_evidence_lines(plan):
        yield Paragraph(_joined(line), "plain" if inside else "doubtful")


def _joined(text: str) -> str:
    """A text of the terminal on one line."""
    return " ".join(text.split("\n"))


def facts(plan: Plan) -> Facts:
    """Step, speed, memory."""
    best = plan.best.estimate
    step, memory, interval = best.step_time_s, best.memory, best.uncertainty
    low = seconds_like(interval.step_time_low_s, step).split()[0]
    high = seconds_like(interval.step_time_high_s, step)
    return Facts(
        (
            Fact("step", seconds(step), f"{percent(interval.level, 0)}: {low} to {high}"),
            Fact("tokens/s/GPU", f"{best.tokens_per_s_per_gpu:,.0f}"),
            Fact("MFU", percent(best.mfu)),
            Fact(
                "memory of the fullest GPU",
                f"{gib(memory.peak_reserved_bytes)} GiB",
                f"of {gib(memory.capacity_bytes)} GiB",
                "plain" if memory.fits else "bad",
            ),
        )
    )
