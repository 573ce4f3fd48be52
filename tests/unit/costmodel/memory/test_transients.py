"""Bytes that exist for a moment, by hand: logits, a layer's gradients, gathered weights."""

from dataclasses import replace

import numpy as np
import pytest

from trainplan.costmodel.blocks.attention.activations import core_bytes, saved_bytes
from trainplan.costmodel.blocks.parts import shapes
from trainplan.costmodel.blocks.rows import row_blocks
from trainplan.costmodel.candidates.context import Candidates, Context
from trainplan.costmodel.job.job import RuntimeOptions
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.machine import machine_of
from trainplan.costmodel.memory.rank import backward_bytes
from trainplan.costmodel.memory.states import RankParams, block_params
from trainplan.costmodel.memory.transients import (
    graph_pool_bytes,
    head_bytes,
    layer_backward_bytes,
)
from trainplan.costmodel.memory.weight_buffers import dummy_gradient_bytes, sharded_unit_bytes
from trainplan.costmodel.pipeline.ranks import ranks_of
from trainplan.costmodel.runtimes.registry import traits_of
from trainplan.costmodel.step.estimate import price

TOKENS = np.array([2048.0])


def given(make_job, model="small-dense", layout=None, **training):
    """A job of 2048 tokens, what its runtime does, and one layout."""
    job = make_job(model, "1x8:h100-sxm", **training)
    return job, traits_of(job), LayoutTable.of([layout or Layout(dp=8, micro_batch_size=1)])


def candidates_of(job, traits, table):
    return Candidates(job, machine_of(job.cluster, job.training.precision), traits, table)


@pytest.mark.parametrize("zero_stage", [1, 2, 3])
@pytest.mark.parametrize("ends", [0.0, 30e6])
def test_zero_2_holds_whole_gradients_of_a_layer_and_zero_3_two_gathered_layers_too(
    make_job, zero_stage, ends
):
    """fp32 gradients; 16-bit weights of the running layer, of the prefetched one and of the ends.

    Source: Zhao et al., arXiv:2304.11277, section 4.2.
    """
    layout = Layout(dp=8, zero_stage=zero_stage)
    job, traits, table = given(make_job, layout=layout)
    params = block_params(job, table)
    layer = params.layers[0][0]
    held = RankParams(np.full((1, 1), 6 * layer + ends), np.zeros((1, 1)), has_experts=False)
    traits = replace(traits, gradients=replace(traits.gradients, accumulated_bytes=4))
    found = sharded_unit_bytes(
        candidates_of(job, traits, table),
        params,
        held=held,
        ends=ends * np.ones(1),
    )
    gradients = 4 * layer * (zero_stage >= 2)
    weights = 2 * (2 * layer + ends) * (zero_stage == 3)
    assert found == pytest.approx(gradients + weights)


def test_a_rank_of_one_layer_gathers_no_second_one(make_job):
    job, traits, table = given(make_job, layout=Layout(dp=8, zero_stage=3))
    params = block_params(job, table)
    held = RankParams(params.layers[0][None], np.zeros((1, 1)), has_experts=False)
    traits = replace(traits, gradients=replace(traits.gradients, accumulated_bytes=4))
    found = sharded_unit_bytes(
        candidates_of(job, traits, table), params, held=held, ends=np.zeros(1)
    )
    assert found[0, 0] == pytest.approx((4 + 2) * params.layers[0][0])


@pytest.mark.parametrize("ep", [1, 4])
def test_experts_of_a_layer_share_one_dummy_gradient(make_job, ep):
    """Experts' weights have one shape: 3 x 1024 x 512 in 2 bytes, however many a rank has."""
    job, _, table = given(make_job, "small-moe", Layout(dp=8, ep=ep))
    params = block_params(job, table)
    rest = np.maximum(params.layers[0], params.layers[-1])
    assert dummy_gradient_bytes(job, table, params) == pytest.approx(2 * (rest + 3 * 1024 * 512))


@pytest.mark.parametrize("tp", [1, 2])
def test_the_loss_holds_a_row_of_logits_for_every_token(make_job, tp):
    """32,000 words over tp, at so many bytes each as the runtime says, and the hidden state."""
    job, traits, table = given(make_job, layout=Layout(tp=tp, dp=8 // tp))
    traits = replace(traits, kernels=replace(traits.kernels, head_bytes_per_logit=6))
    more = replace(traits, kernels=replace(traits.kernels, head_bytes_per_logit=7))
    found, other = (head_bytes(candidates_of(job, one, table), TOKENS) for one in (traits, more))
    assert other - found == 2048 * 32_000 / tp
    assert found >= 2048 * (6 * 32_000 / tp + 2 * 1024)


@pytest.mark.parametrize(
    ("model", "layout", "columns"),
    [
        ("small-dense", Layout(dp=8), 2 * 1024 + 1024),
        ("small-dense", Layout(tp=2, dp=4, sequence_parallel=False), 2 * 1024 / 2 + 1024),
        ("small-dense", Layout(tp=2, dp=4, sequence_parallel=True), 2 * 1024 / 2 + 2 * 1024),
        # four experts a token, each with gate, up projection and input
        ("small-moe", Layout(dp=8), 4 * (2 * 512 + 1024) + 1024),
        (
            "small-moe",
            Layout(tp=2, dp=4, sequence_parallel=True),
            4 / 2 * (2 * 512 + 1024) + 2 * 1024,
        ),
    ],
)
def test_the_largest_gradient_of_a_layer_is_that_of_its_first_product(
    make_job, model, layout, columns
):
    """Beside that of the layer's output and, where the sequence is cut, the gathered input."""
    job, traits, table = given(make_job, model, layout)
    narrow = job.model.model_copy(update={"intermediate_size": 1024})
    job = job.model_copy(update={"model": narrow})
    found = layer_backward_bytes(candidates_of(job, traits, table), TOKENS)
    assert found == pytest.approx(2 * 2048 * columns)


@pytest.mark.parametrize("width", [1024, 65_536])
def test_a_group_of_recomputed_layers_lives_again_with_the_larger_kind(make_job, width):
    """One layer more at once: of dense layers and those with experts, the one that keeps more."""
    job, traits, _ = given(make_job, "small-moe")
    job = job.model_copy(
        update={"model": job.model.model_copy(update={"intermediate_size": width})}
    )
    found, kept = [], []
    for number in (1, 2):
        layout = Layout(
            dp=8, recompute="full", recompute_method="uniform", recompute_num_layers=number
        )
        table = LayoutTable.of([layout])
        candidates = candidates_of(job, traits, table)
        blocks = row_blocks(candidates)
        ranks = ranks_of(job, table)
        found.append(backward_bytes(candidates, blocks, ranks=ranks, tokens=TOKENS)[0])
        kept = [blocks.layers[0].saved_bytes[0], blocks.layers[-1].saved_bytes[0]]
    assert found[1] - found[0] == pytest.approx(max(kept))
    assert kept[0] != kept[1]


@pytest.mark.parametrize(
    ("precision", "low_precision", "rows"),
    [("bf16", "cached", 4), ("fp8", "cached", 3), ("fp8", "primary", 3), ("fp8", "cast", 4)],
)
def test_attention_keeps_four_hidden_states_or_three_where_inputs_are_kept_cast(
    make_job, precision, low_precision, rows
):
    """Layer input, two outputs of norms and the residual between; two inputs of 1 byte in fp8.

    Queries, output, keys and values of heads of 64, and 4 bytes of log-sum-exp for each head.
    Source: arXiv:2205.05198, section 4.1; Dao, arXiv:2307.08691, section 3.1.
    """
    job, traits, table = given(make_job, precision=precision)
    traits = replace(traits, footprint=replace(traits.footprint, low_precision=low_precision))
    some = shapes(candidates_of(job, traits, table))
    assert core_bytes(some) == 2048 * 16 * 4
    heads = 2 * (2 * 16 + 2 * 4) * 64 + 4 * 16
    assert saved_bytes(some) == pytest.approx(2048 * (rows * 2 * 1024 + heads))


def test_what_was_recomputed_lives_again_while_its_layer_runs_backward(make_job):
    """The parts of the MLP, which selective recomputation drops, beside the layer's gradients."""
    found = []
    for modules in ((), ("mlp",)):
        kind = "selective" if modules else "none"
        job, traits, table = given(
            make_job, layout=Layout(dp=8, recompute=kind, recompute_modules=modules)
        )
        candidates = candidates_of(job, traits, table)
        blocks = row_blocks(candidates)
        ranks = ranks_of(job, table)
        found.append(backward_bytes(candidates, blocks, ranks=ranks, tokens=TOKENS)[0])
    assert found[1] - found[0] == pytest.approx(2 * 2048 * 3 * 4096)


@pytest.mark.parametrize("sequence_parallel", [False, True])
def test_where_all_forward_passes_come_first_every_loss_waits_for_its_backward_pass(
    make_job, sequence_parallel
):
    """15 of 16 micro batches beside the one whose loss runs, on the last of four ranks alone."""
    degrees = {"tp": 2, "pp": 4, "zero_stage": 0, "sequence_parallel": sequence_parallel}
    plain, first = (Layout(schedule=name, **degrees) for name in ("1f1b", "gpipe"))
    job = make_job("small-dense", "1x8:h100-sxm", global_batch_size=16)
    job = job.model_copy(update={"runtime": "torchtitan"})
    table = LayoutTable.of([plain, first])
    memory = price(candidates_of(job, traits_of(job), table), merged=False).memory
    log_softmax = 4 * job.model.vocab_size / 2
    norm = 2 * job.model.hidden_size * (1 + (1 / 2 if sequence_parallel else 1))
    more = memory.transients[:, 1] - memory.transients[:, 0]
    shards = 2 if sequence_parallel else 1
    in_flight = ranks_of(job, table, merged=False).received_held  # activations count their buffers
    more += 2 * 2048 * job.model.hidden_size / shards * (in_flight[:, 1] - in_flight[:, 0])
    assert more.tolist() == [0, 0, 0, 15 * 2048 * (log_softmax + norm)]


def with_graph(make_job, graph, model="qwen3-30b-a3b", **options):
    job = make_job(model, "1x8:b200", precision="mxfp8").model_copy(
        update={"runtime": "megatron-bridge"}
    )
    options = {"cuda_graph": graph, "moe_dispatcher": "hybridep", **options}
    job = job.model_copy(update={"options": RuntimeOptions(**options)})
    table = LayoutTable.of([Layout(dp=8, ep=8, zero_stage=1)])
    return candidates_of(job, traits_of(job), table)


def test_graphs_of_layers_hold_temporaries_of_attention_and_gradients_of_their_ends(make_job):
    """Of 32 heads and 4 of keys, 128 wide, each read for all heads; and two of the hidden state."""
    assert graph_pool_bytes(with_graph(make_job, "none"), TOKENS) == 0
    assert graph_pool_bytes(with_graph(make_job, "full_iteration"), TOKENS) == 0
    found = graph_pool_bytes(with_graph(make_job, "partial"), TOKENS)
    queries, hidden = 32 * 128, 2048
    columns = queries + 3 * queries + 2 * queries + 2 * queries * 4 / 32 + 2 * hidden
    assert found == pytest.approx(2 * TOKENS * columns)


def test_one_graph_of_a_step_with_experts_has_pages_and_buffers_of_a_fixed_size(make_job):
    """A stash of 1.2 times the rows; of 1.5 times those of a layer, and of two that are back."""
    plain, whole = (with_graph(make_job, graph) for graph in ("none", "full_iteration"))
    kept = [
        price(Context(one.job, one.machine, one.traits).with_table(one.table)).memory
        for one in (plain, whole)
    ]
    rows, width, hidden = 8 * 2048, 768, 2048
    cast = 1 + 1 / 32
    row = cast * hidden + 0.75 * 3 * 2 * width  # of what two products and the activation read
    pages = 48 * rows * row * 0.2
    assert kept[1].activations - kept[0].activations == pytest.approx(pages, rel=0.03)
    layer = [layer_backward_bytes(one, TOKENS) for one in (plain, whole)]
    inside = rows * 2 * (2 * width + hidden)
    back = 2 * rows * (cast * hidden + (2 * 2 + cast) * width)
    assert layer[1] - layer[0] == pytest.approx(0.5 * inside + 1.5 * back, rel=1e-6)
