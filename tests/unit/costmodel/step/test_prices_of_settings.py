"""Each setting of a run has a price of its own."""

import pytest

from trainplan.costmodel.calibration.machine import machine_for
from trainplan.costmodel.candidates import context_of
from trainplan.costmodel.job.job import RuntimeOptions
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.step import explicit

LAYOUT = Layout(ep=8, dp=8, zero_stage=1, micro_batch_size=1)


@pytest.fixture
def seconds(make_job):
    """Of a step of one layout under some settings."""
    plain = make_job("small-moe", "1x8:h100-sxm").model_copy(update={"runtime": "megatron-bridge"})

    def step(**options):
        job = plain.model_copy(update={"options": RuntimeOptions(**options)})
        candidates = context_of(job, machine_for(job)).with_table(LayoutTable.of([LAYOUT]))
        return explicit(candidates)[0].step_time_s

    return step


def test_hybridep_alone_is_no_graph_and_hides_nothing(seconds):
    hybrid = {"moe_dispatcher": "hybridep"}
    assert seconds(**hybrid) == seconds(**hybrid, cuda_graph="none", overlap_moe_a2a=False)
    assert seconds(**hybrid) == seconds(moe_dispatcher="deepep")


def test_every_further_setting_saves_time(seconds):
    options = {}
    steps = [seconds()]
    for name, value in (
        ("cuda_graph", "partial"),
        ("cuda_graph", "full_iteration"),
        ("moe_dispatcher", "hybridep"),
        ("overlap_moe_a2a", True),
    ):
        options[name] = value
        steps.append(seconds(**options))
    assert steps == sorted(steps, reverse=True)
    assert len(set(steps)) == len(steps)
