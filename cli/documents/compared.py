"""Documents of `plan why-not` and `plan compare`."""

from dataclasses import dataclass
from typing import Literal, Self

from trainplan.cli.documents.searches import Remedy
from trainplan.cli.words import gib, percent, plural, seconds
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.run_costs import Goodput, goodput_of
from trainplan.costmodel.step import Estimate
from trainplan.planner.comparisons import (
    Comparison,
    FieldDifference,
    Proof,
    TermDifference,
    Verdict,
    WhyNot,
)
from trainplan.planner.comparisons import Side as ComparedSide
from trainplan.planner.documents import Document, OfJob, Priced, of_job, of_priced
from trainplan.planner.operations import Loads

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

    SCHEMA = "trainplan/why-not/v1"
    schema: Literal["trainplan/why-not/v1"]
    """`trainplan/why-not/v1`."""
    verdict: Verdict
    """`refused`, `too large`, `slower`, `near tie`, `same` or `faster`."""
    text: str
    """The verdict in a sentence."""
    fields: tuple[str, ...]
    """Those that were named, all others free; empty: a whole layout."""
    layout: Layout
    """As it was given, or the best with `fields`; `model`, `training`, `cluster` and `runtime` are
    as in a plan."""
    estimate: Estimate | None
    """Of that layout; null where a rule refuses it."""
    best: Priced
    """`layout` and `estimate` of the plan."""
    goodput: Goodput | None
    """Share of the time that trains under either, as in `spent` of a plan; null: failures are not
    stated."""
    broken_rules: tuple[BrokenRule, ...]
    """`rule`, what it `says` and its `source`."""
    usable_bytes: float
    """Device memory that the plan's margin leaves."""
    fits_without_margin: bool
    """It would fit with a margin of 0."""
    overflows: tuple[Overflow, ...]
    """`pipeline_rank`, its `total_bytes` and the `over_bytes` it has too many, fullest first."""
    lost_s: float | None
    """Seconds a step takes longer than the plan's; null where a rule refuses the layout."""
    terms: tuple[TermDifference, ...]
    """`term`, `before_s` of the plan, `after_s` of the layout and `difference_s`, largest first;
    the differences sum to `lost_s`."""
    probability_faster: float | None
    """That it is faster than the plan after all; null where it cannot run."""
    reasons: tuple[str, ...]
    """Of a faster layout: what may have kept it out of the plan."""
    listed_rank: int | None
    """Its place in the plan's table; null where it is not listed."""
    remedies: tuple[Remedy, ...]
    """Layouts that run: `changes` (`field`, `before`, `after`), `step_time_s`,
    `peak_reserved_bytes`, `layout`; fastest first."""
    remedies_searched: bool
    """False: none was found before the time limit struck, and there may be some."""

    @classmethod
    def of(cls, found: WhyNot) -> Self:
        """Of a layout against a plan; its own is as it was given, as it may be illegal."""
        job, other = found.best.job, found.other
        return cls.of_fields(
            found,
            **of_job(job),
            text=cls.sentence(found),
            estimate=other and other.estimate,
            best=Priced(**of_priced(job, found.best)),
            goodput=goodput_of(job),
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

    @staticmethod
    def sentence(found: WhyNot) -> str:
        """Why the layout is not the answer, in a sentence."""
        fields = ", ".join(found.fields)
        it = f"The best layout with {fields}" if fields else "It"
        if found.verdict == "refused":
            what = f"No layout with {fields} is legal" if fields else "It is not legal"
            more = len(found.broken) - 1
            others = f" (and {plural(more, 'other rule')})" if more else ""
            return f"{what}: {found.broken[0].says}{others}."
        if found.verdict == "too large":
            return _too_large(found, f"The smallest layout with {fields}" if fields else "It")
        if found.verdict == "same":
            return f"{it} is the plan's own{'' if fields else ' layout'}."
        step, lost = found.best.estimate.step_time_s, found.lost_s or 0.0
        chance = percent(found.probability_faster or 0.0, 0)
        if found.verdict == "faster":
            reasons = "; ".join(found.reasons) or "no reason known why the plan does not have it"
            saved = f"{seconds(-lost)} a step faster than the plan, {percent(-lost / step)}"
            return f"{it} is {saved}: {reasons}."
        line = f"{it} loses {seconds(lost)} a step, {percent(lost / step)}"
        if lost / step < SAME_TIME:
            line = f"{it} takes the same time"
        if found.other and found.other.estimate.memory.fits is None:
            line += " (not known whether it fits: its memory is an upper bound)"
        if found.verdict == "near tie":
            line += f", a tie for the model: it is faster in {chance} of cases"
            listed = found.listed_rank
            return line + (f"; number {listed} of the plan's table." if listed else ".")
        return f"{line}; it is faster after all in {chance} of cases."


def _too_large(found: WhyNot, it: str) -> str:
    over = found.overflows[0] if found.overflows else None
    usable = gib(found.usable_bytes)
    if over is None:
        return f"{it} does not fit in the {usable} GiB that the margin leaves."
    which = f"pipeline rank {over.rank.rank} needs {gib(over.rank.total_bytes)} GiB"
    line = f"{it} does not fit: {which}, {gib(over.over_bytes)} GiB over the {usable} usable"
    if len(found.overflows) > 1:
        line += f"; {plural(len(found.overflows), 'rank')} are over"
    return line + ("; without the memory margin it fits." if found.fits_without_margin else ".")


@dataclass(frozen=True, kw_only=True)
class Side(OfJob, Priced):
    """One of two plans."""

    goodput: Goodput | None
    """Share of the time that trains, as in `spent` of a plan; null: failures are not stated."""
    proof: Proof | None
    """What its search proved, under the cost model: `objective`, `optimal`, `gap_fraction` and
    `slack_fraction` (it is the simplest layout that takes no more than this longer than the best);
    null: not known."""

    @classmethod
    def of(cls, side: ComparedSide) -> Self:
        """Of a priced layout."""
        job, proof = side.job, side.proof
        return cls(**of_job(job), **of_priced(job, side), goodput=goodput_of(job), proof=proof)


@dataclass(frozen=True, kw_only=True)
class Checkpoint(Document):
    """A checkpoint of the first plan in the hands of the second."""

    loads: Loads
    """`as it is`, `after` (its `commands`), `weights alone`, `no` or `not known`."""
    text: str
    """All of it in a sentence."""
    why: str
    """What differs; empty: nothing that counts."""
    commands: tuple[str, ...]
    """What makes it load, in order: OLD is where it lies, NEW and HF folders of yours."""
    source: str
    """The part of the runtime that has it; empty: it was not looked up."""


@dataclass(frozen=True, kw_only=True)
class CompareDocument(Document):
    """Two plans, term by term."""

    SCHEMA = "trainplan/compare/v1"
    schema: Literal["trainplan/compare/v1"]
    """`trainplan/compare/v1`."""
    verdict: str
    """Which plan is faster, in a sentence."""
    throughput_ratio: float
    """Tokens per second of the second over those of the first."""
    probability_second_faster: float | None
    """Null for two jobs."""
    job: tuple[FieldDifference, ...]
    """Fields that differ: `field`, `before`, `after`, the values as text."""
    layout: tuple[FieldDifference, ...]
    """Likewise."""
    terms: tuple[TermDifference, ...]
    """As in `plan why-not`."""
    first: Side
    """`model`, `training`, `cluster`, `runtime`, `options`, `layout` and `estimate` of the first
    plan."""
    second: Side
    """Of the second."""
    checkpoint: Checkpoint
    """What a checkpoint of the first needs before the second can load it."""

    @classmethod
    def of(cls, found: Comparison) -> Self:
        """Of two plans."""
        return cls.of_fields(
            found,
            verdict=cls.sentence(found),
            first=Side.of(found.first),
            second=Side.of(found.second),
            checkpoint=Checkpoint.of_fields(found.checkpoint, text=found.checkpoint.sentence),
        )

    @staticmethod
    def sentence(found: Comparison) -> str:
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
