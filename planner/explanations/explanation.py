"""Why is a plan as fast as it is, and what would make it faster?"""

from dataclasses import asdict, dataclass, replace
from math import inf
from types import MappingProxyType
from typing import Literal

from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.routing import LoadShift
from trainplan.costmodel.step import Estimate, RankMemory
from trainplan.planner.cases import Case
from trainplan.planner.explanations.expert_placement import ExpertPlacement, expert_placement
from trainplan.planner.explanations.largest_model import LargestModel, largest_model
from trainplan.planner.explanations.relaxed_recompute import RecomputeRule, recompute_rule
from trainplan.planner.explanations.robustness import Robustness, robustness
from trainplan.planner.explanations.sequence_lengths import SequenceLengths, sequence_lengths
from trainplan.planner.explanations.shadow_prices import (
    NOTICED_GAIN,
    Bought,
    ShadowPrice,
    ranking,
    shadow_prices,
)
from trainplan.planner.plan import Candidate
from trainplan.planner.questions import (
    ANSWERED,
    Imbalance,
    Status,
    check,
    estimate,
    expert_costs,
    width_notes,
)
from trainplan.planner.work import ALONE, Budget, Workers

Resource = Literal["compute", "host", "network", "pipeline", "offload", "overhead"]

RESOURCES: MappingProxyType[Resource, tuple[str, ...]] = MappingProxyType(
    {
        "compute": ("gemm", "attention", "elementwise", "recompute", "optimizer"),
        "host": ("host",),
        "network": ("tp_comm", "cp_comm", "ep_comm", "fsdp_comm", "dp_comm", "p2p", "outer_comm"),
        "pipeline": ("bubble",),
        "offload": ("offload",),
        "overhead": ("overhead",),
    }
)
"""Which terms of `costmodel.step.simulate.Terms` wait for what; each term once."""

MEMORY_CHANGES = ("memory", "memory_tenth")
CUT_SHORT: frozenset[Status] = frozenset(("found", "untried"))
"""Searches without a bound of what a change buys."""


@dataclass(frozen=True, slots=True)
class Share:
    """Seconds of the step that wait for one resource."""

    resource: Resource
    seconds: float
    fraction: float


LIKE_PUBLISHED = (
    "What is searched anew is held to layouts like published runs and to the plan's other "
    "settings; the best of all settings together is held to neither."
)


@dataclass(frozen=True, slots=True)
class MemoryLimit:
    """The fullest pipeline rank."""

    rank: RankMemory
    usable_bytes: float
    """What the margin leaves."""
    headroom_bytes: float


@dataclass(frozen=True, slots=True)
class Explanation:
    """Where the step goes, what binds, what more would buy, how sure the choice is."""

    job: Job
    layout: Layout
    estimate: Estimate
    memory_margin: float
    shares: tuple[Share, ...]
    """Largest first; they sum to the step time."""
    memory: MemoryLimit
    recompute_rule: RecomputeRule | None
    """What the same recomputation on every stage costs; None where that was not searched."""
    shadow_prices: tuple[ShadowPrice, ...]
    robustness: Robustness
    imbalance: Imbalance | None = None
    """What unequal experts cost; None where they are equal."""
    load_shift: LoadShift | None = None
    """Step time and memory by step; None where experts are equally full in all."""
    placement: ExpertPlacement | None = None
    """Where experts should lie; None where they are equal, or on one rank."""
    lengths: SequenceLengths | None = None
    """What unequal lengths cost; None where all sequences have one length."""
    largest_model: LargestModel | None = None
    """The most layers that train; None where that was not found."""
    notes: tuple[str, ...] = ()
    """Widths off the grid of the kernels, and what searches are held to."""

    @property
    def ranking(self) -> tuple[Bought, ...]:
        """What each change buys by itself, the most first."""
        step = self.estimate.step_time_s
        return ranking(self.shadow_prices, self.job, step, step / (1 + self.slack_fraction))

    @property
    def slack_fraction(self) -> float:
        """By how much the plan takes longer than the fastest layout that is known."""
        fastest = min((one.step_time_s for one in self.robustness.rivals), default=inf)
        return max(0.0, self.estimate.step_time_s / fastest - 1)

    def bought(self, price: ShadowPrice) -> float:
        """What a change buys with the layout searched anew, beyond the plan's slack."""
        gain = price.replanned.throughput_gain_fraction if price.replanned else 0.0
        return (1 + gain) / (1 + self.slack_fraction) - 1

    @property
    def best_price(self) -> ShadowPrice | None:
        """The change of machine that buys most for the same batch; none if none is noticed."""
        bought = [price for price in self.shadow_prices if price.change in (*MEMORY_CHANGES, "nic")]
        return max(
            (p for p in bought if self.bought(p) > NOTICED_GAIN), key=self.bought, default=None
        )

    @property
    def memory_price(self) -> ShadowPrice | None:
        """Of the searched changes of memory, the one that buys most; none if none was searched."""
        searched = (
            price
            for price in self.shadow_prices
            if price.change in MEMORY_CHANGES and price.status in ANSWERED
        )
        return max(searched, key=self.bought, default=None)

    @property
    def memory_binds(self) -> bool | None:
        """Would more memory make it faster? None where no search shows it, or one was cut short.

        Of a plan with uneven stages a proof for even ones shows nothing: others were only tried.
        """
        price = self.memory_price
        if price is not None and self.bought(price) > NOTICED_GAIN:
            return True
        statuses = [one.status for one in self.shadow_prices if one.change in MEMORY_CHANGES]
        tried = CUT_SHORT if self.layout.stages is None else {*CUT_SHORT, "even"}
        return None if price is None or not tried.isdisjoint(statuses) else False


def explain(
    case: Case, layout: Layout, others: tuple[Layout, ...], budget: Budget, workers: Workers = ALONE
) -> Explanation:
    """Explain a layout of a job; `others` are its rivals.

    Settings are those of the job, but for the price of the best of all.
    The price of the runtime's rule on recomputation and shadow prices are searched until the budget
    is spent.

    Raises:
        SpecError: The layout breaks a rule of the job.
    """
    check(case.job, layout)
    held = case.options.model_copy(update={"search_options": "none", "priced_settings": True})
    case = replace(case, options=held)
    margin = case.margin
    rivals = [layout, *(other for other in others if other != layout)]
    candidates = [
        Candidate(
            rank=rank,
            layout=rival,
            estimate=estimate(case.job, rival, case.measured, memory_margin=margin),
        )
        for rank, rival in enumerate(rivals, start=1)
    ]
    chosen = candidates[0].estimate
    costs = expert_costs(case.job, layout, chosen, case.measured)
    return Explanation(
        job=case.job,
        layout=layout,
        estimate=chosen,
        memory_margin=margin,
        shares=shares(chosen),
        memory=memory_limit(chosen, margin),
        recompute_rule=recompute_rule(case, layout, chosen.step_time_s, budget),
        shadow_prices=shadow_prices(case, layout, chosen.step_time_s, budget, workers),
        robustness=robustness(candidates),
        imbalance=costs[0],
        load_shift=costs[1],
        placement=expert_placement(case, layout, budget),
        lengths=sequence_lengths(case.job, layout, case.measured),
        largest_model=largest_model(case, budget),
        notes=(
            *width_notes(case.context, layout, chosen),
            *[LIKE_PUBLISHED] * case.options.published,
        ),
    )


def shares(estimate: Estimate) -> tuple[Share, ...]:
    """Seconds of the step by resource, largest first."""
    terms, step = asdict(estimate.terms), estimate.step_time_s
    sums = {name: float(sum(terms[term] for term in RESOURCES[name])) for name in RESOURCES}
    found = (Share(name, seconds, seconds / step) for name, seconds in sums.items())
    return tuple(sorted(found, key=lambda share: -share.seconds))


def memory_limit(estimate: Estimate, memory_margin: float) -> MemoryLimit:
    """The fullest rank and what it leaves under the margin."""
    memory = estimate.memory
    usable = memory.capacity_bytes * (1 - memory_margin)
    return MemoryLimit(memory.fullest, usable, usable - memory.peak_reserved_bytes)
