"""The best number of islands, or none, against a search of every number and of one island alone."""

import numpy as np
import pytest

from tests.grids import number
from trainplan.costmodel.base import SpecError
from trainplan.costmodel.hardware.cluster import BetweenGroups, parse_cluster
from trainplan.costmodel.job.job import Job, TrainingSpec
from trainplan.costmodel.job.outer import OuterSpec
from trainplan.costmodel.outer.islands import island_job
from trainplan.costmodel.presets.presets import preset
from trainplan.planner.plan import Plan, SearchOptions
from trainplan.planner.questions.best_plan import search as search_one
from trainplan.planner.questions.islands import search
from trainplan.planner.space import parse_choice

JOBS = number(3, by_night=60)
HELD = tuple(
    parse_choice(f"{one}=1", excluded=False) for one in ("tp", "pp", "cp", "micro_batch_size")
)


def drawn(rng):
    count = int(rng.integers(2, 5))
    cluster = parse_cluster("1x4:h100-sxm")
    group = cluster.groups[0].model_copy(update={"price_per_gpu_hour": 2.0})
    link = BetweenGroups(gb_per_s=float(10 ** rng.uniform(-2, 1)))
    update = {"groups": (group,) * count, "between_groups": link}
    return Job(
        model=preset("llama3.2-1b"),
        training=TrainingSpec(
            seq_length=1024, global_batch_size=int(rng.choice([8, 12, 24, 48])), tokens=10**10
        ),
        cluster=cluster.model_copy(update=update),
        runtime="torchtitan",
        outer=OuterSpec(every=int(rng.choice([2, 20, 200]))),
    )


def every_value(job, options):
    """Of each number of islands, of none on all of the cluster, and of each island alone."""
    outer, alone = job.outer, {"groups": job.cluster.groups[:1], "between_groups": None}
    jobs = [job.model_copy(update={"outer": None})]
    jobs.append(
        jobs[0].model_copy(update={"cluster": job.cluster.model_copy(update=alone)}),
    )
    for count in range(2, len(job.cluster.groups) + 1):
        own = outer.model_copy(update={"islands": count})
        try:
            jobs.append(island_job(job.model_copy(update={"outer": own})))
        except SpecError:
            assert job.training.global_batch_size % count
    found = (search_one(one, options) for one in jobs)
    return [one.certificate.objective.value for one in found if isinstance(one, Plan)]


@pytest.mark.parametrize("seed", range(JOBS))
def test_no_number_of_islands_is_better_than_the_answer(seed):
    rng = np.random.default_rng(seed)
    job = drawn(rng)
    options = SearchOptions(
        search_options="none",
        top=1,
        slack=0.0,
        fix=HELD,
        objective=("time", "cost", "energy")[seed % 3],
    )
    plan = search(job, options)
    best = min(every_value(job, options))
    target = plan.certificate.objective
    assert target.value == pytest.approx(best, rel=1e-6)
    assert target.lower_bound <= best * (1 + 1e-6)
    assert plan.job.islands + plan.outer_step.idle_islands <= len(job.cluster.groups)
    assert plan.certificate.optimal
