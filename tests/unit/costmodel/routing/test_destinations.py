"""Places that the experts of a token are on, where it keeps to some groups of experts."""

from itertools import combinations

import numpy as np
import pytest

from tests.conftest import SMALL_MOE
from trainplan.costmodel.routing.choices import (
    destinations_in_groups,
    distinct_destinations,
)

MOE = SMALL_MOE.moe


def grouped(n_group, topk_group, top_k=4, experts=16):
    change = {
        "n_group": n_group,
        "topk_group": topk_group,
        "num_experts": experts,
        "num_experts_per_tok": top_k,
    }
    return MOE.model_copy(update=change)


def by_hand(places, n_group, topk_group, top_k, experts):
    """Mean over all choices of groups of places met by experts drawn one by one from them."""
    each, total, count = experts // n_group, 0.0, 0
    for chosen in combinations(range(n_group), topk_group):
        held = [g * each + e for g in chosen for e in range(each)]
        at = np.bincount([e * places // experts for e in held], minlength=places)
        total += (1 - (1 - at / len(held)) ** top_k).sum()
        count += 1
    return total / count


@pytest.mark.parametrize("places", [1, 2, 4, 8, 16])
@pytest.mark.parametrize(("n_group", "topk_group"), [(8, 4), (8, 3), (4, 1), (2, 1)])
def test_places_are_those_of_the_groups_a_token_may_choose(places, n_group, topk_group):
    moe = grouped(n_group, topk_group)
    found = destinations_in_groups(moe, np.array([float(places)]), np.ones(1))
    assert found[0] == pytest.approx(by_hand(places, n_group, topk_group, 4, 16))


@pytest.mark.parametrize("groups", [(None, None), (1, 1), (4, 4)])
def test_all_groups_are_no_limit(groups):
    places = np.array([1.0, 2.0, 8.0, 16.0])
    found = destinations_in_groups(grouped(*groups), places, np.ones(4))
    assert found == pytest.approx(distinct_destinations(places, 4, np.ones(4)))


def test_deepseek_v3_sends_a_token_to_fewer_than_four_nodes_of_eight():
    """arXiv:2412.19437, section 2.1.2: at most 4 nodes."""
    moe = grouped(8, 4, top_k=8, experts=256)
    assert destinations_in_groups(moe, np.array([8.0]), np.ones(1))[0] == pytest.approx(
        3.6, abs=0.01
    )
