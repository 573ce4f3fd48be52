"""Generalised tensor parallelism: parts of weights, what is gathered and scattered, by hand."""

import numpy as np
import pytest

from trainplan.costmodel.base import BYTES_FP32
from trainplan.costmodel.candidates.context import context_of
from trainplan.costmodel.comm import collective_seconds, group
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.machine import machine_of
from trainplan.costmodel.memory.states import rank_params
from trainplan.costmodel.memory.trained import held_params
from trainplan.costmodel.pipeline.ranks import ranks_of
from trainplan.costmodel.shards.by_matrix import gathered_weights, whole_layer_params, wire_bytes
from trainplan.costmodel.shards.cuts import padded_vocab
from trainplan.costmodel.step import price
from trainplan.costmodel.traffic.by_matrix import matrix_traffic
from trainplan.costmodel.traffic.sent import sent_bytes

NONE = {"dp": 0.0, "expert dp": 0.0}


@pytest.fixture(name="job", scope="module")
def _job(make_job):
    return make_job("llama3-8b", "8x8:h100-sxm", 64, 4096)


def candidates_of(job, *layouts):
    machine = machine_of(job.cluster, job.training.precision)
    return context_of(job, machine).with_table(LayoutTable.of(layouts))


def held(job, layout):
    table = LayoutTable.of([layout])
    return rank_params(ranks_of(job, table), held_params(job, table)).shared[0, 0]


def ends(job):
    """Token table and output projection each."""
    rows = padded_vocab(job.model.vocab_size, np.ones(1, dtype=np.int64))[0]
    return int(rows) * job.model.hidden_size


def matrices_of_layers(job):
    weights = sum(w.inputs * w.outputs for w in gathered_weights(job.model.kinds[0]))
    return job.model.num_hidden_layers * weights


@pytest.mark.parametrize("shards", [2, 8, 64])
def test_a_rank_holds_its_part_of_every_matrix_and_all_norms(job, shards):
    whole = held(job, Layout(dp=64))
    cut = matrices_of_layers(job) + 2 * ends(job)
    assert whole - cut == (2 * 32 + 1) * 4096
    assert held(job, Layout(dp=64, gtp=shards)) == pytest.approx(whole - cut * (1 - 1 / shards))


def test_weights_fall_by_the_shards_beyond_tensor_parallelism(job):
    plain, cut = (price(candidates_of(job, Layout(dp=64, gtp=gtp))).memory for gtp in (1, 8))
    assert plain.weights.max() / cut.weights.max() == pytest.approx(8, rel=1e-3)
    assert plain.gradients.max() / cut.gradients.max() == pytest.approx(8, rel=1e-3)
    assert cut.optimizer.max() == pytest.approx(plain.optimizer.max(), rel=1e-3)


def test_off_is_the_price_without_the_axis(job):
    layouts = [Layout(dp=64, gtp=8), Layout(tp=2, dp=32, sequence_parallel=True, zero_stage=0)]
    both, alone = price(candidates_of(job, *layouts)), price(candidates_of(job, layouts[1]))
    assert both.step_seconds[1] == alone.step_seconds[0]
    assert both.memory.used[1] == alone.memory.used[0]


def test_bytes_are_those_of_a_hand_count(job):
    layout, layers, end = Layout(dp=64, gtp=8), matrices_of_layers(job), ends(job)
    found = sent_bytes(job, layout, 0, NONE)
    # one micro batch: layers and projection both ways, the token table forward; all scattered
    assert found["gtp", "all_gather"] == 2 * (2 * layers + 3 * end)
    assert found["gtp", "reduce_scatter"] == BYTES_FP32 * (layers + 2 * end)
    full = {"recompute": "full", "recompute_method": "uniform", "recompute_num_layers": 1}
    again = sent_bytes(job, layout.model_copy(update=full), 0, NONE)
    assert again["gtp", "all_gather"] - found["gtp", "all_gather"] == 2 * layers
    some = {"recompute": "selective", "recompute_modules": ("mlp",)}
    again = sent_bytes(job, layout.model_copy(update=some), 0, NONE)
    mlp = 3 * job.model.hidden_size * job.model.intermediate_size * job.model.num_hidden_layers
    assert again["gtp", "all_gather"] - found["gtp", "all_gather"] == 2 * mlp


def test_a_layer_sends_what_its_weights_have_behind_the_product_before(job):
    on = candidates_of(job, Layout(dp=64, gtp=8))
    traffic, one = matrix_traffic(on)[0], np.ones(1, dtype=np.int64)
    links = group(on.machine, 8 * one, one)
    sizes = [w.inputs * w.outputs for w in gathered_weights(job.model)]
    gather, scatter = (
        sum(float(collective_seconds(on.machine, name, width * n, links)[0]) for n in sizes)
        for name, width in (("all_gather", 2.0), ("reduce_scatter", 4.0))
    )
    assert len(sizes) == 4, "qkv, proj, fc1, fc2"
    assert traffic.forward + traffic.forward_alone == pytest.approx(gather)
    assert traffic.backward + traffic.backward_alone == pytest.approx(gather + scatter)
    assert traffic.recompute_forward == 0
    assert 0 < traffic.forward_alone < gather, "the gather of fc1 outlasts the product of proj"


def test_context_ranks_lie_behind_those_that_cut_weights(make_job):
    job = make_job("llama3-8b", "8x8:h100-sxm", 64, 4096)
    layouts = [Layout(cp=2, dp=32, gtp=gtp) for gtp in (1, 8)]
    near, far = price(candidates_of(job, *layouts)).blocks.layers[0].forward.cp_comm
    assert near < far


@pytest.mark.parametrize(("precision", "width"), [("mxfp8", 1 + 1 / 32), ("nvfp4", 9 / 16)])
def test_low_precision_gathers_numbers_and_scales(make_job, precision, width):
    job = make_job("llama3-8b", "8x8:b200", 64, 4096, precision=precision)
    assert wire_bytes(job) == width
    wide = job.training.model_copy(update={"precision": "bf16"})
    jobs = (job, job.model_copy(update={"training": wide}))
    low, high = (matrix_traffic(candidates_of(j, Layout(dp=64, gtp=8)))[0] for j in jobs)
    assert low.forward + low.forward_alone < high.forward + high.forward_alone


def test_the_vocabulary_is_gathered_in_16_bits(make_job):
    job = make_job("llama3-8b", "8x8:b200", 64, 4096, precision="mxfp8")
    found = sent_bytes(job, Layout(dp=64, gtp=8), 0, NONE)["gtp", "all_gather"]
    assert found == 2 * wire_bytes(job) * matrices_of_layers(job) + 3 * 2 * ends(job)


def test_experts_are_cut_by_their_own_shards(make_job):
    job = make_job("small-moe", "1x8:h100-sxm", 8)
    table = LayoutTable.of([Layout(dp=8), Layout(dp=8, gtp=4), Layout(dp=8, egtp=4)])
    params = rank_params(ranks_of(job, table), held_params(job, table))
    assert params.expert[0].tolist() == [params.expert[0, 0]] * 2 + [params.expert[0, 0] / 4]
    assert params.shared[0, 1] < params.shared[0, 0] == params.shared[0, 2]
    assert whole_layer_params(job.model.kinds[-1]) > 0
