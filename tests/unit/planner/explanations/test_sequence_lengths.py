"""What unequal lengths cost a layout, and what other ways to run them would buy."""

import pytest

from trainplan.costmodel.calibration.machine import NOTHING
from trainplan.costmodel.job import LengthSpec, Lognormal
from trainplan.costmodel.job.job import TrainingSpec
from trainplan.costmodel.layout.layout import Layout
from trainplan.planner.explanations.sequence_lengths import sequence_lengths
from trainplan.planner.questions.best_plan import notes
from trainplan.planner.questions.estimation import estimate


def job_of(make_job, lengths, packing="greedy", seq_length=32_768, cluster="2x8:h100-sxm", **other):
    job = make_job("llama3-8b", cluster, 64, seq_length)
    stated = {**dict(job.training), "lengths": lengths, "packing": packing}
    return job.model_copy(update={"training": TrainingSpec.model_validate(stated), **other})


LAYOUT = Layout(
    tp=2,
    cp=4,
    dp=2,
    sequence_parallel=True,
    recompute="full",
    recompute_method="uniform",
    recompute_num_layers=1,
)
HALVES = LengthSpec(counts=((8192, 3), (16_384, 1), (32_768, 1)))


def test_a_job_of_one_length_has_nothing_to_say(make_job):
    assert sequence_lengths(make_job("llama3-8b", "2x8:h100-sxm", 64), LAYOUT, NOTHING) is None


def test_a_sequence_needs_as_many_context_ranks_as_leave_a_rank_no_more_tokens(make_job):
    found = sequence_lengths(job_of(make_job, HALVES), LAYOUT, NOTHING)
    assert [(one.degree, one.longest) for one in found.degrees] == [
        (1, 8192),
        (2, 16_384),
        (4, 32_768),
    ]
    assert [one.sequences_fraction for one in found.degrees] == pytest.approx([0.6, 0.2, 0.2])
    assert [one.tokens_fraction for one in found.degrees] == pytest.approx([1 / 3, 2 / 9, 4 / 9])
    assert found.dynamic.tokens_per_rank == 8192


def test_where_every_sequence_fills_a_row_nothing_is_to_be_had(make_job):
    job = job_of(make_job, LengthSpec(counts=((32_768, 1),)))
    found = sequence_lengths(job, LAYOUT, NOTHING)
    step = estimate(job, LAYOUT).step_time_s
    assert (found.padding_fraction, found.attention_wait) == (0.0, 1.0)
    assert found.balanced_step_time_s == pytest.approx(step)
    assert found.dynamic.step_time_s == pytest.approx(step)


def test_short_sequences_gain_from_context_ranks_of_their_own(make_job):
    short = job_of(make_job, LengthSpec(counts=((512, 1),)), seq_length=131_072)
    wide = LAYOUT.model_copy(update={"tp": 1, "cp": 16, "dp": 1, "sequence_parallel": False})
    found = sequence_lengths(short, wide, NOTHING)
    step = estimate(short, wide).step_time_s
    alone = estimate(short, wide).terms
    assert alone.cp_comm > 0
    assert found.dynamic.step_time_s < step - 0.9 * alone.cp_comm


def test_the_same_tokens_are_compared_where_rows_are_padded(make_job):
    job = job_of(make_job, LengthSpec(counts=((8192, 1),)), "none")
    found = sequence_lengths(job, LAYOUT, NOTHING)
    assert found.padding_fraction == 0.75
    assert found.attention_wait == 1.0
    packed = estimate(job_of(make_job, LengthSpec(counts=((8192, 1),)), "balanced"), LAYOUT)
    assert found.balanced_step_time_s == pytest.approx(packed.step_time_s / 4, rel=1e-6)


@pytest.mark.parametrize(
    ("other", "layout", "says"),
    [
        ({}, {}, ""),
        ({}, {"pp": 2, "dp": 1}, "Megatron-LM runs it with pp = 1 only"),
        ({}, {"zero_stage": 3}, "Megatron-FSDP"),
        ({"runtime": "torchtitan"}, {"zero_stage": 3}, "torchtitan has one degree for all"),
    ],
)
def test_why_a_runtime_does_not_run_it_is_said(make_job, other, layout, says):
    job = job_of(make_job, HALVES, **other)
    found = sequence_lengths(job, LAYOUT.model_copy(update=layout), NOTHING)
    assert (says in found.dynamic.refused) if says else found.dynamic.refused == ""


def test_notes_tell_padding_rows_and_an_unfused_core(make_job):
    wide = LengthSpec(lognormal=Lognormal(mean=2048, sigma=1))
    padded = "\n".join(notes(job_of(make_job, wide, "none")))
    assert "93.8% of the tokens of a row are padding" in padded
    assert "--packing greedy fills rows" in padded
    options = {"attention": "unfused"}
    job = job_of(make_job, wide)
    unfused = job.model_copy(update={"options": job.options.model_copy(update=options)})
    assert "packing saves padding, no attention" in "\n".join(notes(unfused))
    assert "the data pipeline has to pack so" in "\n".join(notes(job))
