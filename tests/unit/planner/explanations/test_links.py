"""Bytes that each axis puts on the links of a node and on the network."""

import pytest

from trainplan.costmodel.job.job import RuntimeOptions
from trainplan.costmodel.layout.layout import Layout, ShardSpec
from trainplan.costmodel.model.params import num_parameters
from trainplan.planner.explanations.links import axis_links

TOKENS, HIDDEN = 2048, 1024
"""Of a sequence of the job, and of the small models."""


def links(job, **layout):
    return {one.axis: one for one in axis_links(job, Layout(**layout))}


@pytest.fixture
def job(make_job):
    return make_job("small-dense", "2x8:h100-sxm", 32, TOKENS)


def test_a_group_that_fits_a_node_stays_in_it(job):
    found = links(job, tp=4, cp=2, dp=2)
    assert set(found) == {"tp", "cp", "dp"}
    assert (found["tp"].size, found["tp"].stride, found["tp"].inside) == (4, 1, 4)
    assert (found["cp"].size, found["cp"].stride, found["cp"].domains) == (2, 4, 1)
    assert found["tp"].outside_bytes == found["cp"].outside_bytes == 0
    assert (found["dp"].size, found["dp"].stride, found["dp"].inside) == (4, 4, 2)
    assert found["dp"].domains == 2


def test_tensor_ranks_gather_and_scatter_activations_of_every_layer(job):
    found = links(job, tp=8, dp=2, sequence_parallel=True)["tp"]
    activation = 2 * TOKENS * HIDDEN
    microbatches = 16
    forward, backward = 2 * 2, 2 * 3
    per_microbatch = job.model.num_hidden_layers * (forward + backward) + 2 + 3
    sums = 2 * 3 * 4 * TOKENS
    expected = 7 / 8 * microbatches * (per_microbatch * activation + sums)
    norms = 2 * 7 / 8 * 4 * (2 * job.model.num_hidden_layers + 1) * HIDDEN
    assert found.inside_bytes == pytest.approx(expected + norms)


def test_context_ranks_pass_keys_and_values_round_a_ring(job):
    whole = links(job, cp=4, dp=4)["cp"]
    model = job.model
    keys = 2 * (TOKENS // 4) * 2 * model.num_key_value_heads * model.head_dim
    assert whole.inside_bytes == 3 * keys * 3 * model.num_hidden_layers * 8
    torn = links(job, cp=16)["cp"]
    assert torn.inside_bytes == 7 * torn.outside_bytes
    gathered = job.model_copy(update={"options": RuntimeOptions(cp_comm_type="all_gather")})
    assert links(gathered, cp=4, dp=4)["cp"].inside_bytes == pytest.approx(whole.inside_bytes)


def test_zero_plus_plus_sends_a_quarter_of_zero_3_between_nodes(make_job):
    """Wang et al., arXiv:2306.10013, table 1: 3 M of every node, and 0.75 M, M all weights."""
    job = make_job("llama2-7b", "24x8:h100-sxm", 192, TOKENS, precision="fp16")
    whole = 2 * num_parameters(job.model)

    def between_nodes(layout, **options):
        changed = {"runtime": "deepspeed", "options": RuntimeOptions(**options)}
        found = links(job.model_copy(update=changed), dp=192, zero_stage=3, **layout)
        return {name: 8 * one.outside_bytes / whole for name, one in found.items()}

    ring, nodes = 191 / 192, 23 / 24
    assert between_nodes({}) == pytest.approx({"dp": 3 * ring})
    assert between_nodes({}, weight_bits=8) == pytest.approx({"dp": (0.5 + 0.5 + 1) * ring})
    assert between_nodes({"hpz": 8}) == pytest.approx({"dp": 2 * ring, "hpz": 0})
    quarter = {"dp of nodes": 0.25 * nodes, "dp in nodes": 0}
    assert between_nodes({}, gradient_bits=4) == pytest.approx({"dp": 2 * ring, **quarter})
    assert between_nodes({"hpz": 8}, weight_bits=8, gradient_bits=4) == pytest.approx(
        {"dp": 0.5 * ring, "hpz": 0, **quarter}
    )


def test_bytes_of_groups_by_state_are_not_counted_as_over_all_ranks(make_job):
    job = make_job("llama2-7b", "4x8:mi250x", 32, TOKENS).model_copy(
        update={"runtime": "zero-topo"}
    )
    shard = ShardSpec(weights=2, gradients=8, optimizer=32)
    found = links(job, dp=32, shard=shard)["dp"]
    assert (found.size, found.inside_bytes, found.outside_bytes) == (32, None, None)


def test_stages_send_activations_and_gradients_to_their_neighbours(job):
    activation = 2 * TOKENS * HIDDEN
    across = links(job, pp=2, dp=8)["pp"]
    assert (across.inside_bytes, across.outside_bytes) == (0, 4 * activation)
    both = links(job, pp=4, tp=4)["pp"]
    assert both.inside_bytes == both.outside_bytes == 32 * 2 * activation / 2


@pytest.mark.parametrize(
    ("stage", "gradients", "weights"), [(0, 2 * 4, 0), (1, 4, 2), (2, 2 * 4, 2)]
)
def test_replicas_send_gradients_and_weights_by_their_stage(job, stage, gradients, weights):
    """All-reduce twice a gradient of 4 bytes; ZeRO-2 reduces those of both micro batches."""
    found = links(job, dp=16, zero_stage=stage)["dp"]
    count = num_parameters(job.model)
    assert found.inside_bytes == pytest.approx(15 / 16 * (gradients + weights) * count)
    assert found.outside_bytes == pytest.approx(found.inside_bytes / 8)


def test_zero_3_gathers_weights_in_both_passes_and_what_lies_at_the_root_in_one(job):
    model, count = job.model, num_parameters(job.model)
    sent = {
        name: links(job.model_copy(update={"runtime": name}), dp=16, zero_stage=3)["dp"]
        for name in ("fsdp2", "torchtitan")
    }
    assert sent["fsdp2"].inside_bytes == pytest.approx(15 / 16 * 2 * (2 + 2 + 4) * count)
    root = 2 * model.vocab_size * HIDDEN + HIDDEN
    kept = sent["fsdp2"].inside_bytes - sent["torchtitan"].inside_bytes
    assert kept == pytest.approx(15 / 16 * 2 * 2 * root)


def test_experts_exchange_most_of_their_tokens_over_the_network(make_job):
    job = make_job("small-moe", "2x8:h100-sxm", 32, TOKENS)
    found = links(job, dp=16, ep=16)
    assert found["ep"].outside_bytes == pytest.approx(found["ep"].inside_bytes * 8 / 7)
    assert "expert dp" not in found
    rows = TOKENS * 4
    exchange = 2 * 2 * HIDDEN * rows + 4 * rows
    moe_layers = job.model.num_hidden_layers - 1
    together = found["ep"].inside_bytes + found["ep"].outside_bytes
    assert together >= 15 / 16 * 2 * 2 * exchange * moe_layers


@pytest.mark.parametrize(
    ("changes", "layout", "axis"),
    [
        ({"runtime": "torchtitan"}, {"tp": 8, "dp": 2, "sequence_parallel": True}, "tp"),
        ({"options": RuntimeOptions(moe_dispatcher="deepep")}, {"dp": 16, "ep": 16}, "ep"),
        ({}, {"tp": 8, "dp": 2, "sequence_parallel": True}, "tp"),
    ],
)
def test_what_is_not_counted_is_left_open(make_job, changes, layout, axis):
    job = make_job("small-moe", "2x8:h100-sxm", 32, TOKENS).model_copy(update=changes)
    found = links(job, **layout)[axis]
    assert found.inside_bytes is found.outside_bytes is None


def test_one_gpu_talks_to_nobody(make_job):
    assert axis_links(make_job("small-dense", "1x1:h100-sxm"), Layout()) == ()
