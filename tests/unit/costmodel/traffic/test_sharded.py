"""What runtimes gather and reduce in the passes of a micro batch, and once a step."""

from dataclasses import replace

import numpy as np
import pytest

from trainplan.costmodel.candidates.context import Candidates, context_of
from trainplan.costmodel.comm import collective_seconds, group
from trainplan.costmodel.comm.collectives import collective_rate
from trainplan.costmodel.job.job import RuntimeOptions
from trainplan.costmodel.kernels import streaming_bytes_per_second
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.machine import machine_of
from trainplan.costmodel.memory.states import RankParams, rank_params
from trainplan.costmodel.pipeline.bound import LayerSeconds
from trainplan.costmodel.presets.clusters import cluster_of
from trainplan.costmodel.runtimes.registry import traits_of
from trainplan.costmodel.runtimes.traits.sharding import WHOLE_LAYERS
from trainplan.costmodel.shard_groups import groups_of
from trainplan.costmodel.step import price
from trainplan.costmodel.traffic.data_parallel import state_ranks, step_traffic
from trainplan.costmodel.traffic.sharded import Unit, overlapped_layer, sharded_traffic

RANKS = 64


@pytest.fixture(scope="module")
def job_of(make_job):
    def job(runtime, **options):
        made = make_job("llama3-8b", "8x8:a100-sxm-80gb", 512, 4096)
        return made.model_copy(update={"runtime": runtime, "options": RuntimeOptions(**options)})

    return job


def machine_for(job):
    return machine_of(job.cluster, job.training.precision)


def fetching(traits, fetches):
    return replace(traits, sharding=replace(traits.sharding, fetches=fetches))


def layer_traffic(job, params, matrices=1, traits=None, *, root=False, **layout):
    """Traffic of one layer of so many parameters."""
    table = LayoutTable.of([Layout(dp=RANKS, **layout)])
    unit = Unit(RankParams(np.array([float(params)]), np.zeros(1)), matrices, root)
    candidates = Candidates(job, machine_for(job), traits or traits_of(job), table)
    return sharded_traffic(candidates, [unit])[0]


def seconds_of(job, operation, tensor_bytes, ranks=RANKS, stride=1):
    links = group(machine_for(job), np.array([ranks]), np.array([stride]))
    return collective_seconds(machine_for(job), operation, np.array([tensor_bytes]), links)


def step_of(job, **layout):
    table = LayoutTable.of([Layout(dp=RANKS, **layout)])
    candidates = context_of(job, machine_for(job)).with_table(table)
    priced = price(candidates, merged=False)
    held = rank_params(priced.ranks, priced.params)
    return step_traffic(candidates, held)


@pytest.mark.parametrize("runtime", ["nanotron", "megatron-deepspeed"])
def test_runtimes_that_sum_whole_gradients_reduce_under_zero_1_what_they_do_without(
    job_of, runtime
):
    job = job_of(runtime)
    assert step_of(job, zero_stage=1).reduce == pytest.approx(step_of(job, zero_stage=0).reduce)
    assert step_of(job, zero_stage=1).gather.sum() > 0


def test_other_runtimes_scatter_gradients_under_zero_1_for_about_half(job_of):
    for runtime in ("megatron-lm", "megatron-zero-bubble", "torchtitan"):
        job = job_of(runtime)
        share = step_of(job, zero_stage=1).reduce / step_of(job, zero_stage=0).reduce
        assert 0.4 < share.item() < 0.6


def test_whole_gradients_are_summed_over_replicas_too(job_of):
    """Shards of one node each: the sum over all nodes takes longer than that within one."""
    job, yes = job_of("nanotron"), np.array([True])
    table = LayoutTable.of([Layout(dp=RANKS, zero_stage=1, dp_replicate=8)])
    wires = state_ranks(table, groups_of(table))[0].wires(machine_for(job))
    found = wires.reduction(sharded=yes, whole=yes).seconds(np.array([1e10]))
    assert found >= seconds_of(job, "all_reduce", 1e10, ranks=8, stride=8)
    assert found > 2 * seconds_of(job, "all_reduce", 1e10, ranks=8)


def test_a_reduction_of_deepspeeds_zero_2_is_a_sum_that_its_backward_pass_waits_for(job_of):
    job, params = job_of("megatron-deepspeed"), 2e8
    found = layer_traffic(job, params, zero_stage=2)
    assert found.backward_alone == pytest.approx(seconds_of(job, "all_reduce", 2 * params))
    assert (found.forward, found.backward, found.recompute_forward) == (0, 0, 0)
    layer = LayerSeconds(*(np.array([one]) for one in (1.0, 2.0, 0.5, 0.9, 0.0, 0.0, 0.0)))
    assert overlapped_layer(0.3, layer, found, layer).backward == pytest.approx(
        2.0 + found.backward_alone
    )
    overlapped = layer_traffic(
        job_of("megatron-deepspeed", overlap_grad_reduce=True), params, zero_stage=2
    )
    assert overlapped.backward_alone == 0
    assert overlapped.backward == pytest.approx(found.backward_alone)


@pytest.mark.parametrize("runtime", ["llm-foundry-fsdp", "fms-fsdp", "torchtitan"])
def test_fsdp_gathers_weights_in_every_forward_pass_under_zero_2_and_never_beside_the_step(
    job_of, runtime
):
    job, params = job_of(runtime), 2e8
    found = layer_traffic(job, params, zero_stage=2)
    assert found.forward == pytest.approx(seconds_of(job, "all_gather", 2 * params))
    size = traits_of(job).gradients.message_bytes
    assert found.backward == pytest.approx(seconds_of(job, "reduce_scatter", size * params))
    assert step_of(job, zero_stage=2).gather.sum() == 0


def test_other_runtimes_gather_weights_once_a_step_under_zero_2(job_of):
    job = job_of("megatron-deepspeed")
    assert layer_traffic(job, 2e8, zero_stage=2).forward == 0
    assert step_of(job, zero_stage=2).gather.sum() > 0


def test_deepspeed_gathers_and_reduces_the_weights_of_a_large_layer_one_by_one(job_of):
    """1.8e9 parameters: four calls each way, where whole layers take one."""
    job, params = job_of("megatron-deepspeed"), 1.8e9
    found = layer_traffic(job, params, 4, zero_stage=3)
    whole = layer_traffic(job, params, 4, fetching(traits_of(job), WHOLE_LAYERS), zero_stage=3)
    links = group(machine_for(job), np.array([RANKS]), np.array([1]))
    starts = [
        collective_rate(machine_for(job), name, links).start_seconds
        for name in ("all_gather", "reduce_scatter")
    ]
    assert found.forward - whole.forward == pytest.approx(3 * starts[0])
    assert found.backward - whole.backward == pytest.approx(3 * sum(starts))


def test_deepspeed_joins_the_weights_of_a_small_layer_in_one_call(job_of):
    job = job_of("megatron-deepspeed")
    whole = fetching(traits_of(job), WHOLE_LAYERS)
    for params in (1e7, 5e7):
        found = layer_traffic(job, params, 4, zero_stage=3)
        assert found == layer_traffic(job, params, 4, whole, zero_stage=3)


def test_deepspeed_gathers_once_more_what_it_frees_between_recomputation_and_backward_pass(job_of):
    """Twice the parameters behind a weight lie between its uses, and 1e9 are too many."""
    job = job_of("megatron-deepspeed")
    assert layer_traffic(job, 0.5e9, zero_stage=3).recompute_forward == 0
    recompute_forward = layer_traffic(job, 1.8e9, zero_stage=3).recompute_forward
    assert recompute_forward == pytest.approx(seconds_of(job, "all_gather", 2 * 1.3e9))
    assert layer_traffic(job, 1.8e9, zero_stage=2).recompute_forward == 0
    assert layer_traffic(job_of("torchtitan"), 1.8e9, zero_stage=3).recompute_forward == 0


def test_what_is_gathered_again_is_paid_where_layers_are_recomputed(job_of):
    job = job_of("megatron-deepspeed")
    traits = traits_of(job)
    never = fetching(traits, replace(traits.sharding.fetches, reuse_params=np.inf))
    always = fetching(traits, replace(traits.sharding.fetches, reuse_params=0.0))
    plain = Layout(dp=RANKS, zero_stage=3)
    full = {"recompute": "full", "recompute_method": "uniform", "recompute_num_layers": 1}
    table = LayoutTable.of([plain, plain.model_copy(update=full)])
    kept, freed = (price(Candidates(job, machine_for(job), one, table)) for one in (never, always))
    assert freed.step_seconds[0] == kept.step_seconds[0]
    assert freed.step_seconds[1] > kept.step_seconds[1]


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
def test_ranks_of_nanotron_wait_for_their_messages(job_of, schedule):
    job = job_of("nanotron")
    table = LayoutTable.of([Layout(pp=2, dp=RANKS // 2, schedule=schedule)])
    priced = price(context_of(job, machine_for(job)).with_table(table))
    assert priced.seconds.sending == priced.seconds.p2p > 0


@pytest.mark.parametrize("runtime", ["llm-foundry-fsdp", "fms-fsdp", "torchtitan"])
def test_nothing_runs_beside_the_root_unit_of_fsdp_and_it_is_gathered_once(job_of, runtime):
    job, params = job_of(runtime), 1e9
    size = traits_of(job).gradients.message_bytes
    for zero_stage in (2, 3):
        found = layer_traffic(job, params, root=True, zero_stage=zero_stage)
        assert (found.forward, found.backward) == (0, 0)
        copied = runtime == "torchtitan"
        speed = streaming_bytes_per_second(machine_for(job))
        gather = seconds_of(job, "all_gather", 2 * params) + copied * (2 + 2) * params / speed
        assert found.forward_alone == pytest.approx(gather)
        assert found.backward_alone == pytest.approx(
            seconds_of(job, "reduce_scatter", size * params) + copied * (2 + 4) * params / speed
        )
        layer = LayerSeconds(*(np.array([one]) for one in (9.0, 9.0, 0.5, 0.9, 0.0, 0.0, 0.0)))
        assert overlapped_layer(0.3, layer, found, layer).forward == pytest.approx(9.0 + gather)


def test_passes_wait_for_the_copies_of_units_that_are_no_flat_buffers(job_of):
    """Weights out of the gathered buffer in both passes, gradients into that of the reduction."""
    params = 1e9
    for runtime, passes in (("torchtitan", 2), ("fms-fsdp", 0)):
        job = job_of(runtime)
        found = layer_traffic(job, params, zero_stage=3)
        moved = (found.forward_alone + found.backward_alone) * streaming_bytes_per_second(
            machine_for(job)
        )
        assert moved == pytest.approx(passes * 4 * params + bool(passes) * 6 * params)


@pytest.mark.parametrize(
    ("runtime", "apart"), [("torchtitan", True), ("fms-fsdp", True), ("llm-foundry-fsdp", False)]
)
def test_embedding_and_head_are_at_the_root_where_only_layers_are_units(job_of, runtime, apart):
    job = job_of(runtime)
    table = LayoutTable.of([Layout(dp=RANKS, zero_stage=3)])
    params = job.model.vocab_size * job.model.hidden_size
    priced = price(context_of(job, machine_for(job)).with_table(table))
    wire = layer_traffic(job, params, root=True, zero_stage=3)
    alone = wire.forward_alone + wire.backward_alone
    assert (priced.seconds.embedding.traffic == pytest.approx(alone, rel=1e-6)) == apart


def test_traffic_of_the_backward_pass_hides_behind_a_repeated_forward_pass_too(job_of):
    """What the repeated pass adds is what both passes take beyond the backward pass alone."""
    job = job_of("fms-fsdp")
    found = layer_traffic(job, 1e9, zero_stage=3)
    wire = float(found.backward[0])
    for backward, again in ((0.2 * wire, 0.3 * wire), (0.8 * wire, 0.6 * wire), (2 * wire, wire)):
        columns = (backward, backward, 0.0, again, 0.0, 0.0, 0.0)
        layer = LayerSeconds(*(np.array([one]) for one in columns))
        priced = overlapped_layer(0.3, layer, found, layer)

        def lasts(compute):
            hidden = min(wire, compute)
            return compute + wire - 0.7 * hidden

        assert priced.backward == pytest.approx(lasts(backward))
        assert priced.backward + priced.recompute_forward == pytest.approx(lasts(backward + again))


@pytest.mark.parametrize(
    ("cluster", "layout", "shared", "expert"),
    [
        ("8x8:h100-sxm", {"tp": 2, "dp": 32, "ep": 8}, 4 / 8, 1 / 8),
        ("8x8:h100-sxm", {"dp": 64, "ep": 2}, 1.0, 4 / 8),
        ("1x8:h100-sxm", {"tp": 2, "dp": 4, "ep": 2}, 1.0, 1.0),
        ("16x4:gb200", {"dp": 64, "ep": 4}, 1.0, 1.0),
    ],
)
def test_a_group_on_few_rails_of_a_node_slows_compute_less(cluster, layout, shared, expert):
    machine = machine_of(cluster_of(cluster), "bf16")
    table = LayoutTable.of([Layout(zero_stage=3, **layout)])
    found = [one.wires(machine).rails for one in state_ranks(table, groups_of(table))]
    assert found == [pytest.approx(shared), pytest.approx(expert)]
