"""What an outage costs, against a clock that counts second by second."""

from dataclasses import replace
from random import Random

import pytest

from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.costmodel.hardware.failures import FailureSpec
from trainplan.costmodel.run_costs.goodput import goodput_of
from trainplan.planner.cases import Case
from trainplan.planner.plan.options import SearchOptions
from trainplan.planner.questions import search
from trainplan.planner.replan import Stated, left_of, outage_of, replan
from trainplan.planner.work import Unlimited

STATED = Stated(since_save=600.0, restart=300.0, repair=7200.0, spare_nodes=0)


@pytest.fixture(scope="module")
def found(make_job):
    job = make_job("small-dense", "4x4:h100-sxm", 24)
    options = SearchOptions(search_options="none", only_answer=True)
    plan = search(job, options)
    return replan(Case(job, options), plan.best.layout, left_of(job.cluster, ["1"]), Unlimited())


def with_rates(found, rate, faster=None, restarts=2):
    """The answer with other speeds."""
    best = replace(found.best, rate=rate, restarts=1)
    after = faster and replace(found.best, rate=faster, restarts=restarts)
    return replace(found, best=best, after=after, anew=None)


def counted(stated, ready, rate, *, stops):
    """Seconds of training that the plan would have done, less those that were done."""
    trained = sum(rate for second in range(int(stated.repair)) if ready <= second)
    lost = stated.since_save + stated.repair - trained
    return lost + stated.restart if stops else stated.since_save + stated.restart


def test_training_that_is_lost_is_what_a_clock_counts(found):
    random = Random(3)
    for _ in range(20):
        times = [float(random.randrange(0, 4000)) for _ in range(3)]
        stated = Stated(*times, random.choice((0, 1)))
        rate, faster = random.uniform(0.2, 0.7), random.uniform(0.7, 0.99)
        outage = outage_of(with_rates(found, rate, faster), stated)
        expected = {
            "wait": counted(stated, stated.repair, 0, stops=True),
            "go on": counted(stated, stated.restart, rate, stops=True),
            "go on after a command": counted(stated, 2 * stated.restart, faster, stops=True),
        }
        if stated.spare_nodes:
            expected["spare nodes"] = counted(stated, 0, 1, stops=False)
        assert {one.name: one.lost_s for one in outage.ways} == pytest.approx(expected, abs=1e-6)
        assert [one.lost_s for one in outage.ways] == sorted(one.lost_s for one in outage.ways)
        assert outage.first == min(outage.ways, key=lambda one: one.lost_s).name


def test_a_way_is_better_from_its_least_time_away_on(found):
    changed = with_rates(found, 0.5, 0.9)
    at = {one.name: one.least_repair_s for one in outage_of(changed, STATED).ways}
    assert at["wait"] is None
    for name, other in (("go on", "wait"), ("go on after a command", "go on")):
        for repair, better in ((at[name] - 60, other), (at[name] + 60, name)):
            some = outage_of(changed, replace(STATED, repair=repair)).ways
            lost = {one.name: one.lost_s for one in some}
            assert (lost[name] < lost[other]) == (better == name)


@pytest.mark.parametrize("unknown", ["restart", "repair"])
def test_what_is_not_stated_is_not_known(found, unknown):
    outage = outage_of(found, replace(STATED, **{unknown: None}))
    assert outage.first is None
    assert outage.plan == "best"
    assert all(one.lost_s is None for one in outage.ways)
    spare = outage_of(found, replace(STATED, **{unknown: None}, spare_nodes=1))
    assert spare.first == "spare nodes"  # whatever the times are


def test_times_are_those_of_the_cluster(found):
    failures = FailureSpec(mtbf_node_days=365, checkpoint_gb_per_s=1, repair_hours=12)
    cluster = found.job.cluster.model_copy(update={"failures": failures})
    job = found.job.model_copy(update={"cluster": cluster})
    times = Stated().times(job)
    assert (times.restart_s, times.repair_s) == (600, 12 * 3600)
    assert times.since_save_s == pytest.approx(goodput_of(job).save_interval_s / 2, rel=0.2)
    assert Stated().times(found.job).since_save_s == 900
    assert "assumed" in Stated().times(found.job).assumed
    spare = outage_of(replace(found, job=job), Stated()).spare
    assert spare.away_fraction == pytest.approx(4 * 12 / (365 * 24), rel=0.01)


def test_a_spare_pays_where_nodes_are_away_for_long(found):
    """The run with a spare always trains as fast as the best plan of one node less."""
    changed = replace(with_rates(found, 0.4), anew=replace(found.best, rate=0.7))
    spare = outage_of(changed, STATED).spare
    assert spare.least_away_fraction == pytest.approx(0.3 / 0.6)
    assert spare.pays is None
    away = spare.least_away_fraction
    assert 1 - away + away * 0.4 == pytest.approx(0.7)
    for hours, pays in ((24 * 100, True), (24, False)):
        failures = FailureSpec(mtbf_node_days=365, checkpoint_gb_per_s=1, repair_hours=hours)
        cluster = changed.job.cluster.model_copy(update={"failures": failures})
        job = changed.job.model_copy(update={"cluster": cluster})
        assert outage_of(replace(changed, job=job), Stated()).spare.pays is pays


def test_more_nodes_are_no_outage(found):
    grown = replace(found, left=parse_cluster("5x4:h100-sxm"))
    outage = outage_of(grown, STATED)
    assert (outage.lost_nodes, outage.ways, outage.spare) == (-1, (), None)
