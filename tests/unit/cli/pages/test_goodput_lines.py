"""Goodput in the first lines of answers: what trains, how often to save, what a failure costs."""

import pytest

from trainplan.cli.documents.compared import Side
from trainplan.cli.pages.parts.headline import goodput_line, goodput_lines, run_lines, run_words
from trainplan.costmodel.hardware.failures import FailureSpec
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.run_costs import goodput_of
from trainplan.planner.comparisons import Side as ComparedSide
from trainplan.planner.questions import estimate

LAYOUT = Layout(tp=2, dp=8, zero_stage=1, sequence_parallel=True)
WITHOUT = "without failures and saves: --mtbf-node adds them"


@pytest.fixture
def job(make_job):
    job = make_job("small-dense", "2x8:h100-sxm", 32, 4096)
    training = job.training.model_copy(update={"tokens": 10**12})
    return job.model_copy(update={"training": training})


def failing(job, **failures):
    stated = {"mtbf_node_days": 5.0, "checkpoint_gb_per_s": 1.0, "repair_hours": 12.0} | failures
    group = job.cluster.groups[0].model_copy(update={"price_per_gpu_hour": 2.0})
    own = {"failures": FailureSpec(**stated), "groups": (group,)}
    return job.model_copy(update={"cluster": job.cluster.model_copy(update=own)})


def test_days_say_that_they_are_without_failures(job):
    assert list(run_lines(job, estimate(job, LAYOUT)))[1:] == [WITHOUT]
    assert list(goodput_lines(job)) == []


def test_without_tokens_there_are_no_days_to_say_it_of(job):
    training = job.training.model_copy(update={"tokens": None})
    short = job.model_copy(update={"training": training})
    assert list(run_lines(short, estimate(short, LAYOUT))) == []


def test_days_hours_and_money_are_those_that_pass(job):
    whole = failing(job)
    plain = failing(job).cluster.model_copy(update={"failures": None})
    without = job.model_copy(update={"cluster": plain})
    priced = estimate(job, LAYOUT)
    words, usual = run_words(whole, priced), run_words(without, priced)
    share = goodput_of(whole).fraction
    hours, of_usual = (float(one.gpu_hours.replace(",", "")) for one in (words, usual))
    assert hours == pytest.approx(of_usual / share, rel=1e-2)
    money, paid = (float(one.money.split()[0].replace(",", "")) for one in (words, usual))
    assert money == pytest.approx(paid / share, rel=1e-2)
    spared = run_words(failing(job, spare_nodes=1), priced)
    more = goodput_of(failing(job, spare_nodes=1)).fraction
    spent = float(spared.money.split()[0].replace(",", ""))
    assert spent == pytest.approx(1.5 * paid / more, rel=1e-2)
    hours = float(spared.gpu_hours.replace(",", ""))
    assert hours == pytest.approx(1.5 * of_usual / more, rel=1e-2)
    assert hours * 2.0 == pytest.approx(spent, rel=1e-2)
    line = next(run_lines(failing(job, spare_nodes=1), priced))
    assert f"{spared.gpu_hours} GPU-hours with 1 spare node" in line


def test_the_line_says_goodput_interval_stop_and_what_a_failure_costs(job):
    (line,) = goodput_lines(failing(job))
    parts = line.split(" · ")
    assert parts[0].startswith("goodput ")
    assert parts[1].startswith("a save every ")
    assert " GB, stops training for " in parts[1]
    assert parts[2].startswith("a failure every 2.5 days costs ")
    assert parts[3].endswith(" of the time nodes are lacking")
    (line,) = goodput_lines(failing(job, repair_hours=None))
    assert "lacking" not in line
    assert goodput_line(goodput_of(failing(job, repair_hours=None))) == line


def test_a_goodput_below_one_is_not_rounded_to_it(job):
    rare = goodput_of(failing(job, mtbf_node_days=1e5, save="async", repair_hours=None))
    assert goodput_line(rare).startswith("goodput 99.99")


def test_each_of_two_plans_has_its_own(job):
    whole = failing(job)
    sides = [Side.of(ComparedSide(one, LAYOUT, estimate(one, LAYOUT))) for one in (job, whole)]
    assert [one.goodput for one in sides] == [None, goodput_of(whole)]
