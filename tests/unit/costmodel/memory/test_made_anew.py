"""Gradients that do not exist yet when the loss runs."""

import numpy as np
import pytest

from trainplan.costmodel.candidates.context import Candidates
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.machine import machine_of
from trainplan.costmodel.memory.made_anew import gradients_at_peak
from trainplan.costmodel.model.params import num_parameters
from trainplan.costmodel.runtimes.registry import traits_of
from trainplan.costmodel.step import price

WHOLE = {"recompute": "full", "recompute_method": "uniform", "recompute_num_layers": 1}


def candidates(make_job, runtime="accelerate", batch=8, seq_length=8192, **layout):
    job = make_job("llama3-8b", "1x8:h100-sxm", batch, seq_length)
    job = job.model_copy(update={"runtime": runtime})
    table = LayoutTable.of([Layout(**{"dp": 8, "zero_stage": 3, **WHOLE, **layout})])
    return Candidates(job, machine_of(job.cluster, "bf16"), traits_of(job), table)


def gradients(*args, **changed):
    on = candidates(*args, **changed)
    share = 4 * num_parameters(on.job.model) / 8
    return float(price(on).memory.gradients[0, 0]) / share


def test_the_loss_of_a_long_micro_batch_runs_without_them(make_job):
    assert gradients(make_job, seq_length=32768) == 0


def test_of_a_short_one_all_are_there_at_the_end(make_job):
    """But what the other layers kept, which is gone by then."""
    assert 0.9 < gradients(make_job, seq_length=64) < 1


@pytest.mark.parametrize(
    ("runtime", "changed"),
    [
        ("accelerate", {"batch": 16}),  # the first micro batch left its own
        ("deepspeed", {}),  # a buffer that stays
        ("megatron-lm", {"zero_stage": 1}),
    ],
)
def test_those_that_stay_are_there_when_the_loss_runs(make_job, runtime, changed):
    assert gradients(make_job, runtime, seq_length=32768, **changed) >= 0.5


@pytest.mark.parametrize(
    ("loss", "layer", "kept", "expected"),
    [
        (50, 10, 32, 0),  # the loss is more than the layers and all gradients
        (20, 18, 32, 3),  # the last layer runs backward with 5 of the ends
        (
            20,
            18,
            3.2,
            14.9,
        ),  # the first with all 20 and 3.2 / 32 kept: 38.1, of which 23.2 is there
    ],
)
def test_the_fullest_of_three_moments_decides(make_job, loss, layer, kept, expected):
    def column(value):
        return np.array([[float(value)]])

    found = gradients_at_peak(
        candidates(make_job),
        column(20),
        ends=column(5),
        kept=column(kept),
        loss=column(loss),
        layer=column(layer),
    )
    assert found[0, 0] == pytest.approx(expected)


def test_what_is_reserved_has_all_of_them(make_job):
    """Shards are made on a stream with memory of its own."""
    one, two = (
        price(candidates(make_job, batch=batch, seq_length=32768)).memory for batch in (8, 16)
    )
    assert one.reserved + one.cached == pytest.approx(two.reserved + two.cached)
    assert one.reserved < two.reserved
