"""The Trainer of transformers: what it runs beside Accelerate, and what that takes."""

from dataclasses import replace

import pytest

from trainplan.cli.pages.parts.evidence import interval_lines
from trainplan.costmodel.calibration.machine import machine_for
from trainplan.costmodel.candidates import context_of
from trainplan.costmodel.job.job import RuntimeOptions
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.step import price
from trainplan.costmodel.uncertainty import Interval
from trainplan.planner.evidence import was_published
from trainplan.planner.space.choices import broken_rules

VOCABULARY = 128_256


@pytest.fixture(name="job_of")
def _job_of(make_job):
    def job(runtime="transformers", model="llama3-8b", gpus=8, **training):
        made = make_job(model, f"1x{gpus}:h100-sxm", 32, **training)
        return made.model_copy(update={"runtime": runtime, "options": RuntimeOptions()})

    return job


def priced(job, **layout):
    table = LayoutTable.of([Layout(**layout)])
    return price(context_of(job, machine_for(job)).with_table(table))


@pytest.mark.parametrize(
    ("training", "layout"),
    [
        ({}, {"dp": 8, "zero_stage": 2}),
        ({}, {"dp": 8, "zero_stage": 3, "dp_replicate": 2}),
        ({}, {"dp": 4, "tp": 2, "zero_stage": 3}),
        ({}, {"dp": 2, "cp": 4, "zero_stage": 3}),
        ({"state_precision": "bf16"}, {"dp": 8, "zero_stage": 0}),
        ({"optimizer": "galore:rank=256,update=step"}, {"dp": 8, "zero_stage": 0}),
        ({"optimizer": "apollo-mini"}, {"dp": 8, "zero_stage": 0}),
        ({"optimizer": "adamw8bit"}, {"dp": 8, "zero_stage": 3}),
        ({"model": "mixtral-8x7b"}, {"dp": 8, "ep": 8, "zero_stage": 3}),
        ({"model": "mixtral-8x7b"}, {"dp": 4, "tp": 2, "etp": 2, "zero_stage": 3}),
    ],
)
def test_what_the_trainer_supports_breaks_no_rule(job_of, training, layout):
    (rules,) = broken_rules(job_of(**training), LayoutTable.of([Layout(**layout)]))
    assert not rules


def test_buckets_of_replicas_hold_gradients_a_second_time(job_of):
    """accelerate: DistributedDataParallelKwargs.gradient_as_bucket_view is false."""
    narrow = {"state_precision": "bf16"}
    one = priced(job_of(gpus=1, **narrow), dp=1, zero_stage=0).memory.gradients
    two = priced(job_of(gpus=2, **narrow), dp=2, zero_stage=0).memory.gradients
    assert two == pytest.approx(2 * one)


def test_tensor_ranks_take_the_loss_of_all_logits(job_of):
    """`lm_head` is colwise_gather_output: each rank has all of them, in 16 bits and in fp32."""
    job = job_of()
    on = context_of(job, machine_for(job))
    own_part = replace(on.traits.communication, gathers_logits=False)
    table = LayoutTable.of([Layout(dp=4, tp=2, zero_stage=3)])
    contexts = (on, replace(on, traits=replace(on.traits, communication=own_part)))
    whole, part = (price(one.with_table(table)) for one in contexts)
    logits = 2048 * VOCABULARY / 2
    more = whole.memory.transients - part.memory.transients
    assert more.max() == pytest.approx(14 * logits, rel=0.01)
    assert whole.step_seconds[0] > part.step_seconds[0]


def test_an_interval_states_that_no_run_under_it_was_published(job_of):
    assert not was_published("transformers")
    assert was_published("accelerate")
    interval = Interval(0.8, "unseen fsdp", 1.0, 2.0)
    (line,) = interval_lines(job_of(), interval, verbose=False)
    assert not list(interval_lines(job_of("accelerate"), interval, verbose=False))
    assert line == (
        "Interval: no scored run is under transformers; it is as of sources that no fit saw."
    )
