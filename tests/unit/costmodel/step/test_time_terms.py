"""Terms of the step time that depend on what a runtime does."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainplan.costmodel.architecture.layers import MlaSpec
from trainplan.costmodel.blocks.attention.key_values import shared_heads
from trainplan.costmodel.blocks.parts import clock_factor, pass_seconds, shapes, traffic_left
from trainplan.costmodel.candidates.context import context_of
from trainplan.costmodel.comm import collective_seconds, group
from trainplan.costmodel.hardware.cluster import ClusterSpec, NicSpec, NodeGroup, parse_cluster
from trainplan.costmodel.job.job import Job, RuntimeOptions, TrainingSpec
from trainplan.costmodel.kernels import elementwise_seconds
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.machine import machine_of
from trainplan.costmodel.presets.presets import preset
from trainplan.costmodel.routing.choices import distinct_destinations
from trainplan.costmodel.step import explicit, price

UNTIED = {"tie_word_embeddings": False}
MACHINE = machine_of(parse_cluster("4x8:h100-sxm"), "bf16")


def job_of(model, cluster, runtime="megatron-lm", precision="bf16", **options):
    return Job(
        model=preset(model),
        training=TrainingSpec(seq_length=4096, global_batch_size=256, precision=precision),
        cluster=parse_cluster(cluster),
        runtime=runtime,
        options=RuntimeOptions(**options),
    )


def estimate(job, **layout):
    machine = machine_of(job.cluster, job.training.precision)
    (found,) = explicit(context_of(job, machine).with_table(LayoutTable.of([Layout(**layout)])))
    return found


def test_products_run_slower_the_more_of_the_time_they_run():
    machine = machine_of(parse_cluster("1x8:h100-sxm"), "bf16")
    one = np.ones(4)
    passes = pass_seconds(4, gemm=one, tp_comm=np.array([0.0, 0.2, 0.5, 1.0]))
    factors = clock_factor(machine, passes, 0.0)
    assert (np.diff(factors) < 0).all()
    assert factors[0] > 1 > factors[-1]


@pytest.mark.parametrize("top_k", [1, 2, 8])
def test_a_token_goes_to_at_most_top_k_distinct_ranks(top_k):
    places = np.array([1.0, 2.0, 8.0, 1e6])
    distinct = distinct_destinations(places, top_k, np.ones(4))
    assert distinct[0] == pytest.approx(1)
    assert (distinct <= np.minimum(places, top_k) + 1e-9).all()
    assert distinct[-1] == pytest.approx(top_k, rel=1e-4)


def test_a_dispatcher_that_sends_a_token_once_is_faster():
    layout = {"dp": 64, "ep": 64}
    job = "deepseek-v3", "8x8:h100-sxm"
    plain = estimate(job_of(*job), **layout).terms.ep_comm
    once = estimate(job_of(*job, moe_dispatcher="deepep"), **layout).terms.ep_comm
    assert once < 0.8 * plain


def test_cut_experts_are_sent_no_token_twice_by_a_dispatcher_that_sends_it_once():
    """Eight experts on two ranks: most tokens go to both, once to each of their tensor ranks."""
    job = "deepseek-v3", "1x8:h100-sxm"
    cut, whole = ({"dp": 8, "ep": ep, "etp": 8 // ep, "micro_batch_size": 4} for ep in (2, 8))
    plain, once = (
        estimate(job_of(*job, moe_dispatcher=name), **cut).terms.ep_comm
        for name in ("alltoall", "deepep")
    )
    assert once < 0.4 * plain
    assert once > estimate(job_of(*job, moe_dispatcher="deepep"), **whole).terms.ep_comm


def waits(cluster, micro_batch_size=1):
    layout = {"dp": 8, "ep": 8, "micro_batch_size": micro_batch_size}
    return [
        estimate(job_of("qwen3-30b-a3b", cluster, cuda_graph=graph), **layout).terms.host
        for graph in ("none", "partial", "full_iteration")
    ]


def test_a_graph_of_the_whole_step_leaves_no_waiting_for_the_host():
    none, partial, whole = waits("1x8:b200")
    assert none > partial > whole == 0


def test_a_partial_graph_leaves_the_wait_for_sizes_where_the_gpu_is_slower_than_launches():
    none, partial, whole = waits("1x8:h100-sxm", micro_batch_size=4)
    assert none == partial > whole == 0


def test_unfused_attention_is_slower_and_keeps_the_scores():
    job, layout = ("llama3-8b", "1x8:h100-sxm"), {"tp": 8, "sequence_parallel": True}
    fused, unfused = (
        estimate(job_of(*job, attention=kind), **layout) for kind in ("flash", "unfused")
    )
    assert unfused.terms.attention > 1.5 * fused.terms.attention
    assert unfused.memory.peak_allocated_bytes > fused.memory.peak_allocated_bytes


def test_overlapped_tensor_parallel_traffic_costs_less_but_not_nothing():
    job, layout = ("llama3-8b", "1x8:h100-sxm"), {"tp": 8, "sequence_parallel": True}
    plain, alongside = (
        estimate(job_of(*job, overlap_tp_comm=on), **layout).terms.tp_comm for on in (False, True)
    )
    assert 0.2 * plain < alongside < 0.8 * plain


def test_products_hide_no_more_tensor_parallel_traffic_than_they_last():
    """Over four nodes traffic takes five times as long as products, inside one as long.

    Wang et al., Domino, arXiv:2409.15241, abstract: up to 1.3 times as fast.
    """
    gains = {}
    for tp, nodes in ((8, 1), (32, 4)):
        job = "gpt3-6.7b", f"{nodes}x8:h100-sxm"
        layout = {"tp": tp, "sequence_parallel": True, "micro_batch_size": 4}
        plain, hidden = (
            estimate(job_of(*job, overlap_tp_comm=on), **layout) for on in (False, True)
        )
        assert plain.terms.tp_comm - hidden.terms.tp_comm <= hidden.terms.gemm
        gains[nodes] = plain.step_time_s / hidden.step_time_s
    assert 1.0 < gains[4] < gains[1] <= 1.3


@given(st.floats(0, 1), st.floats(0, 10), st.floats(0, 10))
def test_traffic_beside_products_ends_with_the_later_of_both(share, wire, products):
    left = float(traffic_left(np.array([share * wire]), np.array([wire]), products)[0])
    assert share * wire <= left <= wire
    assert products + left >= max(products, wire) * (1 - 1e-12)
    assert traffic_left(np.array([wire]), np.array([wire]), products)[0] == wire  # none beside


def test_hybrid_sharding_over_slow_nodes_is_faster_than_one_large_group():
    """16-bit gradients: 2 passes over the network instead of 3, weights stay inside a node."""
    slow = NicSpec(per_node=1, gb_per_s=12.5)
    group = NodeGroup(gpu="a100-sxm-80gb", num_nodes=16, gpus_per_node=8, nic=slow)
    job = job_of("llama3-8b", "16x8:a100-sxm-80gb", runtime="llm-foundry-fsdp")
    job = job.model_copy(update={"cluster": ClusterSpec(groups=(group,))})
    whole = estimate(job, dp=128, zero_stage=3)
    hybrid = estimate(job, dp=128, dp_replicate=16, zero_stage=3)
    assert hybrid.terms.fsdp_comm < whole.terms.fsdp_comm
    assert hybrid.memory.peak_allocated_bytes > whole.memory.peak_allocated_bytes


def test_fsdp_under_a_pipeline_gathers_once_a_step_in_torchtitan():
    layout = {"pp": 2, "dp": 8}
    job = job_of("llama3-8b", "2x8:h100-sxm", runtime="torchtitan")
    sharded, optimizer_alone = (estimate(job, zero_stage=stage, **layout) for stage in (3, 1))
    assert sharded.terms.fsdp_comm == 0
    assert sharded.step_time_s == optimizer_alone.step_time_s


def shared_heads_job(groups):
    job = job_of("llama3-8b", "1x8:h100-sxm")
    return job.model_copy(
        update={"model": job.model.model_copy(update={"num_key_value_heads": groups})}
    )


def test_tensor_ranks_that_share_key_value_heads_gather_queries_keys_and_values():
    """32 + 2 * 4 heads of 128 on 8 ranks: gathered forward, their gradient scattered backward."""
    layout = {"tp": 8, "sequence_parallel": True}
    few, enough = (estimate(shared_heads_job(n), **layout).terms.tp_comm for n in (4, 8))
    links, tensor = group(MACHINE, np.array([8]), np.array([1])), np.array([2.0 * 40 * 128 * 4096])
    gather, scatter = (
        collective_seconds(MACHINE, name, tensor, links)[0]
        for name in ("all_gather", "reduce_scatter")
    )
    assert few - enough == pytest.approx(256 * 32 * (gather + scatter))


def test_a_tensor_rank_keeps_whole_key_value_heads():
    """With 2 heads for 8 ranks each keeps one: as many as of 8 heads."""
    layout = {"tp": 8, "sequence_parallel": True}
    kept = [
        estimate(shared_heads_job(n), **layout).memory.pipeline_ranks[0].activations_bytes
        for n in (2, 8, 32)
    ]
    assert kept[0] == kept[1]
    assert kept[2] - kept[1] == 32 * 2 * 2 * 3 * 128 * 4096


def dense_latent_job(rank=1536):
    """One dense model whose attention differs from Llama's in its latents alone."""
    mla = MlaSpec(
        q_lora_rank=rank,
        kv_lora_rank=512,
        qk_nope_head_dim=64,
        qk_rope_head_dim=64,
        v_head_dim=128,
    )
    job = job_of("llama3-8b", "1x8:h100-sxm")
    changed = {"mla": mla, "num_key_value_heads": 32}
    return job.model_copy(update={"model": job.model.model_copy(update=changed)})


@pytest.mark.parametrize("rank", [1536, None])
def test_latent_attention_gathers_latents_over_the_tensor_ranks(rank):
    """Forward and backward: h gathered as gradients and scattered as outputs; of latents the rest,
    and half of the gather again for weight gradients. The MLP half exchanges h alone."""
    job = dense_latent_job(rank)
    layout = {"tp": 8, "sequence_parallel": True}
    links = group(MACHINE, np.array([8]), np.array([1]))

    def wire(name, *widths):
        tensors = [np.array([2.0 * 4096 * width]) for width in widths]
        return sum(collective_seconds(MACHINE, name, one, links)[0] for one in tensors)

    latents, h, regather = (rank or 4096, 512, 64), 4096, MACHINE.constants.regather_exposed
    gather, scatter = "all_gather", "reduce_scatter"
    here = (1 + regather) * wire(gather, *latents) + wire(scatter, *latents)
    here += wire(gather, h) + wire(scatter, h)
    mlp = (2 + regather) * wire(gather, h) + 2 * wire(scatter, h)
    ends = 2 * (wire(gather, h) + wire(scatter, h)) + regather * wire(gather, h)
    found = estimate(job, **layout).terms.tp_comm
    assert found == pytest.approx(256 * (32 * (here + mlp) + ends))


def test_latents_are_kept_for_a_rank_s_own_tokens():
    layout = {"tp": 8, "sequence_parallel": True}
    kept = [
        estimate(dense_latent_job(rank), **layout).memory.pipeline_ranks[0].activations_bytes
        for rank in (512, 1536)
    ]
    assert kept[1] - kept[0] == 32 * 2 * 2 * 1024 * 4096 / 8


def test_a_core_that_runs_again_exchanges_its_sequence_again():
    job = job_of("llama3-8b", "1x8:h100-sxm", cp_comm_type="a2a")
    again = {"recompute": "selective", "recompute_modules": ("core_attn",)}
    plain, repeated = (estimate(job, cp=8, **more).terms for more in ({}, again))
    assert repeated.recompute == pytest.approx(
        256 * core_forward(job) + plain.cp_comm / 2, rel=0.02
    )


def core_forward(job):
    machine = machine_of(job.cluster, "bf16")
    table = LayoutTable.of([Layout(cp=8)])
    found = price(context_of(job, machine).with_table(table))
    return 32 * float(found.blocks.layers[0].forward.attention[0])


@pytest.mark.parametrize(("pp", "nodes"), [(4, 4), (4, 1), (1, 4)])
def test_stages_that_share_the_token_table_add_up_its_gradients_in_fp32(pp, nodes):
    """First and last rank all-reduce 128256 x 2048 gradients, unless one rank holds both ends."""
    job = job_of("llama3.2-1b", f"{nodes}x8:h100-sxm")
    apart = job.model_copy(update={"model": job.model.model_copy(update=UNTIED)})
    tied, two = (estimate(one, pp=pp, dp=nodes * 8 // pp).terms.dp_comm for one in (job, apart))
    if pp == 1:
        assert tied <= two
        return
    links = group(MACHINE, np.array([2]), np.array([8 if nodes > 1 else 2]))
    gradients = np.array([128256.0 * 2048 * 4])
    (added,) = collective_seconds(MACHINE, "all_reduce", gradients, links)
    assert tied - two == pytest.approx(added, rel=0.05)


def test_a_head_that_predicts_further_tokens_shares_the_token_table_too():
    job = job_of("deepseek-v3", "16x8:h100-sxm")
    plain = job.model.model_copy(update={"num_nextn_predict_layers": 0})
    layout = {"pp": 4, "dp": 32, "ep": 32}
    with_module, without = (
        estimate(job.model_copy(update={"model": model}), **layout).terms.dp_comm
        for model in (job.model, plain)
    )
    assert with_module - without > 129280 * 7168 * 4 / 50e9


def test_both_ways_of_context_parallelism_cost_something_that_differs():
    job, layout = ("llama3-8b", "2x8:h100-sxm"), {"cp": 8, "dp": 2}
    ring, heads = (estimate(job_of(*job, cp_comm_type=way), **layout) for way in ("p2p", "a2a"))
    assert heads.terms.cp_comm > 0
    assert heads.terms.attention < ring.terms.attention


def test_gradients_in_half_the_bytes_travel_faster_and_take_half_the_memory():
    job, layout = ("llama3-8b", "4x8:h100-sxm"), {"dp": 32}
    full, half = (
        estimate(job_of(*job, gradient_dtype=kind), **layout) for kind in ("fp32", "bf16")
    )
    assert half.terms.dp_comm < full.terms.dp_comm
    rows = [one.memory.pipeline_ranks[0].gradients_bytes for one in (full, half)]
    assert rows[0] == pytest.approx(2 * rows[1])


def test_shared_heads_are_copied_around_their_exchange_in_both_passes():
    """Written once, read once, of all queries, keys and values of a micro batch."""
    keys = context_of(shared_heads_job(4), MACHINE).with_table(LayoutTable.of([Layout(tp=8)]))
    _, copies = shared_heads(shapes(keys))
    seconds = elementwise_seconds(MACHINE, np.array([2 * 2.0 * 40 * 128 * 4096]))
    assert copies.forward == pytest.approx(seconds)
    assert copies.backward == pytest.approx(seconds)
