"""What the search relies on: no bound exceeds what it bounds."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from tests.grids import examples
from trainplan.costmodel.candidates.context import Candidates
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.machine import machine_of
from trainplan.costmodel.pipeline.bound import (
    LayerSeconds,
    RowSeconds,
    pipeline_lower_bound,
    rank_seconds,
    splits_backward,
)
from trainplan.costmodel.runtimes.registry import runtime, traits_of
from trainplan.costmodel.step import price
from trainplan.costmodel.step.node_bound import node_bound_seconds
from trainplan.costmodel.step.simulate import step_seconds
from trainplan.costmodel.step.timelines import simulate

ROUNDING = 1 + 1e-12
SIMULATED_ROWS = 12
CASES = {
    "llama3-8b": ("llama3-8b", "24x8:h100-sxm"),
    "deepseek-v2-lite": ("deepseek-v2-lite", "6x8:h100-sxm"),
    "deepseek-v3": ("deepseek-v3", "48x8:h100-sxm"),
    "small-moe": ("small-moe", "3x8:a100-sxm-80gb"),
    "small-seeing": ("small-seeing", "3x8:a100-sxm-80gb"),
    "gpt3-175b": ("gpt3-175b", "30x8:a100-sxm-80gb"),
}
seeds = st.integers(0, 2**32 - 1)


@pytest.fixture(scope="module", params=CASES, name="case")
def _case(request, make_job):
    model, cluster = CASES[request.param]
    job = make_job(model, cluster, global_batch_size=960)
    machine = machine_of(job.cluster, job.training.precision)
    return job, machine, traits_of(job)


def few(table, job, rng, longest=3000):
    """Rows whose programs are short enough to simulate many."""
    microbatches = job.training.global_batch_size // (table.dp * table.micro_batch_size)
    short = np.flatnonzero(microbatches * table.vpp * table.pp <= longest)
    assume(len(short) >= SIMULATED_ROWS)
    return table.take(rng.choice(short, SIMULATED_ROWS, replace=False))


def random_seconds(rng, kinds, table):
    """Any seconds for any kind of block, in any proportion; steps counted either way."""
    size = len(table)

    def layer():
        forward, backward = rng.exponential(size=(2, size)) * rng.choice([0.0, 0.1, 1.0], (2, size))
        weight = backward * rng.choice([0.0, 0.3, 0.5, 0.9, 1.0], size)
        again = rng.exponential(size=size)
        return LayerSeconds(forward, backward, weight, again, *np.zeros((3, size)))

    p2p = rng.exponential(size=size) * rng.choice([0.0, 0.01, 1.0, 10.0], size)
    split, apart = splits_backward(table), rng.choice([False, True], size)
    sending = p2p * rng.choice([0.0, 0.5, 1.0], size)
    layers, ends = tuple(layer() for _ in range(kinds)), (layer(), layer(), layer())
    return RowSeconds(layers, *ends, p2p, sending, split, split & apart)


@examples(2, by_night=8)
@given(seeds)
def test_the_relaxed_step_time_never_exceeds_the_simulated_one(case, legal_table, seed):
    table = few(legal_table(case[0], 200, seed), case[0], np.random.default_rng(seed))
    bound, simulated = (
        price(Candidates(*case, table)).step_seconds,
        step_seconds(Candidates(*case, table)),
    )
    assert (bound <= simulated * ROUNDING).all(), table.row(int(np.argmax(bound / simulated)))


@examples(2, by_night=8)
@given(seeds)
def test_the_relaxed_step_time_never_exceeds_the_simulated_one_under_any_schedule(
    case, legal_table, under_any_schedule, seed
):
    rng, (job, machine, _) = np.random.default_rng(seed), case
    table = few(under_any_schedule(job, legal_table(job, 600, seed), rng), job, rng, longest=300)
    for traits in (runtime("megatron-zero-bubble"), runtime("torchtitan")):
        bound = price(Candidates(job, machine, traits, table)).step_seconds
        simulated = step_seconds(Candidates(job, machine, traits, table))
        assert (bound <= simulated * ROUNDING).all(), table.row(int(np.argmax(bound / simulated)))


@examples(2, by_night=8)
@given(seeds)
def test_no_bound_exceeds_the_step_time_where_gradients_are_added(case, legal_table, seed):
    rng, (job, machine, _) = np.random.default_rng(seed), case
    table = few(legal_table(job, 200, seed), job, rng, longest=300)
    for name in ("megatron-deepspeed", "nanotron"):
        here = job, machine, runtime(name)
        bound, simulated = (
            price(Candidates(*here, table)).step_seconds,
            step_seconds(Candidates(*here, table)),
        )
        assert (node_bound_seconds(Candidates(*here, table)) <= bound * ROUNDING).all()
        assert (bound <= simulated * ROUNDING).all(), table.row(int(np.argmax(bound / simulated)))


@pytest.mark.parametrize("any_schedule", [False, True])
@examples(2, by_night=8)
@given(seeds)
def test_the_pipeline_bound_holds_for_any_seconds_of_any_block(
    case, legal_table, under_any_schedule, any_schedule, seed
):
    rng, job = np.random.default_rng(seed), case[0]
    table = legal_table(job, 600 if any_schedule else 200, seed)
    if any_schedule:
        table = under_any_schedule(job, table, rng)
    table = few(table, job, rng, longest=300 if any_schedule else 3000)
    seconds = random_seconds(rng, len(job.model.kinds), table)
    apart = replace(price(Candidates(*case, table), merged=False), seconds=seconds)
    simulated = simulate(apart)
    assert (simulated.instant <= simulated.with_messages * ROUNDING).all()
    for merged in (True, False):
        priced = price(Candidates(*case, table), merged=merged)
        work = rank_seconds(seconds, priced.ranks)
        bound = pipeline_lower_bound(work, priced.ranks, table, priced.microbatches)
        assert (bound <= simulated.with_messages * ROUNDING).all(), table.row(
            int(np.argmax(bound / simulated.with_messages))
        )


@examples(2, by_night=8)
@given(seeds)
def test_classes_of_ranks_lose_nothing(case, legal_table, under_any_schedule, seed):
    table = legal_table(case[0], 100, seed)
    others = under_any_schedule(case[0], table, np.random.default_rng(seed))
    table = LayoutTable.concat([table, others])
    merged, apart = (price(Candidates(*case, table), merged=m) for m in (True, False))
    np.testing.assert_allclose(merged.memory.used, apart.memory.used, rtol=1e-12)
    highest = [priced.traffic.max(axis=0) for priced in (merged, apart)]
    np.testing.assert_allclose(*highest, rtol=1e-12)
    np.testing.assert_allclose(merged.optimizer, apart.optimizer, rtol=1e-12)
    assert (merged.step_seconds <= apart.step_seconds * ROUNDING).all()


@examples(2, by_night=8)
@given(seeds)
@example(0)
def test_a_table_prices_like_its_rows(case, legal_table, under_any_schedule, seed):
    rng = np.random.default_rng(seed)
    table = legal_table(case[0], 24, seed)
    table = LayoutTable.concat([table, under_any_schedule(case[0], table, rng)])
    table = table.take(rng.permutation(len(table)))
    together = price(Candidates(*case, table))
    for i in range(0, len(table), 4):
        alone = price(Candidates(*case, table.take(np.array([i]))))
        for term in ("step_seconds", "dp_comm", "optimizer", "offload", "microbatches"):
            mine, row = getattr(alone, term)[0], getattr(together, term)[i]
            np.testing.assert_allclose(mine, row, rtol=1e-12, err_msg=term)
        for term in ("weights", "gradients", "optimizer", "activations", "transients"):
            mine = getattr(alone.memory, term).max(axis=0)[0]
            row = getattr(together.memory, term).max(axis=0)[i]
            np.testing.assert_allclose(mine, row, rtol=1e-12, err_msg=term)
