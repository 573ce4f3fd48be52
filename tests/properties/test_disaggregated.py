"""A tower on GPUs of its own: the answer against every split searched, and what it promises."""

from functools import cache

import numpy as np
import pytest

from tests.conftest import TOWER
from tests.grids import EXACT, some_cases
from trainplan.costmodel.base.errors import SpecError
from trainplan.costmodel.disaggregated import (
    TowerStep,
    decoder_alone,
    exposed_by_handing_over,
    joined,
    least_exposed,
    tower_on_gpus,
    waiting_samples,
)
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.machine import machine_of
from trainplan.planner.questions.best_plan import SearchOptions, search

SEPARATE = SearchOptions(**EXACT, tower="apart", search_options="none")
CASES = [
    ("1x4:h100-sxm", 16, {}),
    ("1x4:a100-sxm-40gb", 24, {"samples_per_sequence": 2}),
    ("4x2:h100-sxm", 16, {"frozen": "encoder", "tensor_parallel": False}),
    ("3x4:h100-sxm", 24, {"frozen": "all"}),
    ("1x8:l4", 16, {"num_hidden_layers": 24}),
]


def seeing(make_job, cluster, batch, fields):
    job = make_job("small-seeing", cluster, batch)
    tower = TOWER.model_copy(update=fields)
    return job.model_copy(update={"model": job.model.model_copy(update={"tower": tower})})


@pytest.fixture(scope="module")
def answer(make_job):
    """(cluster, batch, fields) -> the job and its plan, searched once."""

    @cache
    def searched(cluster, batch, fields):
        job = seeing(make_job, cluster, batch, dict(fields))
        return job, search(job, SEPARATE)

    return lambda cluster, batch, fields: searched(cluster, batch, tuple(fields.items()))


def part_of(job, nodes, gpus):
    group = job.cluster.groups[0].model_copy(update={"num_nodes": nodes, "gpus_per_node": gpus})
    cluster = job.cluster.model_copy(update={"groups": (group,)})
    return job.model_copy(update={"cluster": cluster})


def parts(job):
    """Every split: whole nodes, or GPUs of the one node."""
    group = job.cluster.groups[0]
    nodes, gpus = group.num_nodes, group.gpus_per_node
    if nodes > 1:
        return [(part_of(job, n, gpus), part_of(job, nodes - n, gpus)) for n in range(1, nodes)]
    return [(part_of(job, 1, n), part_of(job, 1, gpus - n)) for n in range(1, gpus)]


def limit(job):
    return machine_of(job.cluster, "bf16").memory_bytes * (1 - SearchOptions().margin(job))


def step_of(job, own, plan, candidate):
    """Seconds of a split with one of the layouts of its decoder."""
    layout, machine = candidate.layout, machine_of(plan.job.cluster, "bf16")
    waiting = waiting_samples(job, layout)
    tower = tower_on_gpus(own, machine_of(own.cluster, "bf16"), limit(own), waiting)
    if tower is None:
        return np.inf
    exposed = exposed_by_handing_over(job, machine, tower, layout.micro_batch_size, layout.dp)
    decoder_s = candidate.estimate.step_time_s
    return max(decoder_s + exposed[0], tower.step_s + exposed[1])


@pytest.mark.parametrize(("cluster", "batch", "fields"), some_cases(CASES[1:], 1))
def test_no_split_that_is_searched_whole_is_faster(answer, cluster, batch, fields):
    job, plan = answer(cluster, batch, fields)
    found = plan.apart
    every = {}
    for own, rest in parts(job):
        plan = search(decoder_alone(rest), SearchOptions(**EXACT, search_options="none"))
        if hasattr(plan, "best"):
            every[own.cluster.num_gpus] = min(step_of(job, own, plan, c) for c in plan.candidates)
    assert found.step_time_s <= min(every.values()) * (1 + 1e-9)
    assert found.step_time_s == pytest.approx(every[found.tower_gpus])
    assert found.lower_bound_s <= found.step_time_s
    for one in found.splits:
        step = every.get(one.tower_gpus, np.inf)
        assert one.lower_bound_s is None or one.lower_bound_s <= step * (1 + 1e-9)


@pytest.mark.parametrize(("cluster", "batch", "fields"), some_cases(CASES[1:3], 2))
def test_the_parts_fill_the_cluster_and_unified_is_what_a_search_finds(
    answer, cluster, batch, fields
):
    job, plan = answer(cluster, batch, fields)
    apart = plan.apart
    assert apart.tower_gpus + apart.decoder_gpus == job.cluster.num_gpus
    assert apart.tower_tp * apart.tower_dp == apart.tower_gpus
    assert plan.job.cluster.num_gpus == apart.decoder_gpus
    assert plan.job.model.tower is None
    assert plan.best.estimate.step_time_s == pytest.approx(apart.decoder_step_s)
    assert apart.tower_used_bytes <= limit(job)
    unified = search(job, SearchOptions(**EXACT, search_options="none")).best.estimate.step_time_s
    assert apart.unified_step_s == pytest.approx(unified)
    assert apart.step_time_s >= max(apart.tower_step_s, apart.decoder_step_s)


def test_more_gpus_never_slow_a_tower_down_whose_samples_they_divide(make_job):
    job = seeing(make_job, "1x8:h100-sxm", 64, {"tensor_parallel": False})
    steps = []
    for gpus in (1, 2, 4, 8):
        own = part_of(job, 1, gpus)
        steps.append(tower_on_gpus(own, machine_of(own.cluster, "bf16"), limit(own), 4).step_s)
    assert steps == sorted(steps, reverse=True)


def test_less_memory_makes_a_tower_keep_less_and_take_longer(make_job):
    own = part_of(seeing(make_job, "1x8:h100-sxm", 64, {}), 1, 2)
    machine = machine_of(own.cluster, "bf16")
    ways = [tower_on_gpus(own, machine, gib * 2**30, 256) for gib in (75, 6, 3.5, 2.9)]
    kept = [one.keeps for one in ways]
    assert kept[0] == "all" and "all" not in kept[2:]
    steps = [one.step_s for one in ways]
    assert steps == sorted(steps)
    for one, gib in zip(ways, (75, 6, 3.5, 2.9), strict=True):
        assert one.used_bytes <= gib * 2**30
    assert tower_on_gpus(own, machine, 2**30, 256) is None


def test_a_decoder_holds_the_samples_of_a_full_pipeline_and_of_one_micro_batch_more(make_job):
    job = seeing(make_job, "1x8:h100-sxm", 64, {"samples_per_sequence": 3})
    assert waiting_samples(job, Layout(pp=4, dp=2, micro_batch_size=2)) == (4 + 1) * 2 * 2 * 3
    assert waiting_samples(job, Layout(pp=4, dp=2, micro_batch_size=16)) == (2 + 1) * 2 * 16 * 3


def test_the_decoder_waits_for_the_samples_of_its_first_micro_batches(make_job):
    job = seeing(make_job, "2x4:h100-sxm", 64, {"samples_per_sequence": 3})
    machine = machine_of(job.cluster, "bf16")
    step = TowerStep(4, 1, 4, 2, "all", 1.0, 0.2, 0.4, used_bytes=1.0, least_sample_s=0.1)
    # two sequences of 3 x 256 tokens of 1,024 columns in bf16, by one network card
    nic = machine.nic_bytes_per_second * machine.constants.nic_efficiency
    message = machine.constants.p2p_alpha + 2 * 3 * 256 * 1024 * 2 / nic
    # 4 replicas of the decoder with 2 sequences of 3 samples are 6 for each replica of the tower
    waits, sends = exposed_by_handing_over(job, machine, step, 2, 4)
    assert waits == pytest.approx(6 / 2 * (0.2 + 0.4) + 2 * message)
    assert sends == pytest.approx(2 * message)
    frozen = seeing(make_job, "2x4:h100-sxm", 64, {"samples_per_sequence": 3, "frozen": "all"})
    assert exposed_by_handing_over(frozen, machine, step, 2, 4) == pytest.approx((message, message))
    assert least_exposed(job, machine, step)[0] < waits
    assert joined(5.0, 4.0, (0.5, 0.1)) == 5.5
    assert joined(5.0, 6.0, (0.5, 0.1)) == 6.1


@pytest.mark.parametrize(
    ("model", "cluster", "options", "says"),
    [
        ("small-dense", "1x4:h100-sxm", {}, "small-dense has no tower"),
        ("small-seeing", "1x1:h100-sxm", {}, "needs two GPUs or more"),
        ("small-seeing", "1x4:h100-sxm+1x4:h200-sxm", {}, "splits equal nodes"),
        ("small-seeing", "1x4:h100-sxm", {"objective": "memory"}, "leave --objective out"),
        ("small-seeing", "1x4:h100-sxm", {"trusted": True}, "drop --trusted"),
    ],
)
def test_what_cannot_be_split_is_refused_in_one_line(make_job, model, cluster, options, says):
    with pytest.raises(SpecError, match=says) as refused:
        search(make_job(model, cluster, 16), SEPARATE.model_copy(update=options))
    assert "\n" not in str(refused.value)


def test_a_runtime_that_shards_more_is_refused(make_job):
    job = make_job("small-seeing", "1x4:h100-sxm", 16).model_copy(update={"runtime": "accelerate"})
    with pytest.raises(SpecError, match="accelerate"):
        search(job, SEPARATE)


def test_samples_that_do_not_fit_into_the_sequence_are_refused(make_job):
    job = seeing(make_job, "1x4:h100-sxm", 16, {"samples_per_sequence": 9})
    with pytest.raises(SpecError, match=r"9 samples of 256 tokens .* seq_length = 2048"):
        search(job, SearchOptions(**EXACT))


def test_the_decoder_is_priced_under_the_settings_of_its_answer(make_job):
    """20 micro batches on 6 ranks run in groups of 7 alone, which is a setting."""
    job = seeing(make_job, "1x8:h100-sxm", 20, {})
    plan = search(job, SEPARATE.model_copy(update={"search_options": "safe"}))
    assert plan.apart.decoder_step_s == pytest.approx(plan.best.estimate.step_time_s, rel=1e-12)
