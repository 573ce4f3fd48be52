"""Failures in every objective: against brute force over parts, and what must hold of any run."""

import numpy as np
import pytest

from tests.grids import some_cases
from tests.properties.test_objectives import ALONE, CASES, EVEN, Everything, front
from trainplan.costmodel.base.errors import SpecError
from trainplan.costmodel.hardware.failures import FailureSpec
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.run_costs import goodput_of, stretch_of
from trainplan.planner.goals.cluster_sizes import part_jobs
from trainplan.planner.goals.fronts import pareto
from trainplan.planner.plan import SearchOptions
from trainplan.planner.questions import estimate
from trainplan.planner.questions.assumed_settings import StepFacts
from trainplan.planner.questions.best_plan import search

pytestmark = pytest.mark.usefixtures("quarters")

TOKENS = 10**9
DAY = 86_400


def with_failures(job, **stated):
    failures = FailureSpec(**stated) if stated else None
    cluster = job.cluster.model_copy(update={"failures": failures})
    return job.model_copy(update={"cluster": cluster})


@pytest.fixture(scope="module")
def plain(make_job):
    model, cluster, batch, memory = CASES[0]
    job = make_job(model, cluster, batch, tokens=TOKENS)
    changes = {"memory_gib": memory, "price_per_gpu_hour": 2.0}
    groups = tuple(group.model_copy(update=changes) for group in job.cluster.groups)
    return job.model_copy(update={"cluster": job.cluster.model_copy(update={"groups": groups})})


@pytest.fixture(scope="module")
def failing(plain):
    """Nodes that are away so often that one alone is done before both."""
    stated = {"mtbf_node_days": 1.0, "repair_hours": 18.0, "restart_minutes": 30.0}
    return with_failures(plain, **stated, checkpoint_gb_per_s=1.0)


class Passing(Everything):
    """All layouts of all parts, with what passes until a step is done."""

    def __init__(self, job):
        super().__init__(job)
        stretch = {one.cluster.num_gpus: stretch_of(one) for one in part_jobs(job)}
        each = np.array([stretch[int(count)] for count in self.figures["gpus"]])
        self.figures["passing"] = self.figures["time"] * each
        self.figures["cost"] = self.figures["cost"] * each


@pytest.fixture(scope="module")
def known(failing):
    return Passing(failing)


def test_the_fastest_is_the_one_that_ends_first(failing, known):
    plan = search(failing, SearchOptions(**ALONE))
    best = known.of("passing").argmin()
    assert known.of("gpus")[best] < failing.cluster.num_gpus, "a case worth having"
    assert plan.job.cluster.num_gpus == known.of("gpus")[best]
    assert plan.best.estimate.step_time_s == pytest.approx(known.of("time")[best])
    target = plan.certificate.objective
    assert target.value == target.lower_bound == plan.best.estimate.step_time_s
    whole = target.tried[-1].value / target.value
    assert whole == pytest.approx(
        known.of("passing", known.of("gpus") == failing.cluster.num_gpus).min()
        / known.of("passing")[best]
    )


@pytest.mark.parametrize("name", ["cost", "energy"])
def test_no_layout_on_any_part_is_cheaper_or_thriftier(failing, known, name):
    plan = search(failing, SearchOptions(objective=name, **ALONE))
    steps = -(-TOKENS // failing.training.tokens_per_step)
    value = plan.certificate.objective.value
    assert value == pytest.approx(steps * known.of(name).min(), rel=1e-9)
    spent = plan.spent or StepFacts.of(plan.job, plan.best.layout, plan.best.estimate)[0]
    run = spent.money_per_run if name == "cost" else spent.joules_per_step * steps
    assert run == pytest.approx(value, rel=1e-9)


def test_the_fewest_gpus_are_in_time_with_failures(failing, known):
    steps = -(-TOKENS // failing.training.tokens_per_step)
    found = set()
    for factor in (0.99, 1.01, 3.0):
        days = factor * steps * known.of("passing").min() / DAY
        options = SearchOptions(objective="gpus", deadline_days=days, **ALONE)
        enough = known.of("gpus", known.of("passing") * steps <= days * DAY).min()
        if np.isinf(enough):
            with pytest.raises(SpecError, match="raise --deadline"):
                search(failing, options)
            continue
        plan = search(failing, options)
        assert plan.job.cluster.num_gpus == enough
        took = plan.best.estimate.step_time_s * steps * stretch_of(plan.job)
        assert took <= days * DAY * (1 + 1e-9)
        found.add(enough)
    assert found


@pytest.mark.parametrize("pair", [("time", "gpus"), ("time", "cost")])
def test_choices_between_two_objectives_are_those_of_brute_force(failing, known, pair):
    result = pareto(failing.model_copy(update={"training": of_a_step(failing)}), pair)
    names = {"time": "passing"}
    first, second = (known.of(names.get(name, name)) for name in pair)
    assert [point.values for point in result.points] == [
        pytest.approx(point, rel=1e-7) for point in front(first, second)
    ]


def of_a_step(job):
    return job.training.model_copy(update={"tokens": None})


@pytest.mark.parametrize("name", ["time", "cost", "energy", "memory", "gpus"])
def test_without_failures_and_with_ones_that_never_come_the_answer_is_the_same(plain, name):
    rare = with_failures(plain, mtbf_node_days=1e6, restart_minutes=0, checkpoint_gb_per_s=1e6)
    options = SearchOptions(objective=name, fix=EVEN, **ALONE)
    off, on = search(plain, options), search(rare, options)
    assert off.best == on.best
    assert on.certificate.objective.value == pytest.approx(
        off.certificate.objective.value, rel=1e-4
    )


def test_off_is_the_same_to_the_bit_and_on_a_step_is_too(plain, failing):
    layout = Layout(dp=4)
    priced = [estimate(one, layout) for one in (plain, failing)]
    assert priced[0] == priced[1]
    off, on = (StepFacts.of(one, layout, priced[0])[0] for one in (plain, failing))
    assert off.goodput is None
    seconds = priced[0].step_time_s
    assert off.money_per_step == 4 * 2.0 / 3600 * seconds
    fraction = on.goodput.fraction
    assert on.money_per_run == pytest.approx(off.money_per_run / fraction)
    assert on.gpu_hours_per_run == pytest.approx(off.gpu_hours_per_run / fraction)
    assert off.kwh_per_run < on.kwh_per_run < off.kwh_per_run / fraction


def test_hours_and_money_have_the_same_nodes_spare_ones_with_them(plain):
    stated = {"mtbf_node_days": 30, "checkpoint_gb_per_s": 1, "repair_hours": 24}
    spared = with_failures(plain, spare_nodes=1, **stated)
    layout = Layout(dp=4)
    spent = StepFacts.of(spared, layout, estimate(spared, layout))[0]
    assert spent.money_per_run == pytest.approx(2.0 * spent.gpu_hours_per_run)


@pytest.mark.parametrize("seed", range(3))
def test_more_failures_or_a_slower_save_never_train_more(plain, seed):
    random = np.random.default_rng(seed)
    for _ in range(30):
        stated = {
            "mtbf_node_days": float(random.uniform(0.2, 500)),
            "restart_minutes": float(random.uniform(0, 120)),
            "checkpoint_gb_per_s": float(10 ** random.uniform(-2, 3)),
            "save": str(random.choice(["sync", "async", "local"])),
            "repair_hours": float(random.uniform(0.1, 100)),
            "spare_nodes": int(random.integers(0, 4)),
        }
        found = goodput_of(with_failures(plain, **stated))
        parts = (found.saving_fraction, found.lost_fraction, found.restart_fraction)
        assert found.fraction + sum(parts) + found.waiting_fraction == pytest.approx(1)
        assert min(found.fraction, *parts, found.waiting_fraction) >= 0
        for name, factor in (
            ("mtbf_node_days", 0.7),
            ("restart_minutes", 1.5),
            ("checkpoint_gb_per_s", 0.6),
            ("repair_hours", 1.5),
        ):
            worse = goodput_of(with_failures(plain, **stated | {name: stated[name] * factor}))
            assert worse.fraction <= found.fraction * (1 + 1e-4), name
        more = stated["spare_nodes"] + 1
        spared = goodput_of(with_failures(plain, **stated | {"spare_nodes": more}))
        assert spared.fraction >= found.fraction


@pytest.mark.parametrize("name", ["time", "cost", "energy", "gpus"])
def test_parts_on_which_the_run_does_not_end_are_no_answer(plain, name):
    """One node has no other that a local save could lie on: of two, both are used."""
    local = with_failures(plain, mtbf_node_days=30.0, save="local")
    assert stretch_of(local) < np.inf
    plan = search(local, SearchOptions(objective=name, **ALONE))
    assert plan.job.cluster == local.cluster
    nodes = tuple(one.model_copy(update={"num_nodes": 1}) for one in local.cluster.groups)
    cluster = local.cluster.model_copy(update={"groups": nodes})
    alone = local.model_copy(update={"cluster": cluster})
    for whole in (False, True):
        options = SearchOptions(objective=name, whole_cluster=whole, **ALONE)
        if not (whole and name == "time"):  # a step of it has a price
            with pytest.raises(SpecError, match="has one: give --save async"):
                search(alone, options)


@pytest.mark.parametrize(
    "pair", some_cases([("cost", "time"), ("time", "memory"), ("energy", "gpus")], 1)
)
def test_no_choice_is_one_of_a_run_that_does_not_end(plain, pair):
    local = with_failures(plain, mtbf_node_days=30.0, save="local")
    points = pareto(local, pair).points
    assert points and {one.num_gpus for one in points} == {local.cluster.num_gpus}
