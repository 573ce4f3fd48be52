"""What no machine can do: run faster on slower parts, or need less memory for more work."""

from dataclasses import fields, replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.grids import examples
from trainplan.costmodel.axes import AXES
from trainplan.costmodel.blocks import blocks, distinct_keys
from trainplan.costmodel.candidates.context import Candidates
from trainplan.costmodel.layout.codecs import Flag, Modules, Share
from trainplan.costmodel.layouts.table import FULL, SELECTIVE, module_bits
from trainplan.costmodel.machine import machine_of
from trainplan.costmodel.runtimes.registry import traits_of
from trainplan.costmodel.step import explicit, price

ROUNDING = 1 + 1e-12
CASES = {
    "llama3-8b": ("llama3-8b", "24x8:h100-sxm", "bf16"),
    "deepseek-v2-lite": ("deepseek-v2-lite", "6x8:h100-sxm", "bf16"),
    "deepseek-v3": ("deepseek-v3", "48x8:h100-sxm", "fp8"),
    "small-moe": ("small-moe", "3x8:a100-sxm-80gb", "bf16"),
    "gpt3-175b": ("gpt3-175b", "30x8:a100-sxm-80gb", "bf16"),
}
seeds = st.integers(0, 2**32 - 1)
once_a_case = examples(2, by_night=8)


@pytest.fixture(scope="module", params=CASES, name="case")
def _case(request, make_job):
    model, cluster, precision = CASES[request.param]
    job = make_job(model, cluster, global_batch_size=960, precision=precision)
    machine = machine_of(job.cluster, job.training.precision)
    return job, machine, traits_of(job)


def with_policy(table, **columns):
    """The table with other recomputation; columns left out say none."""
    names = ("recompute", "recompute_modules", "recompute_method", "recompute_num_layers")
    values = {name: np.full(len(table), columns.get(name, 0)) for name in names}
    return table.replaced(**values)


SLOWER = {
    "links": lambda m: {"bus_bytes_per_second": m.bus_bytes_per_second / 3},
    "latency": lambda m: {"alpha_seconds": m.alpha_seconds * 5},
    "network": lambda m: {"nic_bytes_per_second": m.nic_bytes_per_second / 3},
    "memory": lambda m: {"memory_bytes_per_second": m.memory_bytes_per_second / 2},
    "host": lambda m: {"host_bytes_per_second": m.host_bytes_per_second / 4},
    "attention": lambda m: {"attention_max_efficiency": m.attention_max_efficiency / 2},
    "products": lambda m: {
        "linear": replace(m.linear, flop_factor=2 * m.linear.flop_factor),
        "half": replace(m.half, flop_factor=2 * m.half.flop_factor),
    },
}


@pytest.mark.grid
@pytest.mark.parametrize("part", SLOWER)
@examples(2, by_night=4)
@given(seeds)
def test_a_slower_part_never_makes_a_step_faster(case, legal_table, part, seed):
    job, machine, traits = case
    table = legal_table(job, 200, seed)
    slower = replace(machine, **SLOWER[part](machine))
    fast, slow = (price(Candidates(job, m, traits, table)).step_seconds for m in (machine, slower))
    assert (fast <= slow * ROUNDING).all(), table.row(int(np.argmax(fast / slow)))


@once_a_case
@given(seeds)
def test_terms_are_seconds_and_sum_to_the_step_time(case, legal_table, seed):
    job, machine, traits = case
    table = legal_table(job, 400, seed)
    short = job.training.global_batch_size // (table.dp * table.micro_batch_size) <= 60
    for estimate in explicit(
        Candidates(job, machine, traits, table.take(short).take(np.arange(4)))
    ):
        terms = [getattr(estimate.terms, f.name) for f in fields(estimate.terms)]
        assert sum(terms) == pytest.approx(estimate.step_time_s, rel=1e-12)
        assert min(terms) >= -1e-9 * estimate.step_time_s
        assert estimate.step_time_s >= estimate.lower_bound_s / ROUNDING
        used = max(rank.total_bytes for rank in estimate.memory.pipeline_ranks)
        assert used == pytest.approx(estimate.memory.peak_reserved_bytes, rel=1e-12)


def grown(axis, table):
    """Rows with an axis at some value, and the same rows with it at a larger one."""
    size, column = len(table), getattr(table, axis.column)
    if axis.name == "recompute":
        return with_policy(table), table
    if axis.name == "recompute_modules":
        some, more = (
            with_policy(table, recompute=SELECTIVE, recompute_modules=module_bits(modules))
            for modules in (("core_attn",), ("core_attn", "mlp"))
        )
        return some, more
    if isinstance(axis.codec, Flag | Share | Modules):
        none, most = np.zeros_like(column), 1 if isinstance(axis.codec, Flag | Share) else 2
        rows = with_policy(table).replaced(**{axis.column: none})
        return rows, rows.replaced(**{axis.column: np.full(size, most, column.dtype)})
    if axis.name == "zero_stage":
        return table, table.replaced(zero_stage=np.minimum(column + 1, 3))
    return table, table.replaced(**{axis.column: 2 * column})


def fits_twice(axis, table, experts):
    """Rows in which an axis may be twice as large."""
    expert = table.ep * table.etp
    every = table.tp * table.cp * table.dp
    ranks = {"ep": every, "dp_replicate": table.dp, "gtp": table.dp, "egtp": every // expert}
    taken = {"ep": expert, "dp_replicate": table.dp_replicate, "gtp": table.gtp, "egtp": table.egtp}
    name = "ep" if axis.name == "etp" else axis.name
    whole = ranks.get(name, 0) % (2 * taken.get(name, 1)) == 0
    if name in ("gtp", "egtp"):  # rules refuse them with ZeRO-2 and 3, which cut what they cut
        whole = whole & (table.zero_stage < 2)
    return np.broadcast_to(whole & (experts or axis.name not in ("ep", "etp", "egtp")), len(table))


@examples(1, by_night=2)
@given(seeds)
def test_an_axis_does_to_memory_what_it_says(case, legal_table, seed):
    job = case[0]
    table = legal_table(job, 100, seed)
    for axis in (axis for axis in AXES if axis.memory.terms):
        rows = table.take(fits_twice(axis, table, experts=job.model.moe is not None))
        if not len(rows):
            continue
        few, many = (price(Candidates(*case, some)).memory for some in grown(axis, rows))
        for term in axis.memory.terms:
            less, more = (np.atleast_2d(getattr(one, term)).max(axis=0) for one in (few, many))
            if axis.memory.effect == "falls":
                less, more = more, less
            assert (less <= more * ROUNDING).all(), (axis.name, term)


@once_a_case
@given(seeds)
def test_every_zero_stage_shards_more_states(case, legal_table, seed):
    table = legal_table(case[0], 200, seed)
    stages = [
        price(Candidates(*case, table.replaced(zero_stage=np.full(len(table), stage)))).memory
        for stage in range(4)
    ]
    for less, more in pairwise(stages):
        for state in ("weights", "gradients", "optimizer"):
            assert (getattr(more, state) <= getattr(less, state) * ROUNDING).all()


@once_a_case
@given(seeds)
def test_sharding_never_needs_more_than_the_whole_and_the_own_shard(case, legal_table, seed):
    """A gathered layer is a copy beside the shard, so ZeRO-2 and 3 may exceed by the shard."""
    table = legal_table(case[0], 200, seed)
    one, two, three = (
        price(Candidates(*case, table.replaced(zero_stage=np.full(len(table), stage)))).memory
        for stage in (1, 2, 3)
    )
    assert (two.allocated <= (one.allocated + two.gradients) * ROUNDING).all()
    assert (three.allocated <= (two.allocated + three.weights) * ROUNDING).all()


@once_a_case
@given(seeds, st.sampled_from([1, 2, 3]))
def test_more_replicas_never_need_more_bytes_of_state(case, legal_table, seed, zero_stage):
    table = legal_table(case[0], 200, seed)
    table = table.replaced(zero_stage=np.full(len(table), zero_stage))
    few, many = (price(Candidates(*case, table.replaced(dp=k * table.dp))) for k in (1, 2))
    rows = np.flatnonzero((table.schedule == 0) | (many.microbatches % table.pp == 0))
    for state in ("weights", "gradients", "optimizer", "activations"):
        once, twice = (getattr(one.memory, state)[:, rows] for one in (few, many))
        assert (twice <= once * ROUNDING).all(), state


@once_a_case
@given(seeds)
def test_recomputation_costs_time_and_saves_activations(case, legal_table, seed):
    table = legal_table(case[0], 200, seed)
    some, none = price(Candidates(*case, table)), price(Candidates(*case, with_policy(table)))
    assert (none.step_seconds <= some.step_seconds * ROUNDING).all()
    saves = some.memory.activations <= none.memory.activations * ROUNDING
    assert saves.all(), table.row(int(np.argmin(saves.all(axis=0))))


@once_a_case
@given(seeds)
def test_recomputing_one_more_layer_of_each_stage_costs_time_and_saves_activations(
    case, legal_table, seed
):
    table = legal_table(case[0], 100, seed)
    before = None
    for number in range(5):
        policy = {"recompute": FULL, "recompute_method": 2, "recompute_num_layers": number}
        now = price(Candidates(*case, with_policy(table, **policy if number else {})))
        if before is not None:
            assert (before.step_seconds <= now.step_seconds * ROUNDING).all()
            assert (now.memory.activations <= before.memory.activations * ROUNDING).all()
        before = now


@once_a_case
@given(seeds)
def test_one_more_module_costs_time_and_saves_activations(case, legal_table, seed):
    job, _, traits = case
    table = legal_table(job, 100, seed)
    plain = price(Candidates(*case, with_policy(table)))
    for module in traits.recompute.subsets(job.model)[:6]:
        bits = {"recompute": SELECTIVE, "recompute_modules": module_bits(module)}
        some = price(Candidates(*case, with_policy(table, **bits)))
        assert (plain.step_seconds <= some.step_seconds * ROUNDING).all(), module
        assert (some.memory.activations <= plain.memory.activations * ROUNDING).all(), module


@once_a_case
@given(seeds, st.sampled_from([0.25, 0.5, 1.0]))
def test_offload_is_never_faster_and_never_keeps_more_on_the_gpu(case, legal_table, seed, share):
    table = legal_table(case[0], 200, seed)
    on_gpu, offloaded = (
        price(Candidates(*case, table.replaced(offload_optimizer=np.full(len(table), s))))
        for s in (0.0, share)
    )
    assert (on_gpu.step_seconds <= offloaded.step_seconds * ROUNDING).all()
    assert (offloaded.memory.optimizer <= on_gpu.memory.optimizer * ROUNDING).all()
    assert (offloaded.memory.used <= on_gpu.memory.used * ROUNDING).all()


@once_a_case
@given(seeds, st.sampled_from([2, 3]))
def test_a_larger_micro_batch_never_needs_less_activation_memory(case, legal_table, seed, factor):
    table = legal_table(case[0], 200, seed)
    larger = table.replaced(micro_batch_size=factor * table.micro_batch_size)
    small, large = (price(Candidates(*case, t)) for t in (table, larger))
    kept = small.microbatches == factor * large.microbatches
    whole = (table.schedule == 0) | (large.microbatches % table.pp == 0)
    rows = np.flatnonzero(kept & whole)
    few, many = small.memory.activations[:, rows], large.memory.activations[:, rows]
    assert (few.max(axis=0) <= many.max(axis=0) * ROUNDING).all()


@once_a_case
@given(seeds)
def test_twice_the_context_ranks_keep_half_the_activations_of_a_layer(case, legal_table, seed):
    keys, _ = distinct_keys(Candidates(*case, legal_table(case[0], 200, seed)))
    once, twice = (
        blocks(keys.with_table(keys.table.replaced(cp=k * keys.table.cp))) for k in (1, 2)
    )
    for kind, half in zip(once.by_kind, twice.by_kind, strict=True):
        np.testing.assert_allclose(2 * half.saved_bytes, kind.saved_bytes, rtol=1e-12)
    np.testing.assert_allclose(2 * twice.layer_input_bytes, once.layer_input_bytes, rtol=1e-12)


@once_a_case
@given(seeds)
def test_messages_between_stages_cost_nothing_without_stages(case, legal_table, seed):
    table = legal_table(case[0], 200, seed)
    p2p = price(Candidates(*case, table)).seconds.p2p
    assert (p2p[table.pp == 1] == 0).all()
    assert (p2p[table.pp > 1] > 0).all()
