"""The shape of the network: off is today's price to the bit, and a search knows of it."""

import numpy as np
import pytest

from tests.conftest import legal, random_rows
from tests.properties.test_objectives import ALONE
from tests.properties.test_search_is_exact import every_legal_layout
from trainplan.costmodel.candidates.context import Candidates
from trainplan.costmodel.hardware import FabricTier
from trainplan.costmodel.machine import machine_of
from trainplan.costmodel.runtimes.registry import traits_of
from trainplan.costmodel.step.simulate import step_seconds
from trainplan.planner.plan import SearchOptions
from trainplan.planner.questions.best_plan import search

pytestmark = pytest.mark.usefixtures("quarters")


def on(job, **stated):
    return job.model_copy(update={"cluster": job.cluster.model_copy(update=stated)})


def seconds(job, table):
    return step_seconds(Candidates(job, machine_of(job.cluster, "bf16"), traits_of(job), table))


@pytest.mark.parametrize("model", ["small-dense", "small-moe"])
def test_a_network_costs_nothing_where_all_stays_on_rails(make_job, model):
    """Random layouts: none is faster on rails alone, and dense ones of whole nodes cost the same.

    Parts of a layout that lie in whole nodes: tp within one, stages and replicas of whole ones.
    """
    job = make_job(model, "8x4:h100-sxm", 64)
    table = legal(job, random_rows(job, 2000, np.random.default_rng(5)))
    plain, rails = (seconds(on(job, network=one), table) for one in ("any-to-any", "rail-only"))
    assert (rails >= plain * (1 - 1e-12)).all()
    whole = (4 % table.tp == 0) & (table.cp == 1) & (table.dp * table.tp % 4 == 0)
    within = whole & (table.ep * table.etp <= 4)
    assert within.sum() > 20
    assert (rails[within] == plain[within]).all()
    assert (rails > plain * (1 + 1e-6)).any() == (model == "small-moe")


@pytest.mark.parametrize("model", ["small-dense", "small-moe"])
def test_no_layout_on_rails_is_faster_than_the_answer(make_job, model):
    job = on(make_job(model, "3x2:h100-sxm", 12), network="rail-only")
    found = search(job, SearchOptions(**ALONE))
    assert found.best.estimate.step_time_s == pytest.approx(
        seconds(job, every_legal_layout(job)).min(), rel=1e-9
    )


@pytest.mark.parametrize("over", [1.0, 2.0])
def test_hashed_flows_are_never_faster_than_planned_ones(make_job, over):
    """Nor slower inside a switch; where each GPU has many flows they are nearly as fast."""
    job = make_job("small-moe", "8x4:h100-sxm", 64)
    table = legal(job, random_rows(job, 2000, np.random.default_rng(7)))

    def with_tier(**stated):
        tier = FabricTier(reach_gpus=8, oversubscription=over, **stated)
        return seconds(on(job, fabric=(tier,)), table)

    planned = with_tier()
    hashed = [with_tier(ecmp_uplinks=4, flows_per_gpu=n) for n in (1, 8, 512)]
    assert (hashed[0] > planned * 1.01).any()
    for one in hashed:
        assert (one >= planned * (1 - 1e-12)).all()
    assert hashed[0].mean() > hashed[1].mean() > hashed[2].mean()
    assert hashed[2] == pytest.approx(planned, rel=0.05)
