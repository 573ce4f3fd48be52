"""Who shares the states of a model, and what a step sends and updates of them, by hand."""

from dataclasses import replace

import numpy as np
import pytest

from trainplan.costmodel.candidates.context import context_of
from trainplan.costmodel.comm import collective_seconds, group
from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.costmodel.job.job import RuntimeOptions
from trainplan.costmodel.kernels.memory_bound import optimizer_bytes_per_second
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.machine import machine_of
from trainplan.costmodel.memory.states import RankParams, updated_params
from trainplan.costmodel.shard_groups import groups_of
from trainplan.costmodel.step.estimate import sent_bytes, with_overhead
from trainplan.costmodel.traffic.data_parallel import (
    rank_optimizer_seconds,
    state_ranks,
    step_traffic,
)
from trainplan.costmodel.traffic.offload import offload_seconds

ONE = np.ones(1)
MACHINE = machine_of(parse_cluster("16x8:h100-sxm"), "bf16")
CUT = Layout(tp=4, cp=2, dp=16, ep=8, etp=2, zero_stage=1)
HYBRID = CUT.model_copy(update={"dp_replicate": 2})


def table_of(**layout):
    return LayoutTable.of([Layout(**layout)])


def held(shared=0.0, expert=0.0):
    """Parameters of the only class of ranks."""
    return RankParams(np.full((1, 1), shared), np.full((1, 1), expert))


@pytest.mark.parametrize(
    ("layout", "shards", "expert_shards"),
    [
        (CUT, 16 * 2, 4 * 2 * 16 / (2 * 8)),
        (HYBRID, 16 * 2 / 2, 4 * 2 * 16 / (2 * 8) / 2),
        (Layout(tp=2, dp=4, ep=8), 4, 1),
        (Layout(tp=8, cp=2), 2, 16 / 1),
    ],
)
def test_states_are_shared_by_the_replicas_of_their_own_mapping(layout, shards, expert_shards):
    """Dense ones by dp cp ranks, experts by tp cp dp / (etp ep), less the replicas of HSDP.

    Source: arXiv:2504.14960, section 3; arXiv:2304.11277, section 3.2.2.
    """
    table = LayoutTable.of([layout])
    assert [one.optimizer for one in groups_of(table)] == [shards, expert_shards]


@pytest.mark.parametrize(("layout", "replicas"), [(CUT, 1), (HYBRID, 2)])
def test_members_of_a_group_are_as_far_apart_as_the_ranks_between_them(layout, replicas):
    """Data and context ranks together, at distance tp; experts' at distance etp ep."""
    table = LayoutTable.of([layout])
    dense, expert = state_ranks(table, groups_of(table))
    assert (dense.scattered, dense.gathered, dense.stride) == (32 / replicas, 32 / replicas, 4)
    assert (expert.scattered, expert.gathered, expert.stride) == (8 / replicas, 8 / replicas, 16)
    assert (dense.ranks, expert.ranks) == (32, 8)
    assert (dense.updated, expert.updated) == (32 / replicas, 8 / replicas)


@pytest.mark.parametrize(("options", "gradient_bytes"), [({}, 4), ({"gradient_dtype": "bf16"}, 2)])
def test_a_step_scatters_gradients_and_gathers_weights_over_their_groups(
    make_job, options, gradient_bytes
):
    """One billion parameters of layers over 32 ranks, 2 billion of experts over 8."""
    job = make_job("small-moe", "16x8:h100-sxm")
    job = job.model_copy(update={"options": RuntimeOptions(**options)})
    table, params = LayoutTable.of([CUT]), held(1e9, 2e9)
    found = step_traffic(context_of(job, MACHINE).with_table(table), params)
    links = (
        (1e9, group(MACHINE, np.array([32]), np.array([4]))),
        (2e9, group(MACHINE, np.array([8]), np.array([16]))),
    )
    for name, width, seconds in (
        ("reduce_scatter", gradient_bytes, found.reduce),
        ("all_gather", 2, found.gather),
    ):
        expected = sum(
            collective_seconds(MACHINE, name, np.array([width * count]), one)[0]
            for count, one in links
        )
        assert seconds[0, 0] == pytest.approx(expected)


def test_without_sharding_a_step_sums_gradients_and_gathers_nothing(make_job):
    job = make_job("small-dense", "16x8:h100-sxm")
    table = LayoutTable.of([CUT.model_copy(update={"zero_stage": 0, "ep": 1, "etp": 1})])
    found = step_traffic(context_of(job, MACHINE).with_table(table), held(1e9))
    links = group(MACHINE, np.array([32]), np.array([4]))
    summed = collective_seconds(MACHINE, "all_reduce", np.array([4e9]), links)
    assert found.reduce[0] == pytest.approx(summed)
    assert found.gather == 0


@pytest.mark.parametrize(
    ("zero_stage", "bytes_per_param"),
    [(0, 42 + 4), (1, 42 / 8 + 4), (2, (42 + 4) / 8), (3, (42 + 4) / 8)],
)
def test_the_optimizer_moves_42_bytes_a_shard_and_zeroes_4_a_gradient(zero_stage, bytes_per_param):
    """Gradients are whole up to ZeRO-1, cut from ZeRO-2 on."""
    table, params = table_of(dp=8, zero_stage=zero_stage), held(1e9)
    found = rank_optimizer_seconds(MACHINE, table, params, updated_params(table, params)).max()
    moved = found * optimizer_bytes_per_second(MACHINE)
    assert moved == pytest.approx(bytes_per_param * 1e9)


def test_a_rank_updates_its_share_of_layers_and_of_experts():
    params = held(1e9, 2e9)
    sharded, whole = (
        updated_params(LayoutTable.of([CUT.model_copy(update={"zero_stage": stage})]), params)
        for stage in (1, 0)
    )
    assert sharded[0, 0] == pytest.approx(1e9 / 32 + 2e9 / 8)
    assert whole[0, 0] == 3e9


@pytest.mark.parametrize("share", [0.5, 1.0])
def test_an_offloaded_update_sends_gradients_out_and_weights_back(share):
    """4 bytes out and 4 back, all GPUs of a node on its CPUs, less what the GPU would have moved.

    Source: Ren et al., arXiv:2101.06840, sections 3 and 4.1, table 4: 1 B parameters in 0.22 s.
    """
    machine = replace(MACHINE, host_bytes_per_second=1e10)
    table = LayoutTable.of([Layout(dp=8, zero_stage=1)]).replaced(offload_optimizer=share * ONE)
    found = offload_seconds(machine, table, np.full((1, 1), 1e8))
    update = 8 / 4.5e9 - 42 / optimizer_bytes_per_second(machine)
    assert found == pytest.approx(share * 1e8 * (8 / 1e10 + update))


@pytest.mark.parametrize(
    ("layout", "parts"),
    [
        ({"pp": 2, "micro_batch_size": 1}, 1),
        ({"pp": 2, "micro_batch_size": 4}, 1 / 4),
        ({"pp": 2, "micro_batch_size": 4, "cp": 2}, 1 / 2),
        ({"pp": 2, "micro_batch_size": 4, "tp": 2, "sequence_parallel": True}, 1 / 2),
        ({"pp": 2, "micro_batch_size": 4, "tp": 2, "sequence_parallel": False}, 1 / 4),
    ],
)
def test_a_message_is_the_hidden_state_of_a_micro_batch(make_job, layout, parts):
    """2048 tokens of 1024 in 2 bytes a sequence; cut by context ranks, and by tensor ranks where
    the sequence is. Source: arXiv:2104.04473, section 4.1."""
    job = make_job("small-dense", "16x8:h100-sxm")
    found = sent_bytes(context_of(job, MACHINE).with_table(table_of(**layout)))
    assert found == pytest.approx(2 * 2048 * 1024 / parts)


@pytest.mark.parametrize(("num_gpus", "doublings"), [(4, 0), (8, 0), (16, 1), (64, 3), (1024, 7)])
def test_every_doubling_beyond_a_node_adds_its_share_of_stragglers(num_gpus, doublings):
    constants = MACHINE.constants.model_copy(
        update={
            "overhead_fraction": 0.1,
            "straggler_per_doubling": 0.01,
            "overhead_seconds": 0.25,
        }
    )
    machine = replace(MACHINE, num_gpus=num_gpus, constants=constants)
    assert with_overhead(machine, 2 * ONE) == pytest.approx(2 * (1.1 + 0.01 * doublings) + 0.25)
    measured = replace(machine, speed=0.5, fixed_overhead_seconds=3.0)
    assert with_overhead(measured, 2 * ONE) == pytest.approx(
        2 * with_overhead(machine, 2 * ONE) + 3
    )


def test_what_an_offloaded_update_adds_is_one_product_to_the_last_digit():
    rng = np.random.default_rng(9)
    shares, updated = rng.uniform(0, 1, 200), rng.uniform(1e6, 1e10, (1, 200))
    machine = replace(MACHINE, host_bytes_per_second=2.3e10)
    table = LayoutTable.of([Layout(dp=8, zero_stage=1)] * 200).replaced(offload_optimizer=shares)
    saved = 42 / optimizer_bytes_per_second(machine)
    one = max(0.0, 8 / 2.3e10 + 8 / 4.5e9 - saved)
    found = offload_seconds(machine, table, updated)
    assert np.array_equal(found, (updated * shares * one)[0])
