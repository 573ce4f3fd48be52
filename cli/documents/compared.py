"""Documents of `plan why-not` and `plan compare`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Self

from trainplan.cli.documents.searches import Remedy
from trainplan.cli.words import gib, percent, plural, seconds
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.step import Estimate
from trainplan.planner.plan.document import Document, OfJob, Priced, of_job, of_priced
from trainplan.planner.questions import compare
from trainplan.planner.questions.compare import FieldDifference, TermDifference
from trainplan.planner.questions.why_not import Verdict, WhyNot

SAME_TIME = 1e-6
"""A smaller share of the step is no loss."""


@dataclass(frozen=True, kw_only=True)
class BrokenRule(Document):
    """A rule that refuses a layout."""

    rule: str
    says: str
    source: str


@dataclass(frozen=True, kw_only=True)
class Overflow(Document):
    """A rank that has too many bytes."""

    pipeline_rank: int
    total_bytes: float
    over_bytes: float


@dataclass(frozen=True, kw_only=True)
class WhyNotDocument(OfJob):
    """Why a layout is not the answer."""

    KEYS = "why_not"
    SCHEMA = "trainplan/why-not/v1"
    schema: Literal["trainplan/why-not/v1"]
    verdict: Verdict
    text: str
    layout: Layout
    estimate: Estimate | None
    best: Priced
    broken_rules: tuple[BrokenRule, ...]
    usable_bytes: float
    fits_without_margin: bool
    overflows: tuple[Overflow, ...]
    lost_s: float | None
    terms: tuple[TermDifference, ...]
    probability_faster: float | None
    reasons: tuple[str, ...]
    listed_rank: int | None
    remedies: tuple[Remedy, ...]

    @classmethod
    def of(cls, found: WhyNot) -> Self:
        """Of a layout against a plan; its own is as it was asked, as it may be illegal."""
        job, other = found.best.job, found.other
        return cls.of_fields(
            found,
            **of_job(job),
            text=why_not_verdict(found),
            estimate=other and other.estimate,
            best=Priced(**of_priced(job, found.best)),
            broken_rules=tuple(BrokenRule.of_fields(one, rule=one.name) for one in found.broken),
            overflows=tuple(
                Overflow(
                    pipeline_rank=one.rank.rank,
                    total_bytes=one.rank.total_bytes,
                    over_bytes=one.over_bytes,
                )
                for one in found.overflows
            ),
            remedies=tuple(map(Remedy.of, found.remedies)),
        )


def why_not_verdict(found: WhyNot) -> str:
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


@dataclass(frozen=True, kw_only=True)
class Side(OfJob, Priced):
    """One of two plans."""

    KEYS = "plan"

    @classmethod
    def of(cls, side: compare.Side) -> Self:
        """Of a priced layout."""
        return cls(**of_job(side.job), **of_priced(side.job, side))


@dataclass(frozen=True, kw_only=True)
class CompareDocument(Document):
    """Two plans, term by term."""

    KEYS = "compare"
    SCHEMA = "trainplan/compare/v1"
    schema: Literal["trainplan/compare/v1"]
    verdict: str
    throughput_ratio: float
    probability_second_faster: float | None
    job: tuple[FieldDifference, ...]
    layout: tuple[FieldDifference, ...]
    terms: tuple[TermDifference, ...]
    first: Side
    second: Side

    @classmethod
    def of(cls, found: compare.Comparison) -> Self:
        """Of two plans."""
        return cls.of_fields(
            found,
            verdict=compare_verdict(found),
            first=Side.of(found.first),
            second=Side.of(found.second),
        )


def compare_verdict(found: compare.Comparison) -> str:
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
