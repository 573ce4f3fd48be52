"""Best plans along a knob."""

import re
from dataclasses import replace

import pytest

from tests.budgets import Steps
from trainplan.cli.pages.sweep import HEIGHT, curve
from trainplan.costmodel.base.errors import SpecError
from trainplan.costmodel.calibration.machine import Measured, machine_for
from trainplan.costmodel.profiles.profile import Origin, Profile
from trainplan.costmodel.spec.base import Sourced
from trainplan.planner.cases.case import Case
from trainplan.planner.comparisons.parameters import Varied, parse_varied, turned
from trainplan.planner.comparisons.sweeps import KNEE_EFFICIENCY, sweep
from trainplan.planner.questions.best_plan import SearchOptions, search
from trainplan.planner.space import parse_choice
from trainplan.planner.work.budget import Unlimited

MEASURED = Measured(
    Profile(
        gpu="h100-sxm",
        gpus_per_node=8,
        origins=(Origin(source="a test"),),
        nic_gb_per_s=Sourced(value=30.0, source="a test"),
    )
)


@pytest.fixture(scope="module")
def case(make_job):
    options = SearchOptions(search_options="none", slack=0.0)
    return Case(make_job("small-dense", "2x8:h100-sxm", 64, 2048), options)


def points(case, *texts, weak=False):
    varied = [parse_varied(text) for text in texts]
    return [p for c in sweep(case, varied, Unlimited(), weak=weak).curves for p in c.points]


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("gpus=64..512", ("64", "128", "256", "512")),
        ("gpus=24..100", ("24", "48", "96")),
        ("nic=0.5..2", ("0.5", "1", "2")),
        ("gpus=64, 96,128", ("64", "96", "128")),
        ("tp=1,2,4", ("1", "2", "4")),
        ("recompute=none,full", ("none", "full")),
    ],
)
def test_values_are_doubled_or_listed(text, values):
    assert parse_varied(text) == Varied(text.partition("=")[0], values)


@pytest.mark.parametrize(
    "text",
    [
        "gpus",
        "gpus=",
        "gpus=0..4",
        "gpus=8..4",
        "gpus=a..b",
        "gpus=1..inf",
        "wings=1,2",
        "tp=x",
        "gpus=8,8",
        "nic=" + ",".join(map(str, range(1, 70))),
        "gpus=1..1e300",
        "gpus=1..100000000",
        "gpus=1.5",
        "global_batch_size=1,1e12",
        "seq_length=1..1e10",
        "nic=1,1e9",
        "memory_gib=80,1e9",
        "gpu=h100-sxm,no-such-gpu",
        "precision=bf16,fp3",
    ],
)
def test_a_knob_that_makes_no_sense_is_refused_before_anything_is_searched(text):
    with pytest.raises(SpecError, match=re.escape(text.partition(",")[0])):
        parse_varied(text)


def test_a_value_that_makes_no_sense_is_told_what_would():
    with pytest.raises(SpecError, match="at most 1,048,576"):
        parse_varied("gpus=1..100000000")


def test_a_point_is_the_search_of_its_job(case):
    point = points(case, "gpus=16,32")[1]
    job = turned(case, "gpus", "32").job
    assert job.cluster.num_gpus == point.num_gpus == 32
    best = search(job, case.options).best.estimate
    assert point.outcome.best.estimate.step_time_s == best.step_time_s
    assert point.tokens_per_s == pytest.approx(job.training.tokens_per_step / best.step_time_s)


@pytest.mark.parametrize("model", ["small-dense", "small-moe"])
@pytest.mark.parametrize("text", ["memory_gib=1..16", "nic=0.25..4"])
def test_more_memory_and_bandwidth_never_slow_the_best_plan(make_job, model, text):
    job = make_job(model, "2x2:h100-sxm", 16, 2048)
    held = ("cp=1", "stages=even")  # of splits: properties/test_free_splits
    fix = tuple(parse_choice(one, excluded=False) for one in held)
    found = points(Case(job, SearchOptions(search_options="none", slack=0.0, fix=fix)), text)
    speeds = [point.tokens_per_s or 0.0 for point in found]
    assert speeds == pytest.approx(sorted(speeds), rel=1e-12)
    assert speeds[-1] > speeds[0]


def test_efficiency_counts_from_the_first_point_with_a_plan(case):
    found = points(case, "memory_gib=0.5,8,80")
    assert found[0].outcome.status == "memory"
    assert found[0].efficiency is None
    assert found[1].efficiency == 1
    assert found[2].efficiency == pytest.approx(found[2].tokens_per_s / found[1].tokens_per_s)


def test_the_knee_is_the_last_point_whose_next_gpus_are_worth_it(case):
    found = points(case, "gpus=8..64")
    poor = [p for p in found if p.marginal_efficiency and p.marginal_efficiency < KNEE_EFFICIENCY]
    knees = [place for place, point in enumerate(found) if point.knee]
    assert knees == ([found.index(poor[0]) - 1] if poor else [])
    assert poor, "a small model on 64 GPUs is past its knee"


def test_weak_scaling_grows_the_batch(case):
    found = points(case, "gpus=16,32", weak=True)
    tokens = found[1].tokens_per_s * found[1].outcome.best.estimate.step_time_s
    assert tokens == pytest.approx(2 * case.job.training.tokens_per_step)


def test_part_of_a_node_is_a_node_of_fewer_gpus(case):
    changed = turned(case, "gpus", "4").job.cluster
    assert (changed.groups[0].num_nodes, changed.groups[0].gpus_per_node) == (1, 4)


def test_a_point_nobody_can_build_says_why_and_the_others_go_on(case):
    found = points(case, "gpus=12,16")
    assert found[0].outcome.status == "impossible"
    assert "multiple of 8" in found[0].outcome.reason
    assert found[1].outcome.status == "proved"


def test_other_knobs_give_a_curve_each(case):
    swept = sweep(case, [parse_varied("gpus=8,16"), parse_varied("tp=1,2")], Unlimited())
    assert [curve.held[0].value for curve in swept.curves] == ["1", "2"]
    for one in swept.curves:
        assert {p.outcome.best.layout.tp for p in one.points} == {int(one.held[0].value)}


def test_a_knob_is_varied_once(case):
    with pytest.raises(SpecError, match="only once"):
        sweep(case, [parse_varied("gpus=8,16")] * 2, Unlimited())


def test_a_spent_budget_leaves_points_untried(case):
    found = sweep(case, [parse_varied("gpus=8,16")], Steps(0))
    assert {point.outcome.status for point in found.curves[0].points} == {"untried"}


@pytest.mark.parametrize("measured", [Measured(), MEASURED])
def test_the_nic_is_multiplied_whether_measured_or_of_the_datasheet(case, measured):
    wanted = replace(case, measured=measured)
    found = [turned(wanted, "nic", value) for value in ("1", "4")]
    slow, fast = (machine_for(one.job, one.measured).nic_bytes_per_second for one in found)
    assert slow == machine_for(case.job, measured).nic_bytes_per_second
    assert fast == pytest.approx(4 * slow)


def test_a_curve_rises_with_its_values():
    lines = curve([1.0, 10.0, None, 100.0], [None] * 4, ["a", "b", "c", "d"], knee=1)
    assert len(lines) == HEIGHT + 1
    column = {sign: [n for n, line in enumerate(lines[:-1]) if sign in line] for sign in "oK"}
    assert column["o"] == [0, HEIGHT - 1]
    assert 0 < column["K"][0] < HEIGHT - 1
    assert "".join(lines[:-1]).count("o") == 2


def test_other_gpus_and_formats_are_other_jobs(case):
    found = points(case, "gpu=a100-sxm-80gb,h100-sxm")
    speeds = [point.tokens_per_s for point in found[:2]]
    assert speeds[0] < speeds[1]
    assert found[1].outcome.best.estimate == search(case.job, case.options).best.estimate
    fast = points(case, "precision=bf16,fp8")
    assert [point.outcome.status for point in fast] == ["proved", "proved"]


@pytest.mark.parametrize(
    ("text", "intended"),
    [
        ("gpu_memory_gib=40,80", "memory_gib"),
        ("globalbatch=1,2", "global_batch_size"),
        ("tp_size=1,2", "tp"),
    ],
)
def test_a_knob_that_is_nearly_one_suggests_it(text: str, intended: str):
    with pytest.raises(SpecError, match=f"did you mean '{intended}'"):
        parse_varied(text)


def test_a_short_name_of_a_gpu_is_a_value():
    assert parse_varied("gpu=h100,a100").values == ("h100", "a100")
