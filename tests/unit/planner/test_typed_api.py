"""The Python API as a user's checker sees it: `make check` has mypy read this file, too."""

from collections.abc import Mapping
from typing import assert_type

from trainplan import planner
from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.costmodel.job.job import DEFAULT_RUNTIME, Job, TrainingSpec
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.presets.presets import preset

JOB = Job(
    model=preset("gpt2"),
    training=TrainingSpec(seq_length=1024, global_batch_size=8),
    cluster=parse_cluster("1x8:h100-sxm"),
)
MINE, OTHER = Layout(dp=8), Layout(tp=2, dp=4)


def test_a_search_is_typed_to_its_last_number() -> None:
    no_full = planner.parse_choice("recompute=full", excluded=True)
    options = planner.SearchOptions(top=2, exclude=(no_full,), search_options="none")
    found = planner.search(JOB, options, planner.Unlimited())
    assert_type(found, planner.Plan | planner.Infeasible)
    assert isinstance(found, planner.Plan)
    assert_type(found.candidates, tuple[planner.Candidate, ...])
    assert_type(found.certificate, planner.Certificate)
    assert_type(found.best.estimate.step_time_s, float)
    assert_type(planner.plan_json(found), Mapping[str, object])
    assert found.best.estimate.step_time_s == found.certificate.lower_bound_s


def test_other_questions_are_typed() -> None:
    case = planner.Case(JOB, planner.SearchOptions())
    estimate = planner.estimate(JOB, MINE)
    assert_type(estimate, planner.Estimate)
    assert_type(planner.estimate_json(estimate), Mapping[str, object])
    assert_type(planner.evidence_of(JOB, MINE), planner.Evidence)
    assert_type(planner.estimates(JOB, [MINE, OTHER])[1], planner.Estimate)
    assert_type(planner.simulate(JOB, MINE), planner.Simulation)
    compared = planner.compare(case, MINE, case, OTHER)
    assert_type(compared, planner.Comparison)
    assert_type(compared.throughput_ratio, float)
    assert_type(planner.EXPORTERS[DEFAULT_RUNTIME](JOB, MINE), planner.LaunchConfig)
    assert compared.first.estimate.step_time_s == estimate.step_time_s
