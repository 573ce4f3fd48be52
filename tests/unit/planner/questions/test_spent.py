"""Energy, carbon dioxide and money of a step and of the run."""

import re

import pytest

from trainplan.cli.pages.parts.headline import spent_lines
from trainplan.costmodel.layout.layout import Layout
from trainplan.planner.questions import estimate
from trainplan.planner.questions.assumed_settings import StepFacts
from trainplan.planner.questions.best_plan import SearchOptions, search

LAYOUT = Layout(tp=2, dp=4, sequence_parallel=True)


@pytest.fixture
def job(make_job):
    return make_job("gpt2", "1x8:h100-sxm", 32, 1024)


def stated(job, tokens=None, price=None, **cluster):
    groups = (job.cluster.groups[0].model_copy(update={"price_per_gpu_hour": price}),)
    training = job.training.model_copy(update={"tokens": tokens})
    cluster = job.cluster.model_copy(update={"groups": groups, **cluster})
    return job.model_copy(update={"training": training, "cluster": cluster})


def spent(job):
    return StepFacts.of(job, LAYOUT, estimate(job, LAYOUT))[0]


def test_a_gpu_that_waits_and_works_draws_between_its_waiting_power_and_its_limit(job):
    step, joules = estimate(job, LAYOUT).step_time_s, spent(job).joules_per_step
    assert 0.35 * 8 * 700 * step < joules < 8 * 700 * step


def test_the_energy_of_a_plan_is_what_the_objective_counts(job):
    plan = search(job, SearchOptions(objective="energy", top=1, search_options="none"))
    value = plan.certificate.objective.value
    assert plan.spent.joules_per_step == pytest.approx(value, rel=1e-12)
    assert plan.spent.kwh_per_step == pytest.approx(value / 3.6e6, rel=1e-12)


def test_carbon_dioxide_is_energy_of_the_site_times_what_its_kwh_emits(job):
    plain, site = spent(job), spent(stated(job, pue=1.5, kg_co2_per_kwh=0.2))
    assert site.joules_per_step == plain.joules_per_step
    assert site.kwh_per_step == pytest.approx(1.5 * plain.kwh_per_step)
    assert site.kg_co2_per_step == pytest.approx(0.2 * 1.5 * plain.joules_per_step / 3.6e6)
    assert plain.kg_co2_per_step is None
    assert spent(stated(job, kg_co2_per_kwh=0.0)).kg_co2_per_step == 0


def test_the_run_is_all_its_steps_the_last_one_whole(job):
    found = spent(stated(job, tokens=32 * 1024 * 9 + 1, price=3.6, kg_co2_per_kwh=1.0))
    assert found.steps == 10
    for name in ("kwh", "kg_co2", "money"):
        step, run = getattr(found, f"{name}_per_step"), getattr(found, f"{name}_per_run")
        assert run == pytest.approx(10 * step)
    step_s = estimate(job, LAYOUT).step_time_s
    assert found.money_per_step == pytest.approx(8 * 3.6 / 3600 * step_s)
    assert found.gpu_hours_per_run == pytest.approx(8 * 10 * step_s / 3600)


def test_what_is_not_stated_is_null(job):
    found = spent(job)
    for name in ("steps", "kwh_per_run", "kg_co2_per_run", "money_per_step", "gpu_hours_per_run"):
        assert getattr(found, name) is None


def test_unlike_gpus_and_gpus_without_a_power_limit_have_no_energy(make_job):
    both = make_job("gpt2", "1x8:h100-sxm+1x8:a100-sxm-80gb", 32, 1024)
    layout = Layout(dp=16)
    found = StepFacts.of(both, layout, estimate(both, layout))[0]
    assert found.joules_per_step is None
    assert list(spent_lines(both, found)) == []
    (line,) = spent_lines(stated(both, pue=1.2), found)
    assert line.startswith("energy not known")


@pytest.mark.parametrize(
    ("written", "lines"),
    [
        ({}, []),
        ({"tokens": 10**12}, [r"energy [\d,.]+ [MG]Wh, [\d.]+ Wh a step \(GPUs alone\)"]),
        (
            {"kg_co2_per_kwh": 0.4, "pue": 1.2},
            [
                r"energy [\d.]+ Wh a step \(GPUs with PUE 1.2\) · "
                r"CO2 [\d.]+ g a step, at 0.4 kg a kWh"
            ],
        ),
        (
            {"kg_co2_per_kwh": 0.445},
            [r".* at 0.445 kg a kWh \(IEA, world 2024\)"],
        ),
    ],
)
def test_energy_is_printed_with_what_it_counts_where_it_is_asked_for(job, written, lines):
    wanted = stated(job, **written)
    found = list(spent_lines(wanted, spent(wanted)))
    assert len(found) == len(lines)
    for line, pattern in zip(found, lines, strict=True):
        assert re.fullmatch(pattern, line), line
