"""How the pieces of a sequence meet, by runtime and model, against hand-made sums."""

import numpy as np
import pytest

from trainplan.costmodel.blocks.candidates import context_of
from trainplan.costmodel.catalog.models import preset
from trainplan.costmodel.comm import collective_seconds, group
from trainplan.costmodel.comm.collectives import collective_rate
from trainplan.costmodel.layouts import LayoutTable
from trainplan.costmodel.machine import machine_of
from trainplan.costmodel.runtimes import RUNTIMES
from trainplan.costmodel.spec import Job, Layout, RuntimeOptions, TrainingSpec
from trainplan.costmodel.spec.cluster import parse_cluster
from trainplan.costmodel.step import explicit
from trainplan.planner.exporters.megatron_lm import export_megatron_lm

NODES = "4x8:h100-sxm"
MACHINE = machine_of(parse_cluster(NODES), "bf16")
SEQ_LENGTH = 32768


def job_of(model="llama3-8b", runtime="megatron-lm", cluster=NODES, **options):
    return Job(
        model=preset(model),
        training=TrainingSpec(seq_length=SEQ_LENGTH, global_batch_size=8),
        cluster=parse_cluster(cluster),
        runtime=runtime,
        options=RuntimeOptions(**options),
    )


def terms(job, **layout):
    machine = machine_of(job.cluster, job.training.precision)
    return explicit(context_of(job, machine).with_table(LayoutTable.of([Layout(**layout)])))[
        0
    ].terms


@pytest.mark.parametrize(("stride", "inside"), [(1, 8), (2, 4), (8, 1)])
def test_an_all_to_all_leaves_a_node_by_one_nic_for_each_rank(stride, inside):
    """Of each rank's tensor (n - inside) / n goes to other nodes, whoever else shares the node."""
    ranks = np.array([16])
    rate = collective_rate(MACHINE, "alltoall", group(MACHINE, ranks, np.array([stride])))
    nic = MACHINE.nic_bytes_per_second * MACHINE.constants.nic_efficiency
    assert rate.seconds_per_byte[0] == pytest.approx((16 - inside) / 16 / nic)


def test_heads_exchanged_over_nodes_take_the_time_of_their_bytes_on_one_nic():
    """Queries, keys, values and output, each pass: 2 * (32 + 8 + 8 + 32) heads of 128."""
    layout = {"cp": 16, "dp": 2}
    found = terms(job_of(cp_comm_type="a2a"), **layout).cp_comm
    nic = MACHINE.nic_bytes_per_second * MACHINE.constants.nic_efficiency
    sent = 2 * 2 * (32 + 8 + 8 + 32) * 128 * SEQ_LENGTH / 16 * 8 / 16
    assert found == pytest.approx(4 * 32 * sent / nic, rel=0.15)


def test_transformer_engine_gathers_as_many_heads_as_there_are_groups():
    """Keys and values of 8 heads: gathered in both passes, their gradients scattered, no ring."""
    layout = {"cp": 8, "dp": 4}
    found = terms(job_of(cp_comm_type="all_gather"), **layout).cp_comm
    links = group(MACHINE, np.array([8]), np.array([1]))
    tensor = np.array([2.0 * 8 * 128 * SEQ_LENGTH])
    gather, scatter = (
        collective_seconds(MACHINE, name, tensor, links)[0]
        for name in ("all_gather", "reduce_scatter")
    )
    assert found == pytest.approx(2 * 32 * 2 * (2 * gather + scatter))


def test_gathered_keys_and_values_take_two_calls_of_the_core_on_every_rank():
    ring, gathered = (
        terms(job_of(cp_comm_type=way), cp=32).attention for way in ("p2p", "all_gather")
    )
    fixed = MACHINE.constants.attention_fixed_seconds
    saved = 8 * 32 * 2 * (32 - 2) * fixed
    assert ring - gathered == pytest.approx(saved, rel=0.1)


@pytest.mark.parametrize(
    ("model", "layout", "way"),
    [
        ("gpt-oss-20b", {"cp": 4, "dp": 8, "ep": 8}, "a2a"),
        ("gemma3-27b", {"cp": 4, "dp": 8}, "a2a"),
        ("gemma3-27b", {"tp": 8, "cp": 4, "sequence_parallel": True}, "all_gather"),
        ("llama3-8b", {"cp": 4, "dp": 8}, "p2p"),
    ],
)
def test_windows_and_sinks_are_priced_by_the_exchange_that_can_run_them(model, layout, way):
    assert terms(job_of(model), **layout) == terms(job_of(model, cp_comm_type=way), **layout)


@pytest.mark.parametrize("way", ["p2p", "a2a", "all_gather"])
def test_an_export_says_the_exchange_that_was_priced(way):
    config = export_megatron_lm(job_of(cp_comm_type=way), Layout(cp=4, dp=8))
    (said,) = [one.values for one in config.arguments if one.flag == "--cp-comm-type"]
    assert said == (way,)


@pytest.mark.parametrize(("tp", "refused"), [(2, False), (4, True)])
def test_an_exchange_of_heads_cuts_keys_and_values_too(tp, refused):
    """Llama-3-8B has 8 key-value heads and 32 of queries."""
    table = LayoutTable.of([Layout(tp=tp, cp=4, dp=8 // tp, sequence_parallel=True)])
    rules = {rule.name: rule for rule in RUNTIMES["megatron-lm"].rules}
    rule = rules["heads_exchange_divides_groups"]
    assert bool(rule.broken(job_of(cp_comm_type="a2a"), table)[0]) == refused
    assert not rule.broken(job_of(), table)[0]


@pytest.mark.parametrize(
    ("model", "way", "refused"),
    [
        ("gpt-oss-20b", "all_gather", True),
        ("gpt-oss-20b", "a2a", False),
        ("gemma3-27b", "all_gather", False),
    ],
)
def test_gathered_keys_and_values_are_refused_where_there_are_sinks(model, way, refused):
    rules = {rule.name: rule for rule in RUNTIMES["megatron-lm"].rules}
    broken = rules["sinks_exchange_heads"].broken
    table = LayoutTable.of([Layout(cp=4, dp=8), Layout(dp=32)])
    assert broken(job_of(model, cp_comm_type=way), table).tolist() == [refused, False]


@pytest.mark.parametrize(
    ("model", "refused"), [("gpt-oss-20b", True), ("gemma3-27b", True), ("llama3-8b", False)]
)
def test_a_ring_that_is_asked_for_is_refused_where_there_are_windows(model, refused):
    rules = {rule.name: rule for rule in RUNTIMES["megatron-lm"].rules}
    broken = rules["windows_leave_the_ring"].broken
    table = LayoutTable.of([Layout(cp=4, dp=8), Layout(dp=32)])
    assert broken(job_of(model, cp_comm_type="p2p"), table).tolist() == [refused, False]
    assert not broken(job_of(model), table).any()


@pytest.mark.parametrize(("cp", "refused"), [(8, False), (16, True)])
def test_deepspeed_exchanges_heads_and_cuts_no_head(cp, refused):
    """Eight heads are cut over 8 ranks and not over 16."""
    job = job_of("llama3-8b", "megatron-deepspeed")
    few = job.model.model_copy(update={"num_attention_heads": 8, "num_key_value_heads": 8})
    rules = {rule.name: rule for rule in RUNTIMES["megatron-deepspeed"].rules}
    table = LayoutTable.of([Layout(cp=cp, dp=32 // cp)])
    broken = rules["sequence_ranks_divide_heads"].broken
    assert bool(broken(job.model_copy(update={"model": few}), table)[0]) == refused
    assert terms(job, cp=cp, dp=32 // cp) == terms(
        job_of("llama3-8b", "megatron-deepspeed", cp_comm_type="a2a"), cp=cp, dp=32 // cp
    )
