"""What unequal experts cost: rows of the fullest expert rank over those of a balanced one.

All ranks of an expert group wait for each other in every exchange, so the fullest rank sets the
pace of every layer: its products, its kernels and what it receives. `Loads` are expectations over
the micro batches of one layer; experts lie on ranks in the order of their numbers, or as a stated
`expert_placement` has them.

Memory is counted by the same expectation, as if one rank were fullest in all layers. That is no
less than the expected activations of the fullest rank, since the largest of sums is at most the sum
of the largest; a single micro batch may have more, which the memory margin is for.

Source: derived, line by line below; Megatron-LM @d98e8a64 `core/transformer/moe`.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

import numpy as np

from trainplan.costmodel.architecture import MoeSpec
from trainplan.costmodel.base import Identical, SpecError
from trainplan.costmodel.columns import FloatColumn
from trainplan.costmodel.job import Job, RoutingSpec, RuntimeOptions
from trainplan.costmodel.layouts import LayoutTable
from trainplan.costmodel.routing.choices import (
    Counts,
    changed_rows,
    choice_probabilities,
    counts_of,
)
from trainplan.costmodel.routing.expected_maximum import expected_maximum
from trainplan.costmodel.routing.packing import Aim
from trainplan.costmodel.routing.placed import best_placement
from trainplan.costmodel.routing.placement import Placement, in_order, rank_counts

ALIGNED_ROWS = {"fp8": 16, "mxfp8": 32, "nvfp4": 128}
"""Rows of an expert that quantized products take at once.

Source: Megatron-LM @d98e8a64 `core/fp8_utils.py`, get_fp8_align_size; `core/fp4_utils.py`,
get_fp4_align_size.
"""
BALANCED = RoutingSpec(kind="balanced")
AIMS: Mapping[str, Aim] = MappingProxyType({"best": "mean", "worst_step": "worst"})
"""By the value of `expert_placement`."""
ROUNDING = 1e-12
"""A load so near to 1 is that of balanced tokens.

Source: derived; a sum over some hundreds of experts is off by so many roundings of 1e-16, not more.
"""


@dataclass(frozen=True, slots=True)
class Load:
    """One layer of experts: rows over those that balanced tokens make without loss or padding."""

    fullest: float
    """Of the fullest rank."""
    fullest_node: float
    """Of the fullest node, mean over its ranks."""
    dropped_fraction: float
    """Of the rows that routers chose, those beyond the capacity."""
    padded_fraction: float
    """Of the rows that are computed, those that no router chose."""


@dataclass(frozen=True, slots=True)
class Loads:
    """`Load.fullest` and `Load.fullest_node` of every row."""

    fullest: FloatColumn
    fullest_node: FloatColumn


@dataclass(frozen=True, slots=True)
class _Router:
    """All a load depends on but the layout."""

    moe: MoeSpec
    routing: RoutingSpec
    capacity_factor: float | None
    pads: bool
    multiple: int
    aim: Aim | None = None
    """What a placement of experts is made for; null: they lie in the order of their numbers."""

    @property
    def changes_nothing(self) -> bool:
        """Does every rank compute the rows of a balanced one?"""
        balanced = self.routing.kind == "balanced"
        return balanced and self.capacity_factor is None and self.multiple == 1


def loads(job: Job, table: LayoutTable, nodes: FloatColumn | None = None) -> Loads:
    """Rows of the fullest expert rank, and of the fullest of so many nodes, of each row.

    Source: `load`.
    """
    router, one = _router_of(job), np.ones(len(table))
    if router is None or router.changes_nothing:
        return Loads(one, one)
    spread = one if nodes is None else np.ceil(nodes)
    keys = np.stack([table.ep, table.etp, spread, local_tokens(job, table)])
    kinds, place = np.unique(keys, axis=1, return_inverse=True)
    each = [
        _load(Identical(router), int(ep), int(etp), int(groups), tokens)
        for ep, etp, groups, tokens in kinds.T.tolist()
    ]
    fullest = np.array([one.fullest for one in each])
    by_node = np.array([one.fullest_node for one in each])
    rows = place.reshape(-1)
    return Loads(fullest[rows], by_node[rows])


def load(
    job: Job,
    *,
    ep: int,
    etp: int,
    tokens: float,
    nodes: int = 1,
    placement: Placement | None = None,
) -> Load | None:
    """The load of one layout whose ranks route so many tokens each; null without experts.

    `placement`: of experts on the ranks; null: in the order of their numbers.
    """
    router = _router_of(job)
    if router is None:
        return None
    return _load(Identical(router), ep, etp, nodes, tokens, placement=placement)


def local_tokens(job: Job, table: LayoutTable) -> FloatColumn:
    """Tokens one rank routes in a micro batch.

    Source: Megatron Core MoE, arXiv:2504.14960, section 3: tokens are cut over cp, and over tp by
    sequence parallelism.
    """
    shards = np.where(table.sequence_parallel == 1, table.tp, 1) * table.cp
    return np.asarray(table.micro_batch_size * job.training.seq_length / shards)


def check_routing(job: Job) -> None:
    """Could tokens choose so?

    Raises:
        SpecError: Counts that no router of the model makes, or too few layers of them; a placement
            by steps without any.
    """
    router = _router_of(job)
    if router is None:
        return
    if router.aim == "worst" and router.routing.has_popular_experts and not router.routing.steps:
        raise SpecError(
            f"expert_placement=worst_step: routing={router.routing} has no counts by step, so the "
            "fullest step is not known: give a file with counts of several steps, or write "
            "expert_placement=best"
        )
    layers, model = len(_probabilities(router)), job.model
    with_prediction = model.num_moe_layers + model.num_nextn_predict_layers
    if layers not in (1, model.num_moe_layers, with_prediction):
        raise SpecError(
            f"routing: {layers} layers of counts, the model has {job.model.num_moe_layers} of "
            "experts: give one line for each, or one for all; of a pipelined run of Megatron-LM, "
            "whose files number layers by stage, a folder stage0, stage1, ... with the files of "
            "each (virtual stages of a rank are mixed in them: count without any)"
        )


def changes_rows(job: Job) -> bool:
    """Do options or routing make ranks compute other rows than those of balanced tokens?"""
    router = _router_of(job)
    return router is not None and not router.changes_nothing


def row_multiple(options: RuntimeOptions, precision: str) -> int:
    """Rows that a rank sends to an expert are a multiple of. Source: `ALIGNED_ROWS`."""
    return ALIGNED_ROWS.get(precision, 1) if options.moe_router_padding else 1


Rest = tuple[float | None, bool, int, Aim | None]


@lru_cache(maxsize=64)
def _of(moe: Identical[MoeSpec], routing: Identical[RoutingSpec], rest: Rest) -> _Router:
    """One for all jobs that differ in other options: loads are found once for them."""
    return _Router(moe.of, routing.of, *rest)


def _router_of(job: Job) -> _Router | None:
    moe, options = job.model.moe, job.options
    if moe is None:
        return None
    multiple = row_multiple(options, job.training.precision)
    pads, aim = bool(options.moe_pad_to_capacity), AIMS.get(options.expert_placement or "order")
    rest = (options.moe_capacity_factor, pads, multiple, aim)
    return _of(Identical(moe), Identical(options.routing or BALANCED), rest)


@lru_cache(maxsize=8192)
def _load(
    known: Identical[_Router],
    ep: int,
    etp: int,
    nodes: int,
    tokens: float,
    *,
    placement: Placement | None = None,
) -> Load:
    """The load of one layer: the mean over layers whose tokens choose otherwise.

    Source: derived; layers follow one another, so their seconds and their bytes add up.
    """
    router = known.of
    if router.routing.kind == "load":
        return _stated(router.routing.fullest, ep, min(nodes, ep))
    capacity = expert_capacity(router, tokens)
    if router.pads and capacity is not None:
        return _padded(router, capacity, tokens)
    layers = [_counts(router, one, tokens, capacity) for one in _probabilities(router)]
    balanced = tokens * router.moe.rows_per_token
    groups, experts = min(nodes, ep), router.moe.num_experts
    placement = placement or _placement(router, ep, groups)
    by_rank = placement or in_order(experts, ep)
    on_nodes = placement.on_nodes(groups) if placement else in_order(experts, groups)

    def fullest_of(places: Placement) -> float:
        rows = [_fullest(router, one, places, i, ep * etp) for i, one in enumerate(layers)]
        return float(np.mean(rows)) / balanced

    computed = float(np.mean([one.means.sum() for one in layers]))
    kept = float(np.mean([_kept(router, tokens, capacity, one) for one in _probabilities(router)]))
    fullest = fullest_of(by_rank)
    node = min(fullest, fullest_of(on_nodes))
    return _rounded(fullest, node, kept / balanced, kept / computed)


def _placement(router: _Router, ep: int, nodes: int) -> Placement | None:
    """By the tokens of all steps, whichever step is looked at; null: in the order of numbers."""
    if router.aim is None:
        return None
    return best_placement(Identical(router.routing), Identical(router.moe), ep, nodes, router.aim)


def placement_of(job: Job, *, ep: int, nodes: int) -> Placement:
    """Where the experts of a job with experts lie, on the ranks of so many nodes."""
    router = _router_of(job)
    assert router is not None
    return _placement(router, ep, min(nodes, ep)) or in_order(router.moe.num_experts, ep)


def _stated(fullest: float, ranks: int, nodes: int) -> Load:
    """A load as stated, which is no more than all rows of all ranks, or nodes.

    Source: derived; one of n ranks with all rows has n times those of the mean.
    """
    return Load(min(fullest, float(ranks)), min(fullest, float(nodes)), 0.0, 0.0)


def _rounded(fullest: float, fullest_node: float, kept: float, chosen: float) -> Load:
    """A load without the rounding of sums; `chosen` is the share of rows that routers chose."""
    exact = [1.0 if abs(x - 1.0) < ROUNDING else x for x in (fullest, fullest_node, kept, chosen)]
    return Load(exact[0], exact[1], 1 - exact[2], 1 - exact[3])


def expert_capacity(router: _Router, tokens: float) -> float | None:
    """Rows that one rank may send to an expert; null: any number.

    Source: Megatron-LM @d98e8a64 `moe/moe_utils.py:249`, get_capacity: ceil(tokens * top-k /
    experts * factor), of the tokens of one rank; no expert gets more rows than there are tokens.
    """
    if router.capacity_factor is None:
        return None
    moe = router.moe
    share = tokens * moe.num_experts_per_tok / moe.num_experts
    return float(math.ceil(share * router.capacity_factor - 1e-9))


def _padded(router: _Router, capacity: float, tokens: float) -> Load:
    """Every expert gets its capacity of every rank, whatever tokens choose.

    Source: Megatron-LM @d98e8a64 `moe/token_dispatcher.py:523`, num_tokens_per_local_expert.
    """
    computed = capacity * router.moe.num_experts
    balanced = tokens * router.moe.rows_per_token
    kept = float(np.mean([_kept(router, tokens, capacity, p) for p in _probabilities(router)]))
    factor = computed / balanced
    return _rounded(factor, factor, kept / balanced, kept / computed)


def _probabilities(router: _Router) -> tuple[FloatColumn, ...]:
    return _chosen(Identical(router.routing), Identical(router.moe))


@lru_cache(maxsize=64)
def _chosen(routing: Identical[RoutingSpec], moe: Identical[MoeSpec]) -> tuple[FloatColumn, ...]:
    return choice_probabilities(routing.of, moe.of)


def _counts(
    router: _Router, probabilities: FloatColumn, tokens: float, capacity: float | None
) -> Counts:
    """Rows of each expert. Source: `counts_of`; balanced counts are their means and never vary."""
    if router.routing.kind != "balanced":
        return counts_of(probabilities, tokens, capacity, router.multiple)
    rows = changed_rows(tokens * probabilities, capacity, router.multiple)
    return Counts(rows, np.zeros_like(rows), np.zeros_like(rows))


def _kept(
    router: _Router, tokens: float, capacity: float | None, probabilities: FloatColumn
) -> float:
    """Rows that routers chose and that the capacity leaves. Source: as `counts_of`."""
    unrounded = _Router(router.moe, router.routing, router.capacity_factor, pads=False, multiple=1)
    return float(_counts(unrounded, probabilities, tokens, capacity).means.sum())


def _fullest(
    router: _Router, counts: Counts, placement: Placement, layer: int, sources: int
) -> float:
    """Expected rows of the fullest rank, over as many as it has shares of a balanced one.

    Source: `rank_counts`, `expected_maximum`.
    """
    if placement.ranks == 1:
        return float(counts.means.sum())
    rows = rank_counts(router.moe, counts, placement, layer, sources)
    largest = expected_maximum(rows.means, rows.variances, rows.thirds)
    return largest * placement.ranks / sources
