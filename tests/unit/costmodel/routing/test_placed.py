"""Experts on ranks: never worse than EPLB, what all placements say, groups and nodes."""

from itertools import permutations

import numpy as np
import pytest

from tests.rank_loads import rank_loads
from tests.unit.costmodel.routing.test_loads import job_of
from trainplan.costmodel.base.errors import SpecError
from trainplan.costmodel.routing.packing import Packing, fullest, least_fullest, packed
from trainplan.costmodel.routing.placed import place
from trainplan.costmodel.routing.placement import in_order


def eplb(weights: np.ndarray, slots: int, packs: int) -> Packing:
    """Its global form for one layer, in its own words (deepseek-ai/EPLB, README.md, of one group).

    Copies: each further slot goes to the expert whose copies have most rows. Packing: copies from
    the largest, each to the pack with least that has a slot free; one slot a pack: in their order.
    """
    held, count = list(range(len(weights))), np.ones(len(weights))
    for _ in range(slots - len(weights)):
        held.append(int(np.argmax(weights / count)))
        count[held[-1]] += 1
    rows = [weights[one] / count[one] for one in held]
    if slots == packs:
        return Packing(np.array(held), np.arange(packs))
    free, sums, result = [slots // packs] * packs, [0.0] * packs, [0] * slots
    for slot in sorted(range(slots), key=lambda one: -rows[one]):
        pack = min((one for one in range(packs) if free[one]), key=sums.__getitem__)
        result[slot], sums[pack], free[pack] = pack, sums[pack] + rows[slot], free[pack] - 1
    return Packing(np.array(held), np.array(result))


CASES = [
    (experts, packs, copies, seed)
    for experts, packs, copies in [
        (8, 4, 0), (16, 4, 8), (32, 8, 8), (64, 16, 16), (64, 32, 0), (128, 8, 0), (128, 64, 64)
    ]
    for seed in range(4)
]  # fmt: skip


def drawn(seed: int, steps: int, experts: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    skew = np.exp(rng.normal(0, rng.uniform(0.1, 1.5), experts))
    return rng.poisson(1000 * skew * np.exp(rng.normal(0, 0.2, (steps, experts)))) + 1.0


@pytest.mark.parametrize("aim", ["mean", "worst"])
@pytest.mark.parametrize(("experts", "packs", "copies", "seed"), CASES)
def test_never_worse_than_eplb_nor_better_than_the_bound(experts, packs, copies, seed, aim):
    for steps in (1, 3):
        weights = drawn(seed, steps, experts)
        own = packed(weights, packs, copies, aim)
        assert np.bincount(own.packs).tolist() == [(experts + copies) // packs] * packs
        assert set(own.experts.tolist()) == set(range(experts))
        found = fullest(weights, own.shares(experts, packs), aim)
        peer = eplb(weights.sum(axis=0), experts + copies, packs).shares(experts, packs)
        assert found <= fullest(weights, peer, aim) + 1e-12
        assert found >= least_fullest(weights, packs, copies, aim) - 1e-12


@pytest.mark.parametrize("seed", range(12))
def test_the_bound_is_below_the_best_of_all_placements_and_meets_it_for_pairs(seed):
    """Six experts in two packs of three or three of two, all ways tried."""
    weights = drawn(seed, 1, 6)
    for packs in (2, 3):
        where = np.arange(6) * packs // 6
        best = min(
            fullest(weights, Packing(np.array(order), where).shares(6, packs))
            for order in permutations(range(6))
        )
        least = least_fullest(weights, packs)
        assert least <= best + 1e-12
        own = fullest(weights, packed(weights, packs).shares(6, packs))
        assert own >= best - 1e-12
        if packs == 3:
            assert own == pytest.approx(least) == pytest.approx(best)


def test_the_example_of_eplb_is_no_fuller_than_its_own_answer():
    """Two layers of 12 experts, 16 slots on 8 ranks. Source: deepseek-ai/EPLB, README.md."""
    counts = np.array([
        [90, 132, 40, 61, 104, 165, 39, 4, 73, 56, 183, 86],
        [20, 107, 104, 64, 19, 197, 187, 157, 172, 86, 16, 27],
    ], float)  # fmt: skip
    answer = np.array([
        [5, 6, 5, 7, 8, 4, 3, 4, 10, 9, 10, 2, 0, 1, 11, 1],
        [7, 10, 6, 8, 6, 11, 8, 9, 2, 4, 5, 1, 5, 0, 3, 1],
    ])  # fmt: skip
    found = place(counts[None], job_of(12, 2).model.moe, 8, copies=4)
    for layer, slots in enumerate(answer):
        peer = Packing(slots, np.arange(16) // 2).shares(12, 8)
        assert found.fullest[layer] <= fullest(counts[None, layer], peer) + 1e-12
    assert found.slots.shape == (2, 16)
    loads = rank_loads(counts[None], found.placement)[0]
    assert loads.max(axis=1) == pytest.approx(found.fullest)


def test_groups_of_a_router_stay_whole_on_ranks_and_fill_nodes_evenly():
    """16 experts in 4 groups; a group spans two ranks, is one rank, or ranks hold two."""
    job = job_of(16, 2)
    moe = job.model.moe.model_copy(update={"n_group": 4, "topk_group": 2})
    counts = drawn(3, 1, 16)[:, None]
    for ranks in (2, 4, 8):
        found = place(counts, moe, ranks, nodes=2)
        block = found.slots[0].reshape(4, 4)
        assert [len(set(one // 4)) for one in block] == [1] * 4
        assert sorted(found.slots[0].tolist()) == list(range(16))
        assert found.fullest[0] >= found.least[0] - 1e-12
        by_node = rank_loads(counts, found.placement.on_nodes(2)).max()
        groups = counts[0, 0].reshape(4, 4).sum(axis=1)
        pairs = [groups[0] + groups[other] for other in (1, 2, 3)]
        best = min(max(one, groups.sum() - one) for one in pairs)
        assert by_node == pytest.approx(best / groups.sum() * 2)


def test_the_order_of_ranks_fills_nodes_and_changes_no_rank():
    counts = drawn(5, 1, 32)[:, None] * np.linspace(3, 1, 32)
    moe = job_of(32, 2).model.moe
    plain, on_nodes = (place(counts, moe, 8, nodes=nodes) for nodes in (1, 4))
    assert plain.fullest == pytest.approx(on_nodes.fullest)
    fuller = [rank_loads(counts, one.placement.on_nodes(4)).max() for one in (plain, on_nodes)]
    assert fuller[1] <= fuller[0] < rank_loads(counts, in_order(32, 4)).max()


@pytest.mark.parametrize(
    ("groups", "ranks", "copies", "says"),
    [
        (None, 5, 0, "16 experts and 0 copies are no multiple of 5 expert ranks"),
        (None, 4, 2, "as many copies as fill equal slots"),
        (8, 16, 0, None),
        (2, 1, 1, "copies in their group would be on the same rank"),
    ],
)
def test_placements_that_cannot_be_are_refused(groups, ranks, copies, says):
    moe = job_of(16, 2).model.moe.model_copy(update={"n_group": groups, "topk_group": 1})
    if says is None:
        place(np.ones((1, 1, 16)), moe, ranks, copies=copies)
        return
    with pytest.raises(SpecError, match=says):
        place(np.ones((1, 1, 16)), moe, ranks, copies=copies)
