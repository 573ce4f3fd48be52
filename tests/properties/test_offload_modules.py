"""Activations on the host: what no link and no module may do, whatever the layout."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.grids import examples
from trainplan.costmodel.candidates.context import Candidates
from trainplan.costmodel.layout.layout import OFFLOAD_MODULES
from trainplan.costmodel.layouts.table import FULL, LayoutTable, module_bits
from trainplan.costmodel.machine import machine_of
from trainplan.costmodel.runtimes.registry import traits_of
from trainplan.costmodel.step import price
from trainplan.costmodel.step.node_bound import node_bound_seconds
from trainplan.costmodel.step.simulate import step_seconds
from trainplan.planner.space.choices import rules_of_job
from trainplan.planner.stages.problem.memory import ANYWHERE, first_layers, least_in_transit

ROUNDING = 1 + 1e-12
CASES = {
    "small-dense": ("small-dense", "3x8:a100-sxm-80gb"),
    "small-moe": ("small-moe", "3x8:a100-sxm-80gb"),
    "frozen-eyes": ("frozen-eyes", "3x8:a100-sxm-80gb"),
    "deepseek-v3": ("deepseek-v3", "48x8:h100-sxm"),
}
seeds = st.integers(0, 2**32 - 1)
speeds = st.sampled_from([0.01, 0.3, 1.0, 20.0])
few = examples(2, by_night=8)


@pytest.fixture(scope="module", params=CASES, name="case")
def _case(request, make_job):
    job = make_job(*CASES[request.param], global_batch_size=960)
    return job, machine_of(job.cluster, job.training.precision), traits_of(job)


def linked(machine, factor):
    """The machine with another link to its hosts."""
    return replace(machine, host_bytes_per_second=factor * machine.host_bytes_per_second)


def offloading(job, table, *modules):
    """Rows that offload some modules instead of what they offload, where that is legal."""
    bits = module_bits(modules, OFFLOAD_MODULES)
    table = table.replaced(offload_modules=np.full(len(table), bits))
    legal = [~rule.broken(job, table) for rule in rules_of_job(job)]
    return table.take(np.all(legal, axis=0))


def sets_of(job, *, more=False):
    """Sets of modules, or pairs of one and a larger one."""
    sets = [one.modules for one in traits_of(job).offloading.choices(job.model)]
    return [(a, b) for a in [(), *sets] for b in sets if set(a) < set(b)] if more else sets


@few
@given(seeds, speeds, st.integers(0, 100))
def test_one_more_module_never_saves_time_and_never_needs_memory(
    case, legal_table, seed, speed, pick
):
    job, machine, traits = case
    pairs = sets_of(job, more=True)
    less, more = pairs[pick % len(pairs)]
    table = offloading(job, legal_table(job, 200, seed), *more)
    fewer = table.replaced(offload_modules=np.full(len(table), module_bits(less, OFFLOAD_MODULES)))
    before, after = (
        price(Candidates(job, linked(machine, speed), traits, t)) for t in (fewer, table)
    )
    assert (before.step_seconds <= after.step_seconds * ROUNDING).all()
    assert (after.memory.used <= before.memory.used * ROUNDING).all()
    assert (after.memory.activations < before.memory.activations).any() or not len(table)


@few
@given(seeds, speeds)
def test_a_faster_link_to_the_host_never_hurts(case, legal_table, seed, speed):
    job, machine, traits = case
    table = legal_table(job, 200, seed)
    assert (table.offload_modules > 0).any()
    slow, fast = (
        price(Candidates(job, linked(machine, s), traits, table)).step_seconds
        for s in (speed, 2 * speed)
    )
    assert (fast <= slow * ROUNDING).all()


@few
@given(seeds, speeds, st.integers(0, 100))
def test_bounds_hold_where_passes_wait_for_copies(case, legal_table, seed, speed, pick):
    job, machine, traits = case
    machine, sets = linked(machine, speed), sets_of(job)
    table = offloading(job, legal_table(job, 200, seed), *sets[pick % len(sets)])
    count = job.training.global_batch_size // (table.dp * table.micro_batch_size)
    table = table.take(np.flatnonzero(count * table.pp * table.vpp <= 2000)[:12])
    if not len(table):
        return
    floor = node_bound_seconds(Candidates(job, machine, traits, table))
    bound = price(Candidates(job, machine, traits, table)).step_seconds
    assert (floor <= bound * ROUNDING).all()
    assert (bound <= step_seconds(Candidates(job, machine, traits, table)) * ROUNDING).all()


@few
@given(seeds)
def test_a_table_that_offloads_prices_like_its_rows(case, legal_table, seed):
    table = legal_table(case[0], 60, seed)
    table = table.take(np.flatnonzero(table.offload_modules > 0)[:6])
    whole = price(Candidates(*case, table))
    for row in range(len(table)):
        one = price(Candidates(*case, LayoutTable.of([table.row(row)])))
        assert one.step_seconds[0] == pytest.approx(whole.step_seconds[row], rel=1e-12)
        assert one.memory.used[0] == pytest.approx(whole.memory.used[row], rel=1e-12)


@few
@given(seeds)
def test_nothing_on_the_host_leaves_everything_as_it_was(case, legal_table, seed):
    table = legal_table(case[0], 100, seed)
    plain = table.replaced(offload_modules=np.zeros(len(table), dtype=np.int64))
    one = price(Candidates(*case, plain))
    assert not one.memory.in_transit.any()
    assert not one.seconds.layers[0].waiting.any()
    assert (plain.take(plain.recompute == FULL).offload_modules == 0).all()


def test_layers_in_transit_are_said_only_of_ranks_that_hold_them_in_every_split(make_job):
    dense, moe = (make_job(name, "1x8:h100-sxm").model for name in ("small-dense", "small-moe"))
    assert (first_layers(dense), first_layers(moe)) == (0, 1)
    stage_of, passes = np.array([[0, 2], [1, 3]]), np.array([[2, 1], [1, 1]])
    assert least_in_transit(0, stage_of, passes).tolist() == [1, 1]
    assert least_in_transit(0, stage_of, 3 * passes).tolist() == [2, 2]
    assert least_in_transit(1, np.array([[0], [1], [2]]), np.full((3, 1), 3)).tolist() == [0, 0, 0]
    assert least_in_transit(0, np.array([[0], [1], [2]]), np.full((3, 1), 3)).tolist() == [0, 2, 0]
    assert not least_in_transit(ANYWHERE, stage_of, passes).any()
