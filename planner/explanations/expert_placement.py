"""Where the experts of a plan should lie, how sure that is, and what copies of some would do."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from trainplan.costmodel.base import PlanError, SpecError
from trainplan.costmodel.columns import FloatColumn
from trainplan.costmodel.comm import collective_seconds, group
from trainplan.costmodel.job import Job, RoutingSpec
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.layouts import LayoutTable
from trainplan.costmodel.model import num_parameters
from trainplan.costmodel.routing import (
    AIMS,
    Packing,
    Placement,
    counted,
    fullest,
    greedy,
    in_order,
    place,
    places,
)
from trainplan.planner.cases import Case
from trainplan.planner.questions import estimate
from trainplan.planner.solvers import pack_experts
from trainplan.planner.work import Deadline

Aim = Literal["mean", "worst"]
NEAR = 0.01
"""A packing so near to its bound is not improved: a hundredth of what a step waits for."""
SECONDS = 5.0
"""For the whole programs of all layers: what greedy rules and swaps leave is little."""


@dataclass(frozen=True, slots=True)
class ExpertCopies:
    """A layer with one copy of a hot expert more on every rank.

    More are not priced. Source: measured; counts drawn with log-normal spreads of 0.3 to 1 and a
    popularity of i ** -0.7, 128 and 256 experts on 8 to 64 ranks: a second copy lowers the fullest
    rank by less than 1 % where ranks have 4 experts or more, with 2 by 1.8 % at most, of which a
    step gains the experts' share, for the memory of half as many experts again.
    """

    fullest: float
    """As `ExpertPlacement.fullest`."""
    step_time_s: float
    """With the gradients of copies."""
    gradients_s: float
    """Of them, at most."""
    peak_reserved_bytes: float


@dataclass(frozen=True, slots=True)
class ExpertPlacement:
    """Experts on the ranks of their group; rows of the fullest rank are over those of the mean.

    Means over layers, of the counted tokens: chance within a micro batch is not in them.
    """

    ranks: int
    nodes: int
    """That the ranks are on."""
    aim: Aim
    in_order: float
    """Of the fullest rank with experts in the order of their numbers."""
    fullest: float
    """With this placement."""
    least: float
    """No placement is below."""
    later: float | None
    """By `aim`, of a placement made by the first half of the steps, in the others; null: one step
    alone."""
    later_in_order: float | None
    copies: ExpertCopies | None
    """Of a redundant copy on every rank, which Megatron-LM has not (others were not read); null: it
    has no price."""
    slots: tuple[str, ...]
    """The expert in each slot of the ranks, one rank after the other: of each layer, or of all."""

    @property
    def gap_fraction(self) -> float:
        """By how much another placement may be better."""
        return max(0.0, self.fullest / self.least - 1)

    @property
    def lines(self) -> str:
        """As a table: a line for each layer, with the expert in each slot."""
        layers = ["all"] if len(self.slots) == 1 else [str(i) for i in range(len(self.slots))]
        each = [one.split() for one in self.slots]
        size = len(each[0]) // self.ranks
        head = ("layer", *(f"rank{slot // size}" for slot in range(len(each[0]))))
        rows = ((name, *one) for name, one in zip(layers, each, strict=True))
        return "".join(",".join(row) + "\n" for row in (head, *rows))


@dataclass
class _Proving:
    """Packs as `greedy`, and by a whole program where that is far from its bound."""

    deadline: Deadline
    left: int
    """Layers that are to come, which share the seconds."""

    def __call__(
        self, weights: FloatColumn, packs: int, copies: int, aim: Aim
    ) -> tuple[Packing, float]:
        own, bound = greedy(weights, packs, copies, aim)
        value = fullest(weights, own.shares(weights.shape[1], packs), aim)
        seconds = min(SECONDS, self.deadline.seconds_left()) / max(1, self.left)
        self.left -= 1
        if value <= bound * (1 + NEAR) or seconds <= 0:
            return own, bound
        found = pack_experts(weights, packs, copies, value, seconds, worst=aim == "worst")
        if found.experts is None or found.packs is None:
            return own, max(bound, min(found.bound, value))
        better = Packing(found.experts, found.packs)
        return better, max(bound, min(found.bound, value))


def places_experts(job: Job, layout: Layout) -> bool:
    """Is there a placement: experts of unequal rows, and groups of a router whole on ranks?"""
    moe, routing = job.model.moe, job.options.routing
    unequal = routing is not None and routing.has_popular_experts
    return moe is not None and unequal and layout.ep > 1 and places(moe, layout.ep)


def expert_placement(case: Case, layout: Layout, deadline: Deadline) -> ExpertPlacement | None:
    """Of a plan; null: as `places_experts`."""
    job, moe, routing = case.job, case.job.model.moe, case.job.options.routing
    if moe is None or routing is None or not places_experts(job, layout):
        return None
    table = LayoutTable.of([layout])
    nodes = min(layout.ep, int(np.ceil(group(case.context.machine, table.ep, table.etp).nodes[0])))
    aim = AIMS.get(job.options.expert_placement or "best", "mean")
    counts = counted(routing, moe, aim)
    proving = _Proving(deadline, counts.shape[1])
    found = place(counts, moe, layout.ep, nodes=nodes, aim=aim, packer=proving)
    half = len(routing.steps) // 2
    later = _later(case, layout, half, aim) if half else (None, None)
    return ExpertPlacement(
        ranks=layout.ep,
        nodes=nodes,
        aim=aim,
        in_order=_mean_fullest(counts, in_order(moe.num_experts, layout.ep), aim),
        fullest=float(found.fullest.mean()),
        least=float(np.minimum(found.least, found.fullest).mean()),
        later=later[0],
        later_in_order=later[1],
        copies=_copies(case, layout, counts, aim),
        slots=tuple(" ".join(map(str, one)) for one in found.slots.tolist()),
    )


def _mean_fullest(counts: FloatColumn, placement: Placement, aim: Aim = "mean") -> float:
    """Of the layers. Shape of counts: [step, layer, expert]."""
    each = np.broadcast_to(placement.shares, (counts.shape[1], *placement.shares.shape[1:]))
    return float(np.mean([fullest(counts[:, i], one, aim) for i, one in enumerate(each)]))


def _later(case: Case, layout: Layout, half: int, aim: Aim) -> tuple[float, float]:
    """A placement by the steps up to a half, and the order of numbers, in those after it."""
    routing, moe = case.job.options.routing, case.job.model.moe
    assert routing is not None
    assert moe is not None
    every = counted(routing, moe, "worst")
    before, after = (
        part if aim == "worst" else part.sum(axis=0, keepdims=True)
        for part in (every[:half], every[half:])
    )
    placed = place(before, moe, layout.ep, aim=aim).placement
    plain = in_order(moe.num_experts, layout.ep)
    return _mean_fullest(after, placed, aim), _mean_fullest(after, plain, aim)


def _copies(case: Case, layout: Layout, counts: FloatColumn, aim: Aim) -> ExpertCopies | None:
    """A copy more on every rank, priced as a model with so many experts more, each as full.

    The gradients of an expert's copies are summed, too: at most in one all-reduce over the
    expert group of all that the rank with most copies has, of each shard of the optimizer.

    Source: derived; deepseek-ai/EPLB README.md, redundant experts. A copy has weights, gradients
    and states as an expert has. A replica that shards its optimizer sums its own part alone.
    """
    job, moe, copies = case.job, case.job.model.moe, layout.ep
    assert moe is not None
    try:
        found = place(counts, moe, layout.ep, copies=copies, aim=aim)
    except SpecError:
        return None
    total = counts.sum(axis=0)
    number = np.stack([np.bincount(one, minlength=moe.num_experts) for one in found.slots])
    layers = np.arange(len(total))[:, None]
    rows = (total / number)[layers, found.slots]
    routing = RoutingSpec(kind="measured", tokens_per_expert=tuple(map(tuple, rows.tolist())))
    more = moe.model_copy(update={"num_experts": moe.num_experts + copies})
    model = job.model.model_copy(update={"moe": more})
    options = job.options.model_copy(update={"routing": routing, "expert_placement": None})
    update = {"model": model, "options": options}
    try:
        priced = estimate(job.model_copy(update=update), layout, case.measured)
    except PlanError:
        return None
    shared = (number > 1)[layers, found.slots].reshape(len(total), layout.ep, -1).sum(axis=2)
    each = (num_parameters(model) - num_parameters(job.model)) / copies
    shards = layout.world_size / (layout.pp * layout.ep * layout.etp) if layout.zero_stage else 1
    cut, width = layout.pp * layout.etp * shards, case.context.traits.gradients.message_bytes
    size = np.array([shared.mean(axis=0).max() * each / cut * width])
    machine, table = case.context.machine, LayoutTable.of([layout])
    ranks = group(machine, table.ep, table.etp)
    seconds = collective_seconds(machine, "all_reduce", size, ranks)
    return ExpertCopies(
        fullest=float(found.fullest.mean()),
        step_time_s=priced.step_time_s + float(seconds[0]),
        gradients_s=float(seconds[0]),
        peak_reserved_bytes=priced.memory.peak_reserved_bytes,
    )
