"""Experts on ranks as a planner places them: by hand, and copies against draws."""

import math

import numpy as np
import pytest

from tests.rank_loads import rank_loads
from tests.unit.costmodel.routing.test_loads import counted, job_of
from trainplan.costmodel.base.errors import SpecError
from trainplan.costmodel.job.routing import RoutingSpec
from trainplan.costmodel.routing import load
from trainplan.costmodel.routing.choices import step_probabilities
from trainplan.costmodel.routing.placement import Placement, in_order

HALVES = np.array([[[1, 0], [0, 1], [0.5, 0.5], [1, 0]]])
"""Four experts on two ranks; the third has a copy on each."""


def test_loads_of_ranks_are_sums_of_the_shares_of_their_experts():
    """Of 6, 2, 1, 1 the first two are 8 of 10; two steps and two layers by hand."""
    counts = np.array([[[6, 2, 1, 1], [1, 1, 1, 1]], [[2, 2, 2, 2], [0, 0, 0, 8]]], float)
    plain = rank_loads(counts, in_order(4, 2))
    assert plain.tolist() == [[[1.6, 0.4], [1, 1]], [[1, 1], [0, 2]]]
    placed = rank_loads(counts, Placement.of(HALVES))
    assert placed[0, 0] == pytest.approx([(6 + 0.5 + 1) / 5, (2 + 0.5) / 5])
    by_layer = Placement.of(np.concatenate([HALVES, in_order(4, 2).shares]))
    assert rank_loads(counts, by_layer)[1].tolist() == [[1.25, 0.75], [0, 2]]


@pytest.mark.parametrize("nodes", [1, 2, 4])
def test_the_order_of_numbers_is_what_no_placement_means_to_the_bit(nodes):
    job = job_of(16, 2, "zipf:0.5")
    stated = load(job, ep=8, etp=1, tokens=64.0, nodes=nodes, placement=in_order(16, 8))
    assert stated == load(job, ep=8, etp=1, tokens=64.0, nodes=nodes)


def test_a_placement_of_each_layer_is_used_in_it():
    """A hot expert in each layer: with the coldest two in the one, with the next in the other."""
    job = counted((6, 2, 1, 1), (1, 1, 2, 6))
    hot_alone = np.array([[1, 0], [0, 1], [0, 1], [0, 1]], float)
    both = Placement.of(np.stack([hot_alone, hot_alone[::-1]]))
    found = load(job, ep=2, etp=1, tokens=1e8, placement=both)
    assert found.fullest == pytest.approx(1.2, rel=1e-4)
    assert both.on_nodes(1).shares.tolist() == [[[1]] * 4] * 2


def test_rows_of_an_expert_with_copies_go_to_one_by_chance_as_draws_say():
    tokens, popularity = 200, np.array([0.1, 0.2, 0.6, 0.1])
    job = counted(tuple(popularity))
    rng = np.random.default_rng(7)
    rows = rng.multinomial(2 * tokens, popularity, size=40_000)
    first = rows[:, 0] + rows[:, 3] + rng.binomial(rows[:, 2], 0.5)
    fuller = np.maximum(first, 2 * tokens - first) / tokens
    found = load(job, ep=2, etp=1, tokens=float(tokens), placement=Placement.of(HALVES))
    error = fuller.std() / math.sqrt(len(fuller))
    assert found.fullest == pytest.approx(fuller.mean(), abs=4 * error + 0.001)


@pytest.mark.parametrize("shares", [HALVES * 0.9, HALVES - 0.5 * (HALVES == 1)])
def test_shares_that_are_none_are_refused(shares):
    with pytest.raises(SpecError, match="must sum to 1"):
        Placement.of(shares)


def test_steps_of_a_routing_are_kept_and_add_up():
    steps = (((6, 2, 1, 1),), ((2, 2, 3, 3),))
    spec = RoutingSpec(
        kind="measured", tokens_per_expert=((8, 4, 4, 4),), steps=steps, source="counts.csv"
    )
    assert RoutingSpec.model_validate_json(spec.model_dump_json()) == spec
    shares = step_probabilities(spec, job_of(4, 1).model.moe)
    assert shares[:, 0] == pytest.approx(np.array([[0.6, 0.2, 0.1, 0.1], [0.2, 0.2, 0.3, 0.3]]))
    one = RoutingSpec(kind="measured", tokens_per_expert=((8, 4, 4, 4),))
    assert step_probabilities(one, job_of(4, 1).model.moe).shape == (1, 1, 4)
    assert step_probabilities(RoutingSpec(kind="random"), job_of(4, 2).model.moe).tolist() == [
        [[0.5] * 4]
    ]


@pytest.mark.parametrize(
    ("steps", "says"),
    [
        ((((6, 2, 1, 1),), ((2, 2, 3),)), "every step needs the same layers and experts"),
        ((((6, 2, 1, 1),), ((0, 0, 0, 0),)), "step 2, line 1: counts must be 0 or more"),
        ((((6, 2, 1, 1),), ((2, 2, 3, 4),)), "add up to those of all steps"),
    ],
)
def test_steps_that_are_none_are_refused(steps, says):
    with pytest.raises(ValueError, match=says):
        RoutingSpec(kind="measured", tokens_per_expert=((8, 4, 4, 4),), steps=steps)
