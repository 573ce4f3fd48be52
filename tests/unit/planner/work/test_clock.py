"""No task is long between two looks at the clock, and each ends soon after the limit."""

import math
from time import process_time

import numpy as np
import pytest

from tests.budgets import Steps
from trainplan.costmodel.base.errors import SpecError
from trainplan.costmodel.calibration import machine_for
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.runtimes import traits_of
from trainplan.planner import SearchOptions, search
from trainplan.planner.questions.best_plan import NOT_COMPARED
from trainplan.planner.space import parse_choice
from trainplan.planner.tree.result import StepTime
from trainplan.planner.tree.tasks import PricingContext, Simulate

LIMIT_S, MOST_S = 0.2, 1.5
"""Processor seconds of this process, for other tests run beside; most between two looks. Source:
measured: 0.5 on one core of 2026."""


class Looks:
    """A budget of processor seconds that notes how far looks at it are apart."""

    def __init__(self, limit_s: float) -> None:
        self.begun = self.last = process_time()
        self.limit_s, self.longest_s = limit_s, 0.0

    def seconds_left(self) -> float:
        now = process_time()
        self.longest_s, self.last = max(self.longest_s, now - self.last), now
        return max(0.0, self.limit_s - (now - self.begun))

    def spent(self) -> bool:
        return self.seconds_left() <= 0

    def report(self, done: float, bound_s: float, best_s: float) -> None:
        assert 0 <= done <= 1
        assert bound_s >= 0


@pytest.mark.parametrize(
    "wanted",
    [
        ("llama3.1-405b", "16x8:h100-sxm", 128, "torchtitan"),
        ("llama3-70b", "8x8:h100-sxm", 4096, "torchtitan"),
        ("llama3-8b", "1x8:h100-sxm+1x8:a100-sxm-80gb", 512, "megatron-lm"),
    ],
)
def test_a_search_looks_at_the_clock(make_job, wanted):
    model, cluster, batch, runtime = wanted
    job = make_job(model, cluster, batch, 8192).model_copy(update={"runtime": runtime})
    looks = Looks(LIMIT_S)
    try:
        search(job, SearchOptions(only_answer=True), looks)
    except SpecError as error:
        assert "raise --time-limit" in str(error)
    looks.spent()
    assert looks.longest_s < MOST_S


@pytest.mark.parametrize("left_s", [0.0, math.inf])
def test_orders_made_for_durations_are_run_one_by_one_while_there_is_time(make_job, left_s):
    job = make_job("llama3-8b", "1x8:h100-sxm", 64, 8192)
    job, machine = job.model_copy(update={"runtime": "torchtitan"}), machine_for(job)
    context = PricingContext(job, machine, traits_of(job), StepTime(), machine.memory_bytes)
    degrees = {"pp": 2, "dp": 4, "vpp": 2}
    table = LayoutTable.of(
        Layout(schedule=name, micro_batch_size=size, **degrees)
        for name in ("v-half", "interleaved", "v-min")
        for size in (1, 2)
    )
    seconds = Simulate(context, table)(Looks(left_s))
    assert np.isfinite(seconds[2:4]).all()
    assert np.isnan(seconds[[0, 1, 4, 5]]).all() == (left_s == 0)
    assert np.isnan(seconds).any() == (left_s == 0)


@pytest.mark.parametrize("steps", [0, math.inf])
def test_without_time_other_schedules_are_left_out_with_a_word(make_job, steps):
    job = make_job("small-dense", "1x8:h100-sxm")
    plan = search(job, SearchOptions(fix=(parse_choice("pp=2", excluded=False),)), Steps(steps))
    assert (plan.other_schedules == ()) == (NOT_COMPARED in plan.notes) == (steps == 0)
