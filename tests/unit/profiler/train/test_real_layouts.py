"""Real ranks of megatron-core: the same losses, and of every rank what the cost model counts."""

import os
import signal
from dataclasses import replace

import pytest

from trainplan.costmodel.base.errors import SpecError
from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.costmodel.job.job import Job, TrainingSpec
from trainplan.costmodel.layout.layout import Layout, stage_specs
from trainplan.costmodel.presets.presets import preset
from trainplan.planner.verification.by_megatron import Combination
from trainplan.planner.verification.compared import compared
from trainplan.planner.verification.expected import expected
from trainplan.planner.verification.shrink import tiny_job
from trainplan.profiler.train.client import Trainers, slowest_seconds
from trainplan.profiler.train.request import TrainingFailedError, TrainingRequest

ONE = Layout(zero_stage=0)


def tiny(name):
    job = Job(
        model=preset(name),
        training=TrainingSpec(seq_length=4096, global_batch_size=64),
        cluster=parse_cluster("1x8:h100-sxm"),
    )
    return tiny_job(job, 4, 1)


def combination(job, layout):
    cluster = parse_cluster(f"1x{layout.world_size}:h100-sxm")
    return Combination(job.model_copy(update={"cluster": cluster}), layout)


def request(job, layout, **changes):
    one = combination(job, layout)
    stated = {"trainer": "megatron-core", "job": one.job, "layout": one.layout, "steps": 2}
    return TrainingRequest(**{**stated, "count": True, **changes})


def ran(trainers, job, layout):
    return trainers.run(request(job, layout), layout.world_size, 100)


@pytest.fixture(scope="module")
def dense():
    return tiny("llama3-8b")


@pytest.fixture(scope="module")
def dense_alone(trainers, dense):
    return ran(trainers, dense, ONE)


@pytest.mark.parametrize(
    "layout",
    [
        Layout(tp=2, pp=2, vpp=2, schedule="interleaved", sequence_parallel=True, zero_stage=0),
        Layout(
            pp=2,
            dp=2,
            stages=stage_specs([1, 3]),
            recompute="full",
            recompute_method="block",
            recompute_num_layers=1,
        ),
        Layout(zero_stage=0, recompute="selective", recompute_modules=("core_attn",)),
    ],
    ids=["tp sp interleaved", "uneven dp recompute", "core repeated"],
)
def test_a_dense_layout_trains_as_one_process_and_as_counted(trainers, dense, dense_alone, layout):
    found = compared(
        dense, dense_alone, ran(trainers, dense, layout), expected(combination(dense, layout))
    )
    assert found.equal, found
    assert found.saved_difference == 0


def test_experts_over_tensor_and_data_ranks_train_as_one_process(trainers):
    job = tiny("mixtral-8x7b")
    layout = Layout(tp=2, dp=2, ep=2, etp=2, sequence_parallel=True)
    alone = ran(trainers, job, ONE)
    found = compared(job, alone, ran(trainers, job, layout), expected(combination(job, layout)))
    assert found.equal, found
    assert found.saved_difference < 1e-4


def test_tied_tables_biases_and_learned_positions_are_counted(trainers):
    job, layout = tiny("gpt2"), Layout(tp=2, pp=2, sequence_parallel=True, zero_stage=0)
    found = compared(
        job, ran(trainers, job, ONE), ran(trainers, job, layout), expected(combination(job, layout))
    )
    assert found.equal, found


def test_norms_of_queries_and_keys_are_counted_where_a_rank_has_one_head_of_keys(trainers):
    job, layout = tiny("qwen3-8b"), Layout(tp=4, sequence_parallel=True, zero_stage=0)
    found = compared(
        job, ran(trainers, job, ONE), ran(trainers, job, layout), expected(combination(job, layout))
    )
    assert found.equal, found
    assert found.saved_difference == 0


def test_another_seed_is_another_model(trainers, dense, dense_alone):
    other = trainers.run(request(dense, ONE, seed=1, steps=1), 1, 100)
    assert other[0].losses[0] != dense_alone[0].losses[0]


def test_steps_are_timed_on_every_rank_and_the_slowest_counts(trainers, dense):
    layout = Layout(dp=2)
    reports = trainers.run(request(dense, layout, count=False), 2, 100)
    slowest = slowest_seconds(reports)
    assert len(slowest) == 2
    for step, seconds in enumerate(slowest):
        assert seconds == max(report.step_seconds[step] for report in reports)
    assert reports[0].num_parameters is None
    assert reports[0].sent == ()


def test_ranks_that_fail_say_why_and_the_next_run_follows(trainers, dense):
    model = dense.model.model_copy(update={"num_attention_heads": 6, "num_key_value_heads": 3})
    odd = dense.model_copy(update={"model": model})
    with pytest.raises(TrainingFailedError, match=r"rank [0-3]: .*must be a multiple") as failed:
        ran(trainers, odd, Layout(tp=4, zero_stage=0))
    assert failed.value.ending == "crash"
    with pytest.raises(TrainingFailedError, match=r"no end after 0 s of ranks 0") as failed:
        trainers.run(request(dense, ONE), 1, 0.01)
    assert failed.value.ending == "hang"
    assert ran(trainers, dense, ONE)[0].losses


def test_what_cannot_be_run_is_refused_before_anything_starts(trainers, dense):
    with pytest.raises(SpecError, match="cp > 1"):
        ran(trainers, dense, Layout(cp=2, zero_stage=0))
    with pytest.raises(SpecError, match="2 processes for 1 ranks"):
        trainers.run(request(dense, ONE), 2, 100)


def test_a_server_that_is_killed_is_said_and_none_is_left(trainers, dense):
    with Trainers("megatron-core") as mortal:
        group = mortal.pid
        os.kill(group, signal.SIGKILL)
        with pytest.raises(TrainingFailedError, match="the trainer ended"):
            ran(mortal, dense, ONE)
        assert mortal.pid is None
    with pytest.raises(ProcessLookupError):
        os.killpg(group, 0)


def test_an_interrupt_leaves_no_process(trainers):
    with pytest.raises(KeyboardInterrupt), Trainers("megatron-core") as interrupted:
        group = interrupted.pid
        os.killpg(group, 0)
        raise KeyboardInterrupt
    with pytest.raises(ProcessLookupError):
        os.killpg(group, 0)


def test_a_wrong_count_is_noticed(trainers, dense, dense_alone):
    layout = Layout(dp=2)
    counted = expected(combination(dense, layout))
    doubled = tuple(kept / 2 for kept in counted.saved_bytes)
    reports = ran(trainers, dense, layout)
    assert compared(dense, dense_alone, reports, counted).equal
    assert not compared(dense, dense_alone, reports, replace(counted, saved_bytes=doubled)).equal
