"""The document of `plan explain`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Literal, Self

from trainplan.cli.words import percent
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.step import Estimate
from trainplan.planner.plan.document import (
    Document,
    OfJob,
    Priced,
    WrittenLayout,
    of_job,
    of_priced,
)
from trainplan.planner.plan.layout_document import layout_json
from trainplan.planner.questions import relaxed_recompute
from trainplan.planner.questions.explain import Explanation, Resource
from trainplan.planner.questions.imbalance import Imbalance
from trainplan.planner.questions.largest_model import LargestModel
from trainplan.planner.questions.sequence_lengths import SequenceLengths
from trainplan.planner.questions.shadow_prices import ShadowPrice

LIMITED_BY: Mapping[Resource, str] = {
    "compute": "Compute limits this plan",
    "host": "Kernel launches limit this plan",
    "network": "Communication limits this plan",
    "pipeline": "The pipeline bubble limits this plan",
    "offload": "Copies to host memory limit this plan",
    "overhead": "Overhead limits this plan",
}


@dataclass(frozen=True, kw_only=True)
class Share(Document):
    """What a resource takes of the step."""

    resource: Resource
    time_s: float
    fraction: float


@dataclass(frozen=True, kw_only=True)
class MemoryLimit(Document):
    """The fullest rank."""

    pipeline_rank: int
    margin_fraction: float
    """Of the capacity, which must stay free."""
    usable_bytes: float
    headroom_bytes: float
    binds: bool | None
    """Would more memory buy time? Null: not tried."""


@dataclass(frozen=True, kw_only=True)
class RelaxedRule(Document):
    """The best without a rule of the runtime; an answer nobody can run."""

    proved: bool
    layout: Layout | None
    step_time_s: float
    lower_bound_s: float | None
    cost_fraction: float
    """What the rule costs at least, of a step without it."""
    most_cost_fraction: float | None
    """At most; null: not known."""

    @classmethod
    def of(cls, relaxed: relaxed_recompute.RelaxedRule) -> Self:
        """Of a search without the rule; what is not known is null."""
        most = relaxed.most_cost_fraction
        return cls.of_fields(
            relaxed,
            lower_bound_s=relaxed.lower_bound_s or None,
            most_cost_fraction=most if isfinite(most) else None,
        )


@dataclass(frozen=True, kw_only=True)
class RecomputeRule(Document):
    """What one way of recomputation for all stages costs."""

    same_split: RelaxedRule
    any_split: RelaxedRule | None

    @classmethod
    def of(cls, rule: relaxed_recompute.RecomputeRule) -> Self:
        """Of both searches."""
        free = rule.any_split
        return cls(
            same_split=RelaxedRule.of(rule.same_split),
            any_split=RelaxedRule.of(free) if free else None,
        )


@dataclass(frozen=True, kw_only=True)
class Rival(Document):
    """A layout that may be faster after all."""

    KEYS = "rival"
    layout: WrittenLayout  # type: ignore[valid-type]
    step_time_s: float
    step_time_p90_s: float
    rank_by_p90: int
    probability_faster: float
    near_tie: bool


@dataclass(frozen=True, kw_only=True)
class Robustness(Document):
    """How sure the choice is."""

    near_ties: int
    rivals: tuple[Rival, ...]


@dataclass(frozen=True, kw_only=True)
class ExplainDocument(OfJob, Priced):
    """What limits a plan, and what more would buy."""

    KEYS = "explain"
    SCHEMA = "trainplan/explain/v1"
    schema: Literal["trainplan/explain/v1"]
    verdict: str
    layout: WrittenLayout  # type: ignore[valid-type]
    estimate: Estimate
    resources: tuple[Share, ...]
    memory_limit: MemoryLimit
    largest_model: LargestModel | None
    imbalance: Imbalance | None
    lengths: SequenceLengths | None
    notes: tuple[str, ...]
    recompute_rule: RecomputeRule | None
    shadow_prices: tuple[ShadowPrice, ...]
    robustness: Robustness

    @classmethod
    def of(cls, found: Explanation) -> Self:
        """Of an explained plan."""
        job, memory, rule = found.job, found.memory, found.recompute_rule
        return cls.of_fields(
            found,
            **of_job(job),
            **of_priced(job, found),
            verdict=verdict(found),
            resources=tuple(Share.of_fields(one, time_s=one.seconds) for one in found.shares),
            memory_limit=MemoryLimit.of_fields(
                memory,
                pipeline_rank=memory.rank.rank,
                margin_fraction=found.memory_margin,
                binds=found.memory_binds,
            ),
            recompute_rule=rule and RecomputeRule.of(rule),
            robustness=Robustness(
                near_ties=found.robustness.near_ties,
                rivals=tuple(
                    Rival.of_fields(one, layout=layout_json(job, one.layout))
                    for one in found.robustness.rivals
                ),
            ),
        )


def verdict(found: Explanation) -> str:
    """What limits the plan, in one line."""
    first, price = found.shares[0], found.best_price
    parts = [f"{LIMITED_BY[first.resource]}: {percent(first.fraction)} of the step"]
    if found.memory_binds is not None:
        parts.append("memory binds" if found.memory_binds else "memory does not bind")
    if price and price.replanned:
        parts.append(f"{price.text} buys {percent(price.replanned.throughput_gain_fraction)}")
    return "; ".join(parts) + "."
