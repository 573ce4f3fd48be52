"""Bytes of one rank against hand-made sums and published formulas."""

import numpy as np
import pytest

from trainplan.costmodel.candidates.context import context_of
from trainplan.costmodel.job.job import RuntimeOptions
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.machine import machine_of
from trainplan.costmodel.memory.states import block_params
from trainplan.costmodel.model.params import num_parameters
from trainplan.costmodel.step import price


def memory_of(job, layout):
    machine = machine_of(job.cluster, job.training.precision)
    table = LayoutTable.of([layout])
    return price(context_of(job, machine).with_table(table), merged=False).memory


@pytest.fixture(scope="module")
def llama(make_job):
    return make_job("llama3-70b", "8x8:h100-sxm", seq_length=8192, global_batch_size=128)


def test_states_of_llama3_70b_on_one_rank_are_sixteen_bytes_a_parameter(llama):
    """Weights 2, gradients 4 (fp32), master weight and moments 12. Vocabulary needs no padding
    at tp=1 (128256 = 128 x 1002)."""
    memory = memory_of(llama, Layout(dp=64, zero_stage=0))
    count = num_parameters(llama.model)
    assert count == 70_553_706_496
    for term, width in (("weights", 2), ("gradients", 4), ("optimizer", 12)):
        assert getattr(memory, term)[0, 0] == pytest.approx(width * count, rel=1e-12)


@pytest.mark.parametrize(
    ("zero_stage", "per_parameter"),
    [
        (0, (2, 4, 12)),
        (1, (2, 4, 12 / 64)),
        (2, (2, 4 / 64, 12 / 64)),
        (3, (2 / 64, 4 / 64, 12 / 64)),
    ],
)
def test_zero_shards_one_state_after_the_other(llama, zero_stage, per_parameter):
    """Source: arXiv:1910.02054, figure 1, with fp32 gradients."""
    memory = memory_of(llama, Layout(dp=64, zero_stage=zero_stage))
    count = num_parameters(llama.model)
    found = (memory.weights[0, 0], memory.gradients[0, 0], memory.optimizer[0, 0])
    assert found == pytest.approx([width * count for width in per_parameter], rel=1e-12)


def test_a_middle_rank_of_llama3_70b_holds_its_layers_over_tp(llama):
    """One layer: 855,654,400 weights of which 16,384 (norms) are not cut; 20 layers, tp=8."""
    layer = (855_654_400 - 16_384) / 8 + 16_384
    memory = memory_of(llama, Layout(tp=8, pp=4, dp=2, sequence_parallel=True))
    assert memory.weights[1, 0] == pytest.approx(2 * 20 * layer, rel=1e-9)
    assert memory.optimizer[1, 0] == pytest.approx(12 * 20 * layer / 2, rel=1e-9)


def test_activations_of_gpt3_follow_the_published_formula(make_job):
    """s b h 34 / t a layer with sequence parallelism, less what flash attention and no dropout do
    without: two 1-byte masks, and 4-byte log-sum-exp for each head and token comes back.

    Source: Korthikanti et al., arXiv:2205.05198, table 2. That table keeps the input of GELU, its
    output, both norm inputs and outputs, QKV and the core's output: 32 s b h bytes.
    """
    job = make_job("gpt3-175b", "8x8:a100-sxm-80gb", global_batch_size=8)
    memory = memory_of(job, Layout(tp=8, pp=8, sequence_parallel=True))
    model, tokens = job.model, 2048
    layer = tokens * (32 * model.hidden_size + 4 * model.num_attention_heads) / 8
    assert memory.activations[0, 0] == pytest.approx(8 * 12 * layer, rel=1e-9)


def test_full_recomputation_keeps_one_input_a_layer(make_job):
    """2 s b h a layer. Source: arXiv:2205.05198, table 2, last row."""
    job = make_job("gpt3-175b", "8x8:a100-sxm-80gb", global_batch_size=8)
    layout = Layout(
        tp=8, pp=8, recompute="full", recompute_method="uniform", recompute_num_layers=1
    )
    memory = memory_of(job, layout)
    assert memory.activations[0, 0] == 8 * 12 * 2 * 2048 * job.model.hidden_size


def test_experts_are_sharded_over_their_own_data_parallelism(make_job):
    """ep=8 of dp=16 leaves two replicas of every expert. Source: arXiv:2504.14960, section 3."""
    job = make_job("mixtral-8x7b", "2x8:h100-sxm", global_batch_size=64)
    memory = memory_of(job, Layout(dp=16, ep=8, zero_stage=1))
    model = job.model
    experts = 32 * 3 * model.hidden_size * model.moe.moe_intermediate_size
    others = num_parameters(model) - 8 * experts
    assert memory.optimizer[0, 0] == pytest.approx(12 * (experts / 2 + others / 16), rel=1e-9)


def test_used_memory_is_the_fullest_rank_with_what_lies_outside_the_allocator(llama):
    memory = memory_of(llama, Layout(tp=8, pp=4, dp=2))
    assert memory.used[0] > memory.reserved.max() > memory.allocated.max()
    assert np.isfinite(memory.used).all()


@pytest.mark.parametrize(("tp", "pp"), [(1, 1), (2, 1), (2, 2)])
def test_a_prediction_module_projects_two_hidden_states_and_holds_a_layer(make_job, tp, pp):
    """2 h x h weights cut over tp and three norms beside a layer; the last of several stages has
    the token table again. Source: DeepSeek-V3, arXiv:2412.19437, section 2.2, equation 21."""
    job = make_job("small-moe", "1x8:h100-sxm")
    params = block_params(job, LayoutTable.of([Layout(tp=tp, pp=pp)]))
    table = (pp > 1) * 32_000 * 1024 / tp
    norms = 3 * 1024
    assert params.mtp - params.layers[-1] == 2 * 1024 * 1024 / tp + norms + table


@pytest.mark.parametrize(("offloaded", "share"), [(0, 1.0), (2, 3 / 5), (4, 1 / 5), (9, 0.0)])
def test_layers_whose_activations_are_on_the_host_keep_none(make_job, offloaded, share):
    """One dense layer and four with experts on the only rank: of five, some leave the device."""
    job = make_job("small-moe", "1x8:h100-sxm")
    options = RuntimeOptions(offload_activation_layers=offloaded or None)
    whole, left = (
        memory_of(job.model_copy(update={"options": some}), Layout(dp=8)).activations[0, 0]
        for some in (RuntimeOptions(), options)
    )
    assert left == pytest.approx(share * whole)


@pytest.mark.parametrize(("zero_stage", "shards"), [(1, 1), (3, 8)])
def test_layers_keep_two_copies_of_their_weights_in_fp8_and_ends_one(make_job, zero_stage, shards):
    """bf16 and the two fp8 copies of a product's weight, which token table and head have not."""
    job = make_job("small-dense", "1x8:h100-sxm", precision="fp8")
    memory = memory_of(job, Layout(dp=8, zero_stage=zero_stage))
    ends = 2 * 32_000 * 1024 + 1024
    layers = num_parameters(job.model) - ends
    assert memory.weights[0, 0] == pytest.approx((4 * layers + 2 * ends) / shards, rel=1e-9)


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_a_rank_uses_what_is_allocated_a_twentieth_more_and_what_lies_outside(llama, share):
    """The allocator reserves 5 % more; an offloaded share of the optimizer leaves the device."""
    memory = memory_of(llama, Layout(tp=8, pp=4, dp=2))
    states = memory.weights + memory.gradients + (1 - share) * memory.optimizer
    moment = memory.transients + memory.in_transit
    whole, least = states + memory.activations + moment, states + memory.transients
    outside = memory.outside_bytes
    assert memory.used_with_offload(share) == pytest.approx(1.05 * whole + outside)
    assert memory.least_used(share) == pytest.approx(1.05 * least.max(axis=0) + outside)
    assert share > 0 or memory.used == memory.used_with_offload(0.0).max(axis=0)
