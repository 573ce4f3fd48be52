"""Which exchange of experts sends what, and how long that takes beside the others."""

from itertools import product

import numpy as np
import pytest

from trainplan.costmodel.blocks import blocks
from trainplan.costmodel.calibration import context_for
from trainplan.costmodel.comm import collective_seconds, group, start_growth
from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.costmodel.job.job import Job, RuntimeOptions, TrainingSpec
from trainplan.costmodel.kernels import elementwise_seconds
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.memory.transients import layer_backward_bytes
from trainplan.costmodel.presets.presets import preset
from trainplan.costmodel.runtimes.megatron.dispatchers import deepep_groups
from trainplan.costmodel.runtimes.megatron.settings import gathers_fewer_copies
from trainplan.planner.plan.changes_training import changes_training

WIDTH, EXPERTS, TOKENS, TOP_K = 2048, 128, 4096, 8


def context(
    nodes=1, runtime="megatron-lm", seq_length=TOKENS, precision="bf16", gpu="h100-sxm", **options
):
    return context_for(
        Job(
            model=preset("qwen3-30b-a3b"),
            training=TrainingSpec(
                seq_length=seq_length, global_batch_size=512, precision=precision
            ),
            cluster=parse_cluster(f"{nodes}x8:{gpu}"),
            runtime=runtime,
            options=RuntimeOptions(**options),
        )
    )


def layer(on, **degrees):
    return blocks(on.with_table(LayoutTable.of([Layout(**degrees)]))).layers[0]


def exchanged(on, **degrees):
    """Seconds of the exchanges of both passes."""
    kind = layer(on, **degrees)
    return float(kind.forward.ep_comm[0]), float(kind.backward.ep_comm[0])


@pytest.mark.parametrize(
    "degrees",
    [{"dp": 8, "ep": 4}, {"dp": 2, "tp": 4, "ep": 4}, {"dp": 2, "tp": 4, "ep": 1, "etp": 4}],
)
def test_an_allgather_takes_tokens_in_16_bits_and_returns_them_in_32(degrees):
    on = context(moe_dispatcher="allgather")
    cut = degrees.get("tp", 1)
    there, back = exchanged(on, sequence_parallel=cut > 1, **degrees)
    links = group(on.machine, np.array([4]), np.array([1]))
    tokens = np.array([4.0 * TOKENS / cut])
    seconds = {
        (operation, size): float(collective_seconds(on.machine, operation, size * tokens, links)[0])
        for operation, size in (
            ("all_gather", 2 * WIDTH),
            ("all_gather", 4 * EXPERTS),
            ("all_gather", EXPERTS),
            ("reduce_scatter", 4 * WIDTH),
        )
    }
    assert there == pytest.approx(sum(seconds.values()))
    assert there - back == pytest.approx(seconds["all_gather", EXPERTS])


def test_a_gather_wins_inside_few_ranks_and_loses_beyond():
    """Six bytes of a number for each rank, against four for each expert of a token."""

    def faster(ep):
        gathered, plain = (context(moe_dispatcher=one) for one in ("allgather", "alltoall"))
        return exchanged(gathered, dp=8, ep=ep) < exchanged(plain, dp=8, ep=ep)

    assert [faster(ep) for ep in (2, 4, 8)] == [True, True, False]


def test_deepep_sends_a_token_once_to_each_tensor_rank_of_one_group_of_experts():
    """An all-to-all takes a copy for each of its experts there: tp_ep_group has no other ranks."""
    degrees = {"dp": 2, "tp": 4, "ep": 1, "etp": 4, "sequence_parallel": True}
    on = context(moe_dispatcher="deepep")
    links = group(on.machine, np.array([4]), np.array([1]))
    for dispatcher, copies in (("deepep", 1), ("alltoall", TOP_K)):
        sent = np.array([4.0 * TOKENS / 4 * 2 * WIDTH * copies])
        seconds = 2 * float(collective_seconds(on.machine, "all_gather", sent, links)[0])
        assert exchanged(context(moe_dispatcher=dispatcher), **degrees)[1] == pytest.approx(seconds)


@pytest.mark.parametrize("runtime", ["megatron-lm", "megatron-bridge"])
@pytest.mark.parametrize("gpu", ["l40s", "a100-sxm-80gb"])
def test_a_gather_that_is_not_tried_is_never_faster_inside_a_node(runtime, gpu):
    """And some that are tried win, of tensor ranks of one group of experts among them."""
    once = "alltoall" if gpu == "l40s" else "deepep"
    names = ("allgather", "alltoall", once)
    on = [context(1, runtime, gpu=gpu, moe_dispatcher=one) for one in names]
    model = on[0].job.model
    for top_k in (1, 2, 4):
        moe = model.moe.model_copy(update={"num_experts_per_tok": top_k})
        update = {"model": model.model_copy(update={"moe": moe})}
        gathered, plain, once = (context_for(one.job.model_copy(update=update)) for one in on)
        for ep, etp in ((1, 2), (1, 4), (2, 1), (2, 4), (4, 1), (4, 2), (8, 1)):
            table = LayoutTable.of([Layout(dp=8, ep=ep, etp=etp)])
            took, *others = (layer_seconds(one, table) for one in (gathered, plain, once))
            faster = took < others[0]
            idle = top_k == 1 or gathers_fewer_copies.broken(gathered.job, table)[0]
            assert not (took < min(others) and idle), (top_k, ep, etp)
            assert faster or (ep, etp) != (1, 4) or top_k < 4


@pytest.mark.parametrize("runtime", ["megatron-lm", "megatron-bridge"])
@pytest.mark.parametrize(("gpu", "ever"), [("a100-sxm-80gb", True), ("h100-sxm", False)])
def test_a_gather_is_tried_between_nodes_where_deepep_joins_none(runtime, gpu, ever):
    """What is not tried is never the fastest of the dispatchers that start."""
    on = {
        name: context(2, runtime, gpu=gpu, moe_dispatcher=name)
        for name in ("allgather", "alltoall", "deepep")
    }
    job, won = on["allgather"].job, set()
    for ep, etp in product((1, 2, 4, 8, 16), (1, 2, 4, 8)):
        table = LayoutTable.of([Layout(dp=16, ep=ep, etp=etp)])
        if ep * etp > 16:
            continue
        starts = not deepep_groups.broken(on["deepep"].job, table)[0]
        others = [layer_seconds(on[one], table) for one in ("alltoall", *["deepep"] * starts)]
        if layer_seconds(on["allgather"], table) < min(others):
            assert not gathers_fewer_copies.broken(job, table)[0]
            won.add((ep, etp))
    (gathered,) = (one for one in on["alltoall"].traits.settings if one.value == "allgather")
    assert ((16, 1) in won) == ever == bool(won)
    assert (gathered.refused(job) is None) == ever


def layer_seconds(on, table):
    one = blocks(on.with_table(table)).layers[0]
    return float(one.forward.total[0] + one.backward.total[0])


def test_gathered_tokens_take_memory_of_their_own():
    def columns(dispatcher, ep):
        on = context(moe_dispatcher=dispatcher)
        table = LayoutTable.of([Layout(dp=8, ep=ep)])
        return float(layer_backward_bytes(on.with_table(table), np.array([1.0 * TOKENS]))[0])

    more = columns("allgather", 8) - columns("alltoall", 8)
    assert more == 2 * TOKENS * 8 * WIDTH * 4
    assert columns("allgather", 1) == columns("alltoall", 1)


def both(nodes, seq_length):
    """Seconds of one pass in one step and in two, between nodes."""
    return [
        exchanged(context(nodes, "tutel", seq_length, moe_dispatcher=one), dp=8 * nodes, ep=64)[0]
        for one in ("alltoall", "hierarchical")
    ]


def test_two_steps_start_fewer_messages_and_move_bytes_twice():
    """As the formula has it, term by term: two exchanges a pass."""
    on = context(8, "tutel", moe_dispatcher="hierarchical")
    constants, sent = on.machine.constants, np.array([2.0 * TOKENS * WIDTH * TOP_K])
    links = group(on.machine, np.array([64]), np.array([1]))
    start = constants.alltoall_alpha
    across = start + constants.inter_node_alpha + float(links.fabric_seconds[0])
    assert start_growth(np.array([8, 64])).tolist() == [1.0, 4.5]
    flat, steps = both(8, TOKENS)
    outside = flat / 2 - 4.5 * across
    copies = 2 * float(elementwise_seconds(on.machine, 2 * sent)[0])
    inner = steps / 2 - across - outside - copies - start
    wired = exchanged(context(1, "tutel", moe_dispatcher="alltoall"), dp=8, ep=8)[0] / 2 - start
    assert inner == pytest.approx(wired, rel=0.02)  # links of groups of 8, near and far, alike


def test_two_steps_win_below_the_size_of_the_formula_and_lose_above():
    on = context(8, "tutel", moe_dispatcher="hierarchical")
    constants, links = on.machine.constants, group(on.machine, np.array([64]), np.array([1]))
    across = constants.alltoall_alpha + constants.inter_node_alpha + float(links.fabric_seconds[0])
    saved = across * 4.5 - constants.alltoall_alpha - across
    flat, steps = both(8, TOKENS)
    per_token = (steps - flat + 2 * saved) / 2 / TOKENS
    crossing = saved / per_token
    below, above = (both(8, 8 * round(crossing * share / 8)) for share in (0.9, 1.1))
    assert below[1] < below[0]
    assert above[1] > above[0]


def test_two_steps_are_one_inside_a_node():
    plain, steps = (context(1, "tutel", moe_dispatcher=x) for x in ("alltoall", "hierarchical"))
    assert exchanged(steps, dp=8, ep=8) == exchanged(plain, dp=8, ep=8)


NARROW = {"moe_dispatcher": "ncclep", "precision": "mxfp8", "gpu": "b200"}


def test_narrow_tokens_send_half_the_bytes_one_way_of_two():
    wide, narrow = context(**NARROW), context(**NARROW, moe_dispatch_dtype="mxfp8")
    (there, back), (less, less_back) = (exchanged(on, dp=8, ep=8) for on in (wide, narrow))
    start = 2 * wide.machine.constants.alltoall_alpha
    share = (1 + (1 + 1 / 32) / 2) / 2
    assert less_back - start == pytest.approx(share * (back - start))
    assert there - less == pytest.approx(back - less_back)


def test_tokens_in_fp8_have_a_scale_of_4_bytes_for_128():
    """As DeepSeek-V3 sends them, between nodes."""
    named = {"nodes": 2, "runtime": "megatron-dualpipe", "moe_dispatcher": "deepep"}
    wide, narrow = context(**named), context(**named, moe_dispatch_dtype="fp8")
    (there, back), (less, less_back) = (exchanged(on, dp=16, ep=16) for on in (wide, narrow))
    links = group(wide.machine, np.array([16]), np.array([1]))
    constants = wide.machine.constants
    start = 2 * (constants.alltoall_alpha + constants.inter_node_alpha) + 2 * float(
        links.fabric_seconds[0]
    )
    share = (1 + (1 + 4 / 128) / 2) / 2
    assert less_back - start == pytest.approx(share * (back - start))
    assert (there, less) == (back, less_back)


def test_tokens_in_8_bits_change_the_training_and_16_do_not():
    named = [
        [one.name for one in changes_training(context(**NARROW, moe_dispatch_dtype=kind).job)]
        for kind in ("mxfp8", "bf16")
    ]
    assert named == [["tokens in 8 bits"], []]


@pytest.mark.parametrize("kind", [None, "bf16"])
def test_tokens_in_16_bits_are_priced_as_before(kind):
    plain, stated = context(), context(moe_dispatch_dtype=kind)
    ours, theirs = (layer(on, dp=8, ep=8) for on in (plain, stated))
    assert ours.forward.total == theirs.forward.total
    assert ours.backward.total == theirs.backward.total
