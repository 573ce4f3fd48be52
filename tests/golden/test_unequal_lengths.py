"""Published gains of balance and of context ranks by sequence: direction, and how it goes.

Neither publication states its lengths or layout: lognormal lengths of 4,096 tokens in the mean, cut
to the row, are assumed. The size of a gain follows from what is assumed, so that a published size
is no test of the model: docs/headlines.md has the range over such choices.
"""

import pytest

from trainplan.costmodel.calibration.machine import NOTHING
from trainplan.costmodel.job import LengthSpec, Lognormal
from trainplan.costmodel.job.job import TrainingSpec
from trainplan.costmodel.layout.layout import Layout
from trainplan.planner.explanations.sequence_lengths import sequence_lengths
from trainplan.planner.questions.estimation import estimate


def packed(make_job, model, cluster, batch, seq_length, *, packing="greedy", sigma=1.5):
    job = make_job(model, cluster, batch, seq_length)
    lengths = LengthSpec(lognormal=Lognormal(mean=4096, sigma=sigma))
    stated = {**dict(job.training), "lengths": lengths, "packing": packing}
    return job.model_copy(update={"training": TrainingSpec.model_validate(stated)})


PIPELINES = {
    "llama3-8b": ("8x8:h100-sxm", Layout(tp=8, cp=2, pp=4, dp=1, sequence_parallel=True)),
    "llama3-70b": ("32x8:h100-sxm", Layout(tp=8, cp=8, pp=4, dp=1, sequence_parallel=True)),
}


def gain_of_balance(make_job, model, seq_length):
    cluster, layout = PIPELINES[model]
    greedy, balanced = (
        estimate(
            packed(make_job, model, cluster, 64, seq_length, packing=packing), layout
        ).step_time_s
        for packing in ("greedy", "balanced")
    )
    return greedy / balanced


@pytest.mark.parametrize("model", PIPELINES)
def test_balanced_packing_gains_more_with_longer_rows(make_job, model):
    """Source: Wang et al., WLB-LLM, arXiv:2503.17924, abstract; pipelines of 4 stages."""
    gains = [gain_of_balance(make_job, model, length) for length in (32_768, 65_536, 131_072)]
    assert 1 < gains[0] < gains[1] < gains[2]


FULL = {"recompute": "full", "recompute_method": "uniform", "recompute_num_layers": 1}
BY_SEQUENCE = {
    1.0: Layout(cp=32, dp=2, **FULL),
    1.5: Layout(cp=16, dp=4, **FULL),
    2.0: Layout(tp=4, cp=8, dp=2, sequence_parallel=True, **FULL),
}


def gain_by_sequence(make_job, sigma, layout, seq_length=262_144):
    job = packed(make_job, "llama3-8b", "8x8:h100-sxm", 32, seq_length, sigma=sigma)
    found = sequence_lengths(job, layout, NOTHING)
    assert found.dynamic.refused == ""
    return estimate(job, layout).step_time_s / found.dynamic.step_time_s


def test_context_ranks_by_sequence_gain_in_the_published_range(make_job):
    """2.4 times as fast, fine-tuning on rows of 256k tokens: inside the range of free choices.

    Source: Megatron-LM pull request 2282, said in Megatron-Bridge issue 4586 of Nemotron Ultra. Its
    layout is not stated; where rings cross nodes and sequences are short, most of a step is rings.
    """
    gains = [gain_by_sequence(make_job, sigma, one) for sigma, one in BY_SEQUENCE.items()]
    assert 1 < min(gains) < 2.4 < max(gains)
    assert gains == sorted(gains, reverse=True), "more ranks and shorter sequences: more is rings"


def test_rings_inside_a_node_hide_and_only_waiting_is_saved(make_job):
    inside = Layout(tp=4, cp=2, dp=8, sequence_parallel=True)
    assert 1 < gain_by_sequence(make_job, 1.5, inside, 32_768) < 1.4
