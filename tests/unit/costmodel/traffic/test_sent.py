"""Bytes that ranks hand over are those whose seconds the estimate adds up."""

import numpy as np
import pytest

from trainplan.costmodel.candidates.context import Context
from trainplan.costmodel.comm import collective_seconds, group
from trainplan.costmodel.layout.layout import Layout, stage_specs
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.machine import machine_of
from trainplan.costmodel.memory.states import rank_params
from trainplan.costmodel.memory.trained import held_params
from trainplan.costmodel.pipeline.ranks import ranks_of
from trainplan.costmodel.runtimes.megatron.core import plain
from trainplan.costmodel.runtimes.megatron_lm import MEGATRON_LM
from trainplan.costmodel.step.estimate import price
from trainplan.costmodel.traffic.data_parallel import step_traffic
from trainplan.costmodel.traffic.sent import LOSS_SUMS, sent_bytes, stages_of

TOKENS = 2048
NONE = {"dp": 0.0, "expert dp": 0.0}


@pytest.fixture(scope="module")
def job(make_job):
    return make_job("gpt3-6.7b", "1x8:h100-sxm", global_batch_size=8, precision="tf32")


def priced(job, layout):
    context = Context(job, machine_of(job.cluster, "tf32"), plain(MEGATRON_LM))
    return price(context.with_table(LayoutTable.of([layout])), merged=False)


def test_sums_over_tensor_ranks_take_the_seconds_of_the_estimate(job):
    layout = Layout(tp=8, zero_stage=0)
    blocks, machine = priced(job, layout).blocks, machine_of(job.cluster, "tf32")
    one = np.ones(1, dtype=np.int64)
    tensor = 4 * TOKENS * job.model.hidden_size
    each = collective_seconds(machine, "all_reduce", float(tensor), group(machine, 8 * one, one))
    ends = (blocks.embedding, blocks.head)
    parts = [*blocks.layers * job.model.num_hidden_layers, *ends]
    seconds = sum(float(p.forward.tp_comm[0] + p.backward.tp_comm[0]) for p in parts)
    sent = sent_bytes(job, layout, 0, NONE)["tp", "all_reduce"] / 8
    of_loss = LOSS_SUMS * 4 * TOKENS
    assert (sent - of_loss) / tensor * float(each[0]) == pytest.approx(seconds)


def test_gradients_take_the_seconds_of_the_estimate(job):
    layout = Layout(dp=8, zero_stage=0)
    found = priced(job, layout)
    params = rank_params(ranks_of(job, found.table, merged=False), held_params(job, found.table))
    count = float(params.shared[0, 0])
    sent = sent_bytes(job, layout, 0, {**NONE, "dp": count})["dp", "all_reduce"]
    machine, one = found.machine, np.ones(1, dtype=np.int64)
    seconds = collective_seconds(machine, "all_reduce", float(sent), group(machine, 8 * one, one))
    assert step_traffic(found, params).reduce[0, 0] == pytest.approx(float(seconds[0]))


def test_sequence_parallelism_gathers_the_input_of_a_product_once_more(job):
    layout = Layout(tp=8, sequence_parallel=True, zero_stage=0)
    found = sent_bytes(job, layout, 0, NONE)
    tensor, layers = 4 * TOKENS * job.model.hidden_size, job.model.num_hidden_layers
    # two products cut by columns and two by rows: forward a gather and a scatter each half,
    # backward two gathers and a scatter; the head alike once, the learned positions gather
    assert found["tp", "all_gather"] == 8 * tensor * (6 * layers + 2 + 1)
    assert found["tp", "reduce_scatter"] == 8 * tensor * (4 * layers + 1)


def test_pipeline_ranks_send_forward_and_backward_but_not_beyond_the_ends(job):
    layout = Layout(pp=4, vpp=2, schedule="interleaved", zero_stage=0)
    tensor = 4 * TOKENS * job.model.hidden_size
    messages = [sent_bytes(job, layout, rank, NONE)["pp", "send"] / tensor / 8 for rank in range(4)]
    assert messages == [3, 4, 4, 3]
    cut = layout.model_copy(update={"tp": 2, "sequence_parallel": True})
    assert sent_bytes(job, cut, 1, NONE)["pp", "send"] / tensor / 8 == 2


def test_sharded_optimizers_scatter_gradients_and_gather_weights(job):
    found = sent_bytes(job, Layout(dp=8), 0, {"dp": 1000.0, "expert dp": 0.0})
    assert found["dp", "reduce_scatter"] == found["dp", "all_gather"] == 4000


def test_recomputed_layers_repeat_the_traffic_of_their_forward_pass(job):
    plain = Layout(tp=8, zero_stage=0)
    again = plain.model_copy(
        update={"recompute": "full", "recompute_method": "block", "recompute_num_layers": 3}
    )
    tensor = 4 * TOKENS * job.model.hidden_size
    more = sent_bytes(job, again, 0, NONE) - sent_bytes(job, plain, 0, NONE)
    assert more == {("tp", "all_reduce"): 8 * 3 * 2 * tensor}


def test_tokens_go_to_their_experts_and_back_in_both_passes(make_job):
    job = make_job("mixtral-8x7b", "1x8:h100-sxm", global_batch_size=8, precision="tf32")
    layers, hidden = job.model.num_hidden_layers, job.model.hidden_size
    found = sent_bytes(job, Layout(dp=8, ep=8), 0, NONE)
    rows = TOKENS * 2
    assert found["ep", "all_to_all"] == layers * 2 * rows * (2 * 4 * hidden + 4)
    assert found["etp ep", "all_gather"] == layers * 8 * 8 * 8
    folded = sent_bytes(job, Layout(tp=2, dp=4, ep=4, etp=2, sequence_parallel=True), 0, NONE)
    assert folded["ep", "all_to_all"] == found["ep", "all_to_all"]  # half of the rows, twice
    assert folded["etp", "all_gather"] == layers * 2 * rows * (2 * 4 * hidden + 4)
    assert folded["etp", "reduce_scatter"] == folded["etp", "all_gather"]


def test_the_gate_of_shared_experts_is_summed_over_tensor_ranks_once_a_step(make_job):
    job = make_job("mixtral-8x7b", "1x8:h100-sxm", global_batch_size=8, precision="tf32")
    moe = job.model.moe.model_copy(update={"shared_expert_gate": True})
    gated = job.model_copy(update={"model": job.model.model_copy(update={"moe": moe})})
    layout = Layout(tp=8, ep=8, sequence_parallel=True, zero_stage=0)
    more = sent_bytes(gated, layout, 0, NONE) - sent_bytes(job, layout, 0, NONE)
    hidden, layers = job.model.hidden_size, job.model.num_hidden_layers
    assert more == {("tp", "all_reduce"): 4 * layers * hidden}


def test_virtual_stages_go_round_the_ranks(job):
    counts = [3, 4, 5, 20]
    layout = Layout(pp=2, vpp=2, schedule="interleaved", stages=stage_specs(counts), zero_stage=0)
    first, last = (stages_of(job, layout, rank) for rank in range(2))
    assert [len(stage.moe_layers) for stage in (*first, *last)] == [3, 5, 4, 20]
    assert [stage.first for stage in first] == [True, False]
    assert [stage.last for stage in last] == [False, True]
