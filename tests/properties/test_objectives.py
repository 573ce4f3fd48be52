"""Every objective against brute force, and what must hold between answers."""

import numpy as np
import pytest

from tests.grids import number, some_cases
from tests.properties.test_search_is_exact import every_legal_layout
from trainplan.costmodel.base.errors import SpecError
from trainplan.costmodel.candidates.context import Candidates
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.machine import machine_of
from trainplan.costmodel.run_costs.energy import energy_of
from trainplan.costmodel.runtimes.registry import traits_of
from trainplan.costmodel.step import price
from trainplan.costmodel.step.node_bound import node_bound_seconds
from trainplan.costmodel.step.simulate import step_seconds
from trainplan.planner.evidence.evidence import unpublished
from trainplan.planner.evidence.shape import Setup
from trainplan.planner.evidence.trusted import published_rules
from trainplan.planner.goals.cluster_sizes import part_jobs
from trainplan.planner.goals.fronts import PAIRS, pareto
from trainplan.planner.plan.plan import FREE
from trainplan.planner.questions.best_plan import SearchOptions, search
from trainplan.planner.space.choices import parse_choice
from trainplan.planner.tree.result import StepEnergy, complexity

pytestmark = pytest.mark.usefixtures("quarters")

ALONE = {"only_answer": True, "search_options": "none"}
"""What brute force knows of: even stages, and the settings of the job."""

EVEN = (parse_choice("stages=even", excluded=False),)
CASES = [("small-dense", "2x2:h100-sxm", 8, 80), ("small-dense", "3x2:a100-sxm-40gb", 12, 3)]
MOE = ("small-moe", "2x1:h100-sxm", 2, 4)
TINY = ("small-dense", "2x1:h100-sxm", 1, 80)
SHORT = ("small-dense", "2x1:h100-sxm", 1, 80, 2)
ONE_GPU = ("small-dense", "1x1:h100-sxm", 1, 80, 2)


@pytest.fixture(scope="module")
def priced_job(make_job):
    """A job whose GPUs have a price and so much memory, maybe with so few layers."""

    def make(case, price_per_gpu_hour=2.0, tokens=None):
        model, cluster, batch, memory, *layers = case
        job = make_job(model, cluster, batch, tokens=tokens)
        few = {"num_hidden_layers": layers[0]} if layers else {}
        job = job.model_copy(update={"model": job.model.model_copy(update=few)})
        changes = {"memory_gib": memory, "price_per_gpu_hour": price_per_gpu_hour}
        groups = tuple(group.model_copy(update=changes) for group in job.cluster.groups)
        return job.model_copy(update={"cluster": job.cluster.model_copy(update={"groups": groups})})

    return make


class Everything:
    """Every layout of every size of a job that fits, with all its figures."""

    def __init__(self, job):
        parts = [self._figures(one) for one in part_jobs(job)]
        self.figures = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    @staticmethod
    def _figures(job):
        machine, traits = machine_of(job.cluster, "bf16"), traits_of(job)
        table = every_legal_layout(job)
        used = price(Candidates(job, machine, traits, table)).memory.used
        fits = used <= machine.memory_bytes * (1 - SearchOptions().margin(job))
        table, used = table.take(fits), used[fits]
        time = step_seconds(Candidates(job, machine, traits, table))
        gpus = np.full(len(time), float(job.cluster.num_gpus))
        hourly = job.cluster.groups[0].price_per_gpu_hour
        return {
            "time": time,
            "memory": used,
            "gpus": gpus,
            "cost": time * gpus * hourly / 3600,
            "complexity": complexity(table),
            "beyond": np.any([one.broken(job, table) for one in published_rules(job)], axis=0),
            "energy": StepEnergy(energy_of(job, machine, traits)).value(table, time),
        }

    def of(self, name, where=None):
        values = self.figures[name]
        return values if where is None else np.where(where, values, np.inf)


@pytest.fixture(scope="module")
def everything(priced_job):
    return {case: Everything(priced_job(case)) for case in [*CASES, MOE, TINY, SHORT, ONE_GPU]}


@pytest.mark.grid
@pytest.mark.parametrize("case", [*CASES, MOE])
@pytest.mark.parametrize("name", ["cost", "energy"])
def test_no_layout_of_any_size_is_cheaper_or_thriftier_than_the_answer(
    priced_job, everything, case, name
):
    plan = search(priced_job(case), SearchOptions(objective=name, **ALONE))
    target = plan.certificate.objective
    assert target.value == pytest.approx(everything[case].of(name).min(), rel=1e-9)
    assert plan.certificate.optimal
    assert target.lower_bound == target.value
    assert [one.num_gpus for one in target.tried] == sorted({one.num_gpus for one in target.tried})


@pytest.mark.grid
@pytest.mark.parametrize("case", [*CASES, MOE])
@pytest.mark.parametrize("slack", [0.0, 0.3])
def test_no_layout_within_the_slack_has_more_headroom(priced_job, everything, case, slack):
    job = priced_job(case)
    options = SearchOptions(
        objective="memory", slack=slack, only_answer=True, search_options="none"
    )
    plan, known = search(job, options), everything[case]
    whole = known.of("gpus") == job.cluster.num_gpus
    fastest = known.of("time", whole).min()
    close = whole & (known.of("time") <= fastest * (1 + slack) * (1 + 1e-12))
    target = plan.certificate.objective
    assert target.value == pytest.approx(known.of("memory", close).min(), rel=1e-9)
    assert plan.best.estimate.step_time_s <= fastest * (1 + slack) * (1 + 1e-9)
    assert plan.best.estimate.memory.peak_reserved_bytes == pytest.approx(target.value, rel=1e-9)
    assert plan.certificate.optimal


@pytest.mark.grid
@pytest.mark.parametrize("case", [*CASES, MOE])
@pytest.mark.parametrize("slack", [0.02, 0.3])
def test_the_answer_is_the_simplest_within_the_slack_and_the_proof_of_the_fastest(
    priced_job, everything, case, slack
):
    job, known = priced_job(case), everything[case]
    plan = search(job, SearchOptions(slack=slack, search_options="none", fix=EVEN))
    whole = known.of("gpus") == job.cluster.num_gpus
    like = whole & ~known.of("beyond")
    if plan.certificate.trusted:
        whole = like
    fastest = known.of("time", whole).min()
    near = whole & (known.of("time") <= fastest * (1 + slack))
    if unpublished(Setup.of(job), plan.best.layout):
        assert not like.any()
    else:
        near &= like
    answer = complexity(LayoutTable.of([plan.best.layout]))[0]
    assert answer == known.of("complexity", near).min()
    assert plan.fastest.estimate.step_time_s == pytest.approx(fastest, rel=1e-9)
    assert plan.best.estimate.step_time_s <= fastest * (1 + slack)
    assert plan.certificate.optimal
    rest = [one.estimate.step_time_s for one in plan.candidates[1:]]
    assert rest == sorted(rest)


@pytest.mark.parametrize("case", [*CASES, MOE])
def test_no_layout_that_leaves_a_tenth_of_the_memory_is_faster_than_the_one_named(
    priced_job, everything, case
):
    job, known = priced_job(case), everything[case]
    plan = search(job, SearchOptions(search_options="none", fix=EVEN))
    capacity = plan.best.estimate.memory.capacity_bytes
    whole = known.of("gpus") == job.cluster.num_gpus
    free = whole & (known.of("memory") <= capacity * (1 - FREE))
    if plan.certificate.trusted:
        free &= ~known.of("beyond")
    if plan.best.is_roomy:
        return
    assert plan.roomy.estimate.step_time_s == pytest.approx(known.of("time", free).min(), rel=1e-9)


def test_more_slack_never_means_less_headroom(make_job):
    job = make_job("llama3-8b", "1x8:h100-sxm", 32, 4096)
    uneven_result = [
        search(
            job,
            SearchOptions(objective="memory", slack=slack, **ALONE),
        ).best.estimate.memory.headroom_bytes
        for slack in (0.0, 0.05, 0.2)
    ]
    assert uneven_result == sorted(uneven_result)
    assert uneven_result[0] < uneven_result[-1]


def deadlines(known, steps):
    """Days with which one size more is enough each, and days that no size meets."""
    times, gpus = known.of("time"), known.of("gpus")
    fastest = sorted(times[gpus == count].min() for count in np.unique(gpus))
    return [steps * seconds * factor / 86_400 for seconds in fastest for factor in (0.999, 1.001)]


@pytest.mark.parametrize("case", CASES)
def test_the_fewest_gpus_are_those_brute_force_finds(priced_job, everything, case):
    job = priced_job(case, tokens=10**9)
    steps = -(-(10**9) // job.training.tokens_per_step)
    known, found = everything[case], []
    for days in deadlines(known, steps):
        options = SearchOptions(
            objective="gpus", deadline_days=days, only_answer=True, search_options="none"
        )
        enough = known.of("gpus", known.of("time") * steps <= days * 86_400).min()
        if np.isinf(enough):
            with pytest.raises(SpecError, match="raise --deadline"):
                search(job, options)
        else:
            plan = search(job, options)
            assert plan.job.cluster.num_gpus == enough == plan.certificate.objective.value
            assert plan.best.estimate.step_time_s * steps <= days * 86_400
            found.append(plan.job.cluster.num_gpus)
    options = SearchOptions(objective="gpus", only_answer=True, search_options="none")
    plan, fewest = search(job, options), known.of("gpus").min()
    assert plan.job.cluster.num_gpus == fewest == plan.certificate.objective.value
    times = known.of("time", known.of("gpus") == fewest)
    assert plan.best.estimate.step_time_s <= times.min() * (1 + 1e-9)
    assert plan.certificate.objective.lower_bound == fewest
    assert found == sorted(found, reverse=True), "a later deadline never needs more GPUs"
    assert len(set(found)) > 1


def test_a_cheaper_price_never_costs_more(priced_job):
    options = SearchOptions(objective="cost", **ALONE)
    costs = [
        search(priced_job(CASES[0], price), options).certificate.objective.value
        for price in (0.5, 1.0, 3.0)
    ]
    assert costs == sorted(costs)
    assert costs[2] == pytest.approx(6 * costs[0])


@pytest.mark.parametrize("name", ["cost", "energy"])
def test_an_earlier_deadline_never_makes_a_run_cheaper(priced_job, everything, name):
    case = CASES[0]
    job, costs = priced_job(case, tokens=10**9), []
    steps = -(-(10**9) // job.training.tokens_per_step)
    for days in deadlines(everything[case], steps)[1:]:
        options = SearchOptions(
            objective=name, deadline_days=days, only_answer=True, search_options="none"
        )
        plan = search(job, options)
        assert plan.best.estimate.step_time_s <= plan.certificate.objective.step_time_limit_s
        costs.append(plan.certificate.objective.value)
    assert costs == sorted(costs, reverse=True)
    assert costs[0] > costs[-1]


@pytest.mark.parametrize(
    ("pair", "case"),
    some_cases(
        [(pair, one) for pair in PAIRS if "memory" not in pair for one in (TINY, MOE)]
        + [(pair, ONE_GPU) for pair in PAIRS if "memory" in pair]
        + [(("time", "memory"), SHORT)],
        6,
    ),
)
def test_the_choices_between_two_objectives_are_those_brute_force_finds(
    priced_job, everything, case, pair
):
    job, known = priced_job(case), everything[case]
    result = pareto(job, pair)
    first, second = (known.of(name) for name in pair)
    if set(pair) == {"time", "memory"}:
        second = np.where(known.of("gpus") == job.cluster.num_gpus, second, np.inf)
    expected = front(first, second)
    assert result.complete
    assert [point.values for point in result.points] == [
        pytest.approx(point, rel=1e-7) for point in expected
    ]


def front(first, second):
    """The points no other beats, those within 0.01 % of one in both figures once."""
    order = np.lexsort((second, first))
    kept = []
    for a, b in zip(first[order].tolist(), second[order].tolist(), strict=True):
        if np.isfinite(b) and (not kept or b < kept[-1][1] * (1 - 1e-8)):
            kept.append((a, b))
    separate = kept[:1]
    for point in kept[1:]:
        if not np.allclose(point, separate[-1], rtol=1e-4, atol=0):
            separate.append(point)
    return separate


@pytest.mark.parametrize("model", ["small-dense", "small-moe"])
@pytest.mark.parametrize("runtime", ["megatron-lm", "torchtitan"])
def test_no_bound_of_the_energy_exceeds_its_true_value(make_job, model, runtime):
    job = make_job(model, "2x4:h100-sxm", 16).model_copy(update={"runtime": runtime})
    machine, traits = machine_of(job.cluster, "bf16"), traits_of(job)
    table = every_legal_layout(job)
    rng = np.random.default_rng(7)
    table = table.take(rng.choice(len(table), size=number(1000, by_night=3000)))
    objective = StepEnergy(energy_of(job, machine, traits))
    floor = objective.node_bound(table, node_bound_seconds(Candidates(job, machine, traits, table)))
    bound = objective.bound(price(Candidates(job, machine, traits, table)))
    value = objective.value(table, step_seconds(Candidates(job, machine, traits, table)))
    assert (floor <= bound * (1 + 1e-12)).all()
    assert (bound <= value * (1 + 1e-12)).all()
    assert (bound > 0.8 * value).mean() > 0.5, "a bound worth having"
