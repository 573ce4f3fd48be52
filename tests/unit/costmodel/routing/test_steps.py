"""The fullest rank of a step: against numpy draws of whole steps."""

import numpy as np
import pytest

from tests.unit.costmodel.routing.test_loads import counted, fullest, job_of
from trainplan.costmodel.job.job import RuntimeOptions
from trainplan.costmodel.job.routing import RoutingSpec
from trainplan.costmodel.routing import (
    Counts,
    Placement,
    largest_below,
    moments_of_maximum,
    placement_of,
    step_rows,
)

POPULARITY = np.array([[0.3, 0.2, 0.1, 0.4], [0.25, 0.25, 0.25, 0.25], [0.1, 0.1, 0.7, 0.1]])
"""Of three steps."""


def measured(*steps, experts=4, top_k=1):
    total = tuple(map(tuple, np.sum(steps, axis=0)))
    routing = RoutingSpec(kind="measured", tokens_per_expert=total, steps=steps, source="a.csv")
    job = job_of(experts, top_k)
    return job.model_copy(update={"options": RuntimeOptions(routing=routing)})


def on(job, ranks):
    return placement_of(job, ep=ranks, nodes=1)


def test_rows_of_ranks_are_over_those_of_a_balanced_one():
    job = measured(((6, 2, 1, 1), (1, 1, 1, 1)), ((2, 2, 3, 3), (0, 0, 0, 4)))
    rows = step_rows(job, placement=on(job, 2), etp=1, tokens=100.0)
    assert rows.means == pytest.approx(np.array([[[1.6, 0.4], [1, 1]], [[0.8, 1.2], [0, 2]]]))
    assert rows.variances[0, 0] == pytest.approx(200 * 0.8 * 0.2 / 100**2), "a binomial count"
    assert rows.thirds[0, 0, 0] == pytest.approx(200 * 0.8 * 0.2 * -0.6 / 100**3)


@pytest.mark.parametrize(("experts", "top_k", "mean"), [(16, 4, None), (8, 7, None), (8, 4, 2.0)])
def test_moments_of_a_rank_are_those_of_drawn_choices(experts, top_k, mean):
    """All alike: a hypergeometric count of each token, also where some experts do nothing."""
    tokens, ep = 60, 4
    job = job_of(experts, top_k, mean=mean)
    rows = step_rows(job, placement=on(job, ep), etp=1, tokens=tokens / ep)
    of = round(experts * top_k / (mean or top_k))
    visits = mean or top_k
    per_token = (experts // ep, of - experts // ep, top_k)
    drawn = np.random.default_rng(5).hypergeometric(*per_token, size=(60_000, tokens)).sum(axis=1)
    drawn = drawn / (tokens / ep * visits)
    assert rows.means[0, 0, 1] == pytest.approx(drawn.mean(), rel=1e-3)
    assert rows.variances[0, 0, 1] == pytest.approx(drawn.var(), rel=0.02)
    third = ((drawn - drawn.mean()) ** 3).mean()
    assert rows.thirds[0, 0, 1] == pytest.approx(third, abs=0.05 * drawn.std() ** 3)


def test_rows_go_to_copies_of_an_expert_by_chance_as_draws_do():
    """Of eight experts, of which a token chooses four, the first is on both ranks."""
    tokens, job = 60, job_of(8, 4)
    ranks = np.repeat([[0.0, 1.0]], 8, axis=0)
    ranks[:4] = [[0.5, 0.5], *[[1.0, 0.0]] * 3]
    rows = step_rows(job, placement=Placement.of(ranks[None]), etp=1, tokens=tokens / 2)
    rng = np.random.default_rng(5)
    chosen = rng.hypergeometric(4, 4, 4, size=(60_000, tokens))
    drawn = (chosen - rng.binomial(1, chosen / 4 / 2)).sum(axis=1) / (tokens / 2 * 4)
    assert rows.means[0, 0, 0] == pytest.approx(drawn.mean(), rel=1e-3)
    assert rows.variances[0, 0, 0] == pytest.approx(drawn.var(), rel=0.02)


def test_a_capacity_limits_the_rows_of_an_expert():
    job = job_of(4, 1, "zipf:1", moe_capacity_factor=1.0)
    rows = step_rows(job, placement=on(job, 4), etp=1, tokens=1e6)
    assert rows.means[0, 0].max() == pytest.approx(1.0)


def test_the_maximum_of_independent_counts_varies_as_draws_do():
    p, tokens = np.array([0.25, 0.2, 0.3]), 400
    moments = tokens * p, tokens * p * (1 - p), tokens * p * (1 - p) * (1 - 2 * p)
    mean, variance = moments_of_maximum(*moments)
    drawn = np.random.default_rng(2).binomial(tokens, p, size=(60_000, 3)).max(axis=1)
    assert mean == pytest.approx(drawn.mean(), rel=1e-3)
    assert variance == pytest.approx(drawn.var(), rel=0.03)
    assert moments_of_maximum(*(one[:1] for one in moments))[1] == moments[1][0]


@pytest.mark.parametrize("level", [50.0, 90.0, 99.0])
def test_percentiles_of_steps_are_those_of_whole_drawn_steps(level):
    """A step at random, with five micro batches on each of two replicas: its fullest rank."""
    rng, tokens, times = np.random.default_rng(4), 800, 10
    job = measured(*((tuple(row * 1000),) for row in POPULARITY))
    rows = step_rows(job, placement=on(job, 4), etp=1, tokens=tokens / 4)
    found = largest_below(rows, np.full((1, 1), float(times)), level)
    step = rng.integers(0, 3, 30_000)
    drawn = rng.multinomial(tokens, POPULARITY[step][:, None, :].repeat(times, axis=1))
    largest = drawn.max(axis=(1, 2)) / (tokens / 4)
    assert found == pytest.approx(np.percentile(largest, level), rel=0.005)


def test_the_fullest_of_all_steps_is_at_its_median_as_draws_say():
    rng, tokens = np.random.default_rng(4), 800
    job = measured(*((tuple(row * 1000),) for row in POPULARITY))
    rows = step_rows(job, placement=on(job, 4), etp=1, tokens=tokens / 4)
    found = largest_below(rows, np.full((1, 1), 10.0), 100.0, every=True)
    drawn = rng.multinomial(tokens, POPULARITY[2], size=(30_000, 10)).max(axis=(1, 2)) / 200
    assert found == pytest.approx(np.median(drawn), rel=0.005)


def test_what_never_varies_is_its_largest_mean():
    none = np.zeros((1, 2))
    found = largest_below(Counts(np.array([[1.0, 1.5]]), none, none), np.ones(2), 99.0)
    assert found == pytest.approx(1.5)


def test_a_stated_load_is_that_of_the_fullest_rank_and_no_more_than_all_rows():
    assert fullest(job_of(routing="load:1.3"), 8, 37) == 1.3
    assert fullest(job_of(routing="load:1.3"), 1, 37) == 1.0
    assert fullest(job_of(routing="load:9"), 4, 37) == 4.0
    assert fullest(job_of(routing="load:1"), 8, 37) == fullest(counted((1, 1, 1, 1)), 1, 37) == 1.0


def test_rows_that_are_padded_are_half_a_multiple_more_as_the_price_has_it():
    job = job_of(4, 2, "random", "mxfp8", moe_router_padding=True)
    rows = step_rows(job, placement=on(job, 2), etp=2, tokens=4000.0)
    assert rows.means[0, 0] == pytest.approx([1 + 15.5 / 2000] * 2)
    assert fullest(job, 1, 4000) == pytest.approx(rows.means[0, 0, 0], rel=1e-5)
