"""The document of `plan explain`."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Literal, Self

from trainplan.cli.words import percent
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.routing import LoadShift
from trainplan.costmodel.step import Estimate
from trainplan.planner.documents import (
    Document,
    OfJob,
    Priced,
    WrittenLayout,
    layout_json,
    of_job,
    of_priced,
)
from trainplan.planner.explanations import (
    Bought,
    ExpertPlacement,
    Explanation,
    LargestModel,
    Resource,
    SequenceLengths,
    ShadowPrice,
)
from trainplan.planner.explanations import RecomputeRule as FinerRule
from trainplan.planner.explanations import RelaxedRule as FinerRuleTried
from trainplan.planner.questions import Imbalance

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
    """The best without a rule of the runtime; an answer that cannot run."""

    proved: bool
    layout: Layout | None
    step_time_s: float
    lower_bound_s: float | None
    cost_fraction: float
    """What the rule costs at least, of a step without it."""
    most_cost_fraction: float | None
    """At most; null: not known."""

    @classmethod
    def of(cls, relaxed: FinerRuleTried) -> Self:
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
    def of(cls, rule: FinerRule) -> Self:
        """Of both searches."""
        free = rule.any_split
        return cls(
            same_split=RelaxedRule.of(rule.same_split),
            any_split=RelaxedRule.of(free) if free else None,
        )


@dataclass(frozen=True, kw_only=True)
class Rival(Document):
    """A layout that may be faster after all."""

    layout: WrittenLayout  # type: ignore[valid-type]
    """Of the plan's table."""
    step_time_s: float
    """Estimate."""
    step_time_p90_s: float
    """90 % of runs take less."""
    rank_by_p90: int
    """Place among all by that time."""
    probability_faster: float
    """That it is faster than the choice."""
    near_tie: bool
    """A tie with the choice for the model."""


@dataclass(frozen=True, kw_only=True)
class Robustness(Document):
    """How sure the choice is."""

    near_ties: int
    rivals: tuple[Rival, ...]


@dataclass(frozen=True, kw_only=True)
class ExplainDocument(OfJob, Priced):
    """What limits a plan, and what more would buy."""

    SCHEMA = "trainplan/explain/v1"
    schema: Literal["trainplan/explain/v1"]
    """`trainplan/explain/v1`."""
    verdict: str
    """What limits the plan, in a sentence."""
    layout: WrittenLayout  # type: ignore[valid-type]
    """The plan's; `model`, `training`, `cluster`, `runtime` and `estimate` are as in a plan."""
    estimate: Estimate
    resources: tuple[Share, ...]
    """`resource` (compute, host, network, pipeline, offload, overhead), `time_s` of the step that
    waits for it and its `fraction`, largest first; they sum to the step."""
    memory_limit: MemoryLimit
    """`pipeline_rank` that is fullest, `margin_fraction`, `usable_bytes` that the margin leaves,
    `headroom_bytes` below them, and `binds`: would 2 GiB or 10 % more make the best plan faster?
    Null: not searched, or a search was cut short."""
    largest_model: LargestModel | None
    imbalance: Imbalance | None
    """What unequal experts cost: `routing`, `ranks` that experts are spread over, `fullest_rank`
    (rows of the fullest over those of balanced tokens), `dropped_fraction`, `padded_fraction`,
    `seconds` more than with balanced tokens and `cost_fraction`. Null: experts are balanced, and
    nothing is dropped or padded."""
    load_shift: LoadShift | None
    """Step time and memory by step, as experts fill differently; as in a plan."""
    placement: ExpertPlacement | None
    """Where experts should lie (`--placement` writes it): the expert `ranks` on so many `nodes`;
    rows of the `fullest` over those of the mean rank, mean over layers or (`aim` worst) of the step
    with most, `in_order` of the numbers, and the `least` that no placement is below; `later`, of
    one made by the first half of the steps in the others, and `later_in_order` (null: one step was
    counted, so it is not known); `copies`, one redundant copy more on every rank (Megatron-LM has
    none; other runtimes were not read): `fullest`, `step_time_s` with `gradients_s` of copies,
    `peak_reserved_bytes` (null: no price); `slots`, the expert in each slot of the ranks, a text
    for each layer or for all. Null: experts are equal or on one rank."""
    lengths: SequenceLengths | None
    """What unequal lengths of sequences cost: `padding_fraction` of a row; `attention_wait`,
    attention seconds of the ranks that all wait for over those of a mean row;
    `balanced_step_time_s`, the same tokens in rows equal in work (null: they are); `degrees`,
    context ranks that sequences need, each with the `longest`, `sequences_fraction` and
    `tokens_fraction`; `dynamic`, each sequence on the ranks it needs: `tokens_per_rank`,
    `step_time_s` (null: a degree breaks a rule) and why the runtime has `refused` it (empty: it
    runs), null with cp = 1. Null: all sequences have one length."""
    notes: tuple[str, ...]
    """Widths of the model that its kernels do not take as they are: which, what they cost of the
    step, what helps."""
    recompute_rule: RecomputeRule | None
    """What the runtime's rule costs that every stage recomputes as many layers: `same_split`, with
    the split of the layers kept, over all degrees; `any_split`, a layout that is faster still with
    its layers split anew, or null. Each has the `layout` without the rule (null: none is faster
    than the plan), its `step_time_s` (else the plan's), `cost_fraction` (by how much the plan takes
    longer), `lower_bound_s` and `most_cost_fraction` (what is proved of all others; null: nothing)
    and `proved`. Null: stages may differ in this runtime, several node groups, or no time was
    left."""
    ranking: tuple[Bought, ...]
    """What changes buy by themselves, the most first: `change` and `text` as in `shadow_prices`,
    `gain_fraction` in tokens per second beyond the fastest layout that is known without it,
    `saved_days` `of_days` of the run (null: `--tokens` is not given), `changes_training` (what it
    trains otherwise) and `in_plan` (the plan has it: what it would lose without) and
    `beyond` (limits of all published runs that it breaks: extrapolated). Other jobs (batches, more
    nodes) are not among them."""
    shadow_prices: tuple[ShadowPrice, ...]
    """What each change of the job would buy, the most first."""
    robustness: Robustness
    """`near_ties`: how many of the `rivals` tie with the choice, which is the
    first of them."""

    @classmethod
    def of(cls, found: Explanation) -> Self:
        """Of an explained plan."""
        job, memory, rule = found.job, found.memory, found.recompute_rule
        return cls.of_fields(
            found,
            **of_job(job),
            **of_priced(job, found),
            verdict=cls.sentence(found),
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

    @staticmethod
    def sentence(found: Explanation) -> str:
        """What limits the plan, in one line."""
        first, price = found.shares[0], found.best_price
        parts = [f"{LIMITED_BY[first.resource]}: {percent(first.fraction)} of the step"]
        if found.memory_binds is not None:
            parts.append("memory binds" if found.memory_binds else "memory does not bind")
        if price:
            parts.append(f"{price.text} buys {percent(found.bought(price))}")
        return "; ".join(parts) + "."
