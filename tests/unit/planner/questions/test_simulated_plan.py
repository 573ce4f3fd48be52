"""`plan simulate` runs what the estimate ran."""

import numpy as np
import pytest

from trainplan.costmodel.candidates.context import context_of
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.machine import machine_of
from trainplan.costmodel.runtimes.registry import RUNTIMES
from trainplan.costmodel.step import explicit
from trainplan.planner.questions.simulation import simulate

SHAPES = dict.fromkeys(("interleaved", "breadth-first", "zb-v", "v-half", "v-min"), 2)


@pytest.mark.parametrize("schedule", RUNTIMES["torchtitan"].pipeline.schedules)
@pytest.mark.parametrize("microbatches", [8, 64])
def test_a_simulated_plan_takes_the_time_of_its_estimate(make_job, schedule, microbatches):
    job = make_job("llama3-8b", "1x8:h100-sxm", global_batch_size=microbatches)
    job = job.model_copy(update={"runtime": "torchtitan"})
    vpp = SHAPES.get(schedule, 2 if schedule == "dualpipe-v" else 1)
    layout = Layout(tp=2, pp=4, vpp=vpp, dp=1, zero_stage=1, schedule=schedule)
    machine = machine_of(job.cluster, job.training.precision)
    (estimate,) = explicit(context_of(job, machine).with_table(LayoutTable.of([layout])))
    terms, found = estimate.terms, simulate(job, layout)
    explained = found.scored.makespan + found.dp_comm + found.optimizer + terms.overhead
    np.testing.assert_allclose(explained, estimate.step_time_s, rtol=1e-6)
