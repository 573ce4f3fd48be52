"""DualPipe as a layout: the V form on half the ranks, priced under a method that no runtime has."""

import pytest
from pydantic import ValidationError

from trainplan.costmodel.calibration import machine_for
from trainplan.costmodel.candidates.context import context_of
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.step import explicit
from trainplan.planner.questions.best_plan import no_files


@pytest.fixture(name="seconds")
def _seconds(make_job):
    def priced(runtime, **fields):
        job = make_job("small-moe", "2x8:h100-sxm", 64, 4096)
        job = job.model_copy(update={"runtime": runtime})
        table = LayoutTable.of([Layout(dp=8, ep=4, **fields)])
        (one,) = explicit(context_of(job, machine_for(job)).with_table(table))
        return one.step_time_s

    return priced


@pytest.mark.parametrize("fields", [{"pp": 2}, {"pp": 2, "vpp": 2, "schedule": "interleaved"}])
def test_other_schedules_cost_what_they_cost_in_megatron(seconds, fields):
    assert seconds("megatron-dualpipe", **fields) == seconds("megatron-bridge", **fields)


def test_pairs_of_passes_leave_less_idle_than_interleaved_ones(seconds):
    interleaved = seconds("megatron-dualpipe", pp=2, vpp=2, schedule="interleaved")
    assert seconds("megatron-dualpipe", pp=2, vpp=2, schedule="dualpipe-v") < interleaved


def test_nothing_is_written_for_it():
    assert "a method that no runtime has (passes of both directions" in no_files(
        "megatron-dualpipe"
    )


def test_a_layout_in_two_directions_is_refused_with_the_v_that_is_the_same():
    with pytest.raises(ValidationError, match="dualpipe-v with half of pp, vpp=2 and twice dp"):
        Layout(pp=8, dp=4, schedule="dualpipe")
