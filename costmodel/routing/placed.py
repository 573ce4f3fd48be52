"""Where experts should lie: of each layer on the ranks of an expert group, and those on nodes.

A placement without copies is a permutation of the experts of a layer: of their weights, their
states and the rows of the router, which leaves the model and its training as they are. A router
that keeps to some groups of experts must find them whole, so groups keep to ranks of their own.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from trainplan.costmodel.architecture import MoeSpec
from trainplan.costmodel.base import Identical, SpecError
from trainplan.costmodel.columns import FloatColumn, IntColumn
from trainplan.costmodel.job import RoutingSpec
from trainplan.costmodel.routing.choices import choice_probabilities, step_probabilities
from trainplan.costmodel.routing.packing import Aim, Packing, fullest, least_fullest, packed
from trainplan.costmodel.routing.placement import Placement, in_order

Packer = Callable[[FloatColumn, int, int, Aim], tuple[Packing, float]]
"""As `packed`, with what no packing is below: weights [step, expert], packs, copies, aim."""


@dataclass(frozen=True, eq=False)
class Placed:
    """Experts of each layer on ranks, and how full the fullest rank is over the mean one."""

    slots: IntColumn
    """The expert of each slot: [layer, slot]; ranks have equally many, one after the other."""
    placement: Placement
    fullest: FloatColumn
    """[layer]"""
    least: FloatColumn
    """What no placement is below: [layer]."""


def greedy(weights: FloatColumn, packs: int, copies: int, aim: Aim) -> tuple[Packing, float]:
    """`packed` with its bound."""
    return packed(weights, packs, copies, aim), least_fullest(weights, packs, copies, aim)


def place(
    counts: FloatColumn,
    moe: MoeSpec,
    ranks: int,
    *,
    nodes: int = 1,
    copies: int = 0,
    aim: Aim = "mean",
    packer: Packer = greedy,
) -> Placed:
    """A placement of experts by their rows [step, layer, expert], with so many copies a layer.

    Whole groups go to ranks, or experts to the ranks of their group; then ranks, or the blocks of
    ranks of groups, to nodes.

    Source: deepseek-ai/EPLB README.md, whose hierarchical form packs groups to nodes, too, so that
    the groups of a token are on few nodes; here groups also follow one another, as a router that
    knows of no placement needs it (Megatron-LM @d98e8a64 `moe/moe_utils.py`, group_limited_topk).

    Raises:
        SpecError: Slots or groups that ranks cannot share equally.
    """
    groups, experts = _groups(moe), counts.shape[2]
    _check(experts, ranks, copies, groups)
    each = [
        _layer(counts[:, layer], ranks, (groups, nodes, copies), aim, packer)
        for layer in range(counts.shape[1])
    ]
    shares = np.stack([one.shares(experts, ranks) for one, _ in each])
    values = [fullest(counts[:, i], one, aim) for i, one in enumerate(shares)]
    slots = np.stack([one.experts[np.argsort(one.packs, kind="stable")] for one, _ in each])
    least = np.array([bound for _, bound in each])
    return Placed(slots, Placement.of(shares), np.array(values), least)


def _groups(moe: MoeSpec) -> int:
    """Of experts that a router keeps to, or 1."""
    groups = moe.n_group or 1
    return groups if (moe.topk_group or 1) < groups else 1


def places(moe: MoeSpec, ranks: int) -> bool:
    """Can experts be placed on so many ranks, groups of a router whole?"""
    groups = _groups(moe)
    return not (moe.num_experts % ranks or (ranks % groups and groups % ranks))


def _check(experts: int, ranks: int, copies: int, groups: int) -> None:
    """Can ranks share slots equally, and groups be whole?

    Raises:
        SpecError: They cannot.
    """
    if (experts + copies) % ranks:
        raise SpecError(
            f"placement of experts: {experts} experts and {copies} copies are no multiple of "
            f"{ranks} expert ranks: give as many copies as fill equal slots"
        )
    if ranks % groups and groups % ranks:
        raise SpecError(
            f"placement of experts: {groups} groups of experts that the router keeps to and "
            f"{ranks} ranks: neither is a multiple of the other, so groups are not whole on ranks"
        )
    if copies and ranks % groups:
        raise SpecError(
            f"placement of experts: a rank has {groups // ranks} whole groups, so copies in their "
            "group would be on the same rank: leave copies out"
        )


def _layer(
    weights: FloatColumn, ranks: int, sizes: tuple[int, int, int], aim: Aim, packer: Packer
) -> tuple[Packing, float]:
    """One layer, with what no placement is below.

    Source: as `place`; the fullest rank of all is no less than that of each group, whose share of
    the rows is over that of a group. In several steps a share and a bound are not of the same one.
    """
    groups, nodes, copies = sizes
    size = weights.shape[1] // groups
    by_group = weights.reshape(len(weights), groups, size)
    if groups > ranks or (groups == ranks and groups > 1):
        whole, bound = packer(by_group.sum(axis=2), ranks, 0, aim)
        experts = (whole.experts[:, None] * size + np.arange(size)).reshape(-1)
        flat, wide = Packing(experts, whole.packs.repeat(size)), 1
    else:
        wide = ranks // groups
        each = [packer(by_group[:, g], wide, copies // groups, aim) for g in range(groups)]
        total = weights.sum(axis=1, keepdims=True)
        share = (by_group.sum(axis=2) * groups / total).T
        of, one_step = np.mean if aim == "mean" else np.max, len(weights) == 1
        bound = max(
            float(of(one)) * (least if one_step else 1.0)
            for one, (_, least) in zip(share, each, strict=True)
        )
        flat = Packing(
            np.concatenate([one.experts + g * size for g, (one, _) in enumerate(each)]),
            np.concatenate([one.packs + g * wide for g, (one, _) in enumerate(each)]),
        )
    return _on_nodes(weights, flat, (ranks, nodes, wide if groups > 1 else 1)), bound


def _on_nodes(weights: FloatColumn, flat: Packing, sizes: tuple[int, int, int]) -> Packing:
    """The same with ranks, or blocks of `wide` of them, in an order that fills nodes evenly.

    Inside a group that spans several nodes its ranks are shared among these.
    Source: derived: another order of ranks leaves the rows of each as they are, and moves only
    what each node gets; deepseek-ai/EPLB README.md packs groups to nodes evenly, too.
    """
    ranks, nodes, wide = sizes
    if nodes == 1 or ranks % nodes:
        return flat
    rows = weights @ flat.shares(weights.shape[1], ranks)
    per_node = ranks // nodes
    order = np.arange(ranks)
    if wide > per_node and wide % per_node == 0:
        for block in order.reshape(-1, wide):
            packs = packed(rows[:, block], wide // per_node).packs
            order[block] = block[np.argsort(packs, kind="stable")]
    elif per_node % wide == 0:
        blocks = order.reshape(-1, wide)
        packs = packed(rows.reshape(len(rows), -1, wide).sum(axis=2), nodes).packs
        order = blocks[np.argsort(packs, kind="stable")].reshape(-1)
    return Packing(flat.experts, np.argsort(order)[flat.packs])


def counted(routing: RoutingSpec, moe: MoeSpec, aim: Aim) -> FloatColumn:
    """What a placement is made by, [step, layer, expert]: all steps together, or each.

    Source: derived; the price of a step is that of the tokens of all steps together.
    """
    if aim == "mean":
        return np.stack(choice_probabilities(routing, moe))[None]
    return step_probabilities(routing, moe)


@lru_cache(maxsize=64)
def best_placement(
    routing: Identical[RoutingSpec], moe: Identical[MoeSpec], ranks: int, nodes: int, aim: Aim
) -> Placement:
    """The placement that a job is priced with.

    The order of numbers where groups of experts are not whole on ranks, or experts not equally many
    (`places`).
    """
    if not places(moe.of, ranks):
        return in_order(moe.of.num_experts, ranks)
    counts = counted(routing.of, moe.of, aim)
    return place(counts, moe.of, ranks, nodes=nodes, aim=aim).placement
