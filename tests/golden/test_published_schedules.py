"""Schedules against each other: Qi et al., arXiv:2401.10241, table 4, run by run."""

import json
from pathlib import Path

import pytest

from trainplan.costmodel.documents.measured_run import MeasuredRun
from trainplan.costmodel.runtimes.registry import RUNTIMES
from trainplan.costmodel.validate.predict import predict

RUNS = Path(__file__).parents[2] / "examples" / "accuracy" / "runs.jsonl"
SETTINGS = [f"6.2b-8g-m{m}" for m in (24, 32, 64)] + [f"14.6b-16g-m{m}" for m in (48, 64, 128)]
RATIO_TOLERANCE = 0.05
MEMORY_TOLERANCE = 0.03


@pytest.fixture(scope="module", name="predictions")
def _predictions():
    lines = RUNS.read_text("utf-8").splitlines()
    runs = [MeasuredRun.model_validate(json.loads(line)) for line in lines if '"zb-t4-' in line]
    return {one.run.id.removeprefix("zb-t4-"): one for one in predict(runs)}


@pytest.mark.parametrize("schedule", ["zb-1p", "zb-2p"])
@pytest.mark.parametrize("setting", SETTINGS)
def test_a_split_backward_pass_gains_over_1f1b_what_was_measured(predictions, setting, schedule):
    some, plain = (predictions[f"{setting}-{name}"] for name in (schedule, "1f1b"))
    measured = some.run.measured.step_time_s / plain.run.measured.step_time_s
    assert some.step_time_s / plain.step_time_s == pytest.approx(measured, rel=RATIO_TOLERANCE)


@pytest.mark.parametrize("schedule", ["1f1b", "zb-1p", "zb-2p"])
@pytest.mark.parametrize("setting", SETTINGS)
def test_a_schedule_holds_the_memory_that_was_measured(predictions, setting, schedule):
    one = predictions[f"{setting}-{schedule}"]
    measured = one.run.measured.peak_memory_gib
    assert one.peak_memory_gib == pytest.approx(measured, rel=MEMORY_TOLERANCE)


@pytest.mark.parametrize("setting", SETTINGS)
def test_the_order_of_schedules_is_the_measured_one(predictions, setting):
    steps = [predictions[f"{setting}-{name}"].step_time_s for name in ("zb-2p", "zb-1p", "1f1b")]
    assert steps == sorted(steps)


def test_only_the_zero_bubble_runtime_executes_split_backward_passes():
    able = [name for name, traits in RUNTIMES.items() if "zb-1p" in traits.pipeline.schedules]
    assert able == ["megatron-zero-bubble"]
