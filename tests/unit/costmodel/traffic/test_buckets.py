"""Buckets of gradients: the closed form against buckets sent one by one, and the best size."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainplan.costmodel.candidates.context import context_of
from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.costmodel.job.job import Job, RuntimeOptions, TrainingSpec
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.machine import machine_of
from trainplan.costmodel.presets.presets import preset
from trainplan.costmodel.runtimes.registry import traits_of
from trainplan.costmodel.step import explicit
from trainplan.costmodel.traffic.buckets import bucket_calls, bucket_shares, in_buckets
from trainplan.costmodel.traffic.data_parallel import Overlap

SIZES = (1, 5, 25, 100, 400, 1600, 6400)


def job_of(runtime, model="llama3-8b", cluster="64x8:h100-sxm", batch=512, **options):
    return Job(
        model=preset(model),
        training=TrainingSpec(seq_length=8192, global_batch_size=batch),
        cluster=parse_cluster(cluster),
        runtime=runtime,
        options=RuntimeOptions(**options),
    )


def on(job, **layout):
    machine = machine_of(job.cluster, job.training.precision)
    return context_of(job, machine).with_table(LayoutTable.of([Layout(**layout)]))


def seconds(job, **layout):
    return explicit(on(job, **layout))[0].step_time_s


@given(st.integers(1, 200), st.floats(1e-3, 10), st.floats(1e-3, 10))
def test_buckets_sent_one_by_one_take_what_the_closed_form_gives(number, traffic, backward):
    """Gradients are made evenly over the pass, and equal buckets go as they are full."""
    end = 0.0
    for bucket in range(1, number + 1):
        end = max(end, bucket / number * backward) + traffic / number
    closed = Overlap(least=np.array([1 / number]), window=np.array([1 - 1 / number]))
    exposed = closed.exposed(np.array([traffic]), np.array([backward]))[0]
    assert exposed == pytest.approx(end - backward)


def test_a_bucket_holds_whole_tensors_and_the_last_one_has_the_token_table():
    """Of Megatron's four products a layer; tests/oracles has those of torch one by one."""
    candidates = on(job_of("megatron-lm", bucket_mb=100), dp=64, tp=8, zero_stage=1)
    model = candidates.job.model
    h, f, table = 4096, 14336, 4096 * model.vocab_size / 8
    sizes = np.array([h * (h + 2 * 1024), h * h, 2 * h * f, h * f]) / 8
    held = 2 * table + 32 * sizes.sum()
    full = 25 * 2**20 + (sizes**2).sum() / sizes.sum() / 2
    calls = bucket_calls(candidates, np.full((1, 1), held), experts=False)
    assert calls[0, 0] == pytest.approx(2 + 32 * sizes.sum() / full)
    assert bucket_calls(candidates, np.full((1, 1), 1e3), experts=False) == 1.0
    shares = bucket_shares(candidates, 0.5, 0.9)
    assert shares.last[0] == pytest.approx((table + full / 2) / held)
    assert shares.window[0] == pytest.approx(1 - full / held)


def test_a_size_below_every_tensor_makes_as_many_buckets_as_there_are_tensors():
    candidates = on(job_of("megatron-lm", bucket_mb=1e-3), dp=512, zero_stage=1)
    model = candidates.job.model
    held = np.full((1, 1), 8.03e9)
    calls = bucket_calls(candidates, held, experts=False)[0, 0]
    assert calls == pytest.approx(4 * model.num_hidden_layers + 2, rel=1e-3)


@pytest.mark.parametrize(
    ("runtime", "layout", "options"),
    [
        ("megatron-lm", {"dp": 64, "pp": 8, "zero_stage": 1}, {}),
        ("megatron-lm", {"dp": 512, "zero_stage": 3}, {}),
        ("megatron-lm", {"dp": 512, "zero_stage": 1}, {"overlap_grad_reduce": False}),
        ("transformers", {"dp": 512, "zero_stage": 3}, {}),
    ],
)
def test_where_nothing_goes_in_buckets_their_size_changes_nothing(runtime, layout, options):
    plain, stated = (job_of(runtime, **options, **size) for size in ({}, {"bucket_mb": 7}))
    assert not in_buckets(on(stated, **layout)).any()
    assert seconds(plain, **layout) == seconds(stated, **layout)


def test_without_a_stated_size_all_is_as_if_there_were_none():
    for runtime in ("megatron-lm", "deepspeed", "torch-eager"):
        candidates = on(job_of(runtime), dp=512, zero_stage=int(runtime != "torch-eager"))
        sharding = replace(candidates.traits.sharding, bucket_elements=0)
        without = replace(candidates, traits=replace(candidates.traits, sharding=sharding))
        assert explicit(candidates) == explicit(without)
        assert bucket_calls(candidates, np.full((1, 1), 1e12), experts=False) == 1.0
        assert bucket_shares(candidates, 0.3, 0.8).last == 0.3


@pytest.mark.parametrize(
    ("runtime", "nodes", "tp"),
    [("megatron-lm", 8, 2), ("megatron-lm", 64, 2), ("deepspeed", 8, 1)],
)
def test_the_best_size_lies_inside_and_a_runtime_s_own_is_near(runtime, nodes, tp):
    """Megatron makes larger buckets for more ranks, and what is best grows with them, too."""
    dp = nodes * 8 // tp
    layout = {"dp": dp, "tp": tp, "zero_stage": 1, "sequence_parallel": tp > 1}
    job = {"runtime": runtime, "cluster": f"{nodes}x8:h100-sxm", "batch": 2 * dp}
    usual = traits_of(job_of(**job)).usual_bucket_mb(dp)
    own, *prices = (seconds(job_of(**job, bucket_mb=size), **layout) for size in (usual, *SIZES))
    best = prices.index(min(prices))
    assert 0 < best < len(SIZES) - 1
    assert own < 1.01 * prices[best]
    assert own == pytest.approx(seconds(job_of(**job), **layout), rel=0.03)


def test_replicas_of_ddp_on_256_gpus_are_near_linear():
    """Li et al., PyTorch DDP, arXiv:2006.15704, abstract; tolerance: at least 90 % of linear."""
    layout = {"micro_batch_size": 1, "zero_stage": 0}
    of = ("torch-eager", "llama3.2-1b")
    one = seconds(job_of(*of, "1x1:a100-sxm-80gb", 2, bucket_mb=25), dp=1, **layout)
    many = seconds(job_of(*of, "32x8:a100-sxm-80gb", 512, bucket_mb=25), dp=256, **layout)
    assert 0.9 < one / many < 1


def test_a_bucket_of_deepspeed_is_as_large_as_its_buffer():
    layout = {"dp": 64, "zero_stage": 2}
    small, usual = (
        explicit(on(job_of("deepspeed", cluster="8x8:h100-sxm", batch=64, **size), **layout))[0]
        for size in ({"bucket_mb": 100}, {})
    )
    saved = usual.memory.peak_allocated_bytes - small.memory.peak_allocated_bytes
    assert saved == pytest.approx(2 * 500_000_000 - 100 * 2**20)
    assert small.step_time_s > usual.step_time_s
