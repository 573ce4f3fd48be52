"""How the pieces of a sequence meet, by runtime and model, against hand-made sums."""

import numpy as np
import pytest

from tests.launches import launch_of
from trainplan.costmodel.blocks.attention.context import context_exchange
from trainplan.costmodel.blocks.parts import shapes
from trainplan.costmodel.candidates.context import context_of
from trainplan.costmodel.comm import collective_seconds, group, link_speed
from trainplan.costmodel.comm.collectives import collective_rate
from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.costmodel.job.job import Job, RuntimeOptions, TrainingSpec
from trainplan.costmodel.kernels import ForwardBackward
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.machine import machine_of
from trainplan.costmodel.presets.presets import preset
from trainplan.costmodel.runtimes.registry import RUNTIMES
from trainplan.costmodel.step import explicit, price
from trainplan.planner.runtimes import Request
from trainplan.planner.runtimes.megatron_lm.read import MEGATRON_LM
from trainplan.planner.runtimes.megatron_lm.write import export_megatron_lm
from trainplan.planner.space.choices import broken_rules

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
    (written,) = [one.values for one in config.arguments if one.flag == "--cp-comm-type"]
    assert written == (way,)


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


NESTED = {"cp": 16, "cp_heads": 8, "dp": 2}


def exchanged_seconds(ranks, stride=1):
    """Both exchanges of one layer and micro batch over so many neighbours, one pass."""
    links = group(MACHINE, np.array([ranks]), np.array([stride]))
    sent = (2.0 * SEQ_LENGTH / 16 * heads * 128 for heads in (32 + 8 + 8, 32))
    return sum(collective_seconds(MACHINE, "alltoall", np.array([b]), links)[0] for b in sent)


def test_heads_are_exchanged_inside_a_node_and_one_step_of_a_ring_between_two_is_hidden():
    """Four micro batches of 32 layers, two passes each."""
    assert terms(job_of(), **NESTED).cp_comm == pytest.approx(4 * 32 * 2 * exchanged_seconds(8))


def test_what_a_short_ring_cannot_hide_is_that_of_its_messages():
    """Two heads exchanged, a ring of 8 at distance 2 over 16 GPUs: 7 steps, 14 in the other pass.

    A message has the keys and values of 2,048 tokens, 2 x 8 x 128 wide, and leaves by one NIC.
    """
    found = terms(job_of(), cp=16, cp_heads=2, dp=2).cp_comm - 4 * 32 * 2 * exchanged_seconds(2)
    nic = MACHINE.nic_bytes_per_second * MACHINE.constants.nic_efficiency
    message = 2 * SEQ_LENGTH / 16 * 2 * 8 * 128
    assert 0 < found < 4 * 32 * (7 + 14) * (message / nic + MACHINE.constants.p2p_alpha)


def test_an_exchange_inside_a_ring_waits_less_than_either_over_nodes():
    ways = {
        "nested": terms(job_of(), **NESTED).cp_comm,
        "ring": terms(job_of(), cp=16, dp=2).cp_comm,
        "heads": terms(job_of(cp_comm_type="a2a"), cp=16, dp=2).cp_comm,
    }
    assert ways["nested"] < min(ways["ring"], ways["heads"])


def test_no_exchange_inside_a_ring_is_a_ring():
    assert terms(job_of(), cp=16, dp=2, cp_heads=1) == terms(job_of(), cp=16, dp=2)


@pytest.mark.parametrize(
    ("runtime", "layout", "rule"),
    [
        ("megatron-lm", {"cp": 8, "cp_heads": 3}, "cp_heads_divides_cp"),
        ("megatron-lm", {"cp": 8, "cp_heads": 8}, "cp_heads_divides_cp"),
        ("megatron-lm", {"cp": 32, "cp_heads": 16}, "cp_heads_divides_heads"),
        ("deepspeed", {"cp": 8, "cp_heads": 2}, "runtime_nests_exchanges"),
        ("torchtitan", {"cp": 8, "cp_heads": 2}, "runtime_nests_exchanges"),
    ],
)
def test_an_exchange_that_nests_badly_is_refused_by_name(runtime, layout, rule):
    job = job_of(runtime=runtime)
    wanted = LayoutTable.of([Layout(**layout, dp=32 // layout["cp"])])
    assert rule in [one.name for one in broken_rules(job, wanted)[0]]


def test_another_exchange_of_all_context_ranks_has_no_ring_to_be_inside_of():
    job = job_of(cp_comm_type="a2a")
    wanted = LayoutTable.of([Layout(cp=8, cp_heads=2, dp=4)])
    assert "cp_heads_is_in_a_ring" in [one.name for one in broken_rules(job, wanted)[0]]


def test_an_exchange_inside_a_ring_is_written_for_megatron_and_read_back():
    job, layout = job_of(), Layout(cp=8, cp_heads=4, dp=4)
    config = export_megatron_lm(job, layout)
    written = {one.flag: one.values for one in config.arguments}
    assert written["--cp-comm-type"] == ("a2a+p2p",)
    assert written["--hierarchical-context-parallel-sizes"] == ("4", "2")
    reading = MEGATRON_LM.read(launch_of(config), Request(cluster=job.cluster, model=job.model))
    assert reading.layout == layout
    assert not [one for one in reading.problems if "hierarchical" in one.says]


def test_one_way_of_exchange_costs_the_same_beside_two():
    job = job_of()
    context = context_of(job, machine_of(job.cluster, "bf16"))
    one, two = Layout(cp=16, dp=2), Layout(cp=16, cp_heads=4, dp=2)
    alone, alongside = (
        price(context.with_table(LayoutTable.of(some))) for some in ([one], [one, two])
    )
    assert alone.step_seconds[0] == alongside.step_seconds[0] != alongside.step_seconds[1]


@pytest.mark.parametrize("cp", [2, 4, 8])
def test_gradients_of_gathered_keys_make_as_many_rounds_as_there_are_ranks(cp):
    """Beside nothing: cp messages, one of them behind the last round; beside enough, that one."""
    job = job_of(runtime="torchtitan")
    of = shapes(context_of(job, MACHINE).with_table(LayoutTable.of([Layout(cp=cp, dp=32 // cp)])))
    ring = group(MACHINE, np.array([cp]), np.array([1]))
    tokens, columns = SEQ_LENGTH / cp, 2 * 32 * 128
    step = MACHINE.constants.p2p_alpha + 4 * columns * tokens / link_speed(MACHINE, ring.stride)[0]
    tensor = np.array([2.0 * columns * SEQ_LENGTH])
    gather = collective_seconds(MACHINE, "all_gather", tensor, ring)[0]

    def exposed(core):
        column = np.array([core])
        return context_exchange(of, ForwardBackward(column, column, 0 * column))

    alone, hidden = exposed(0.0), exposed(cp * (step + gather))
    assert alone.forward[0] == pytest.approx(gather)
    assert alone.backward[0] == pytest.approx(gather + cp * step)
    assert hidden.forward[0] == 0.0
    assert hidden.backward[0] == pytest.approx(step)
