"""A search has a good answer long before its proof."""

import pytest

from trainplan.costmodel.calibration.machine import NOTHING
from trainplan.planner.goals.context import SearchContext
from trainplan.planner.plan.options import SearchOptions
from trainplan.planner.tree.pool import Pool
from trainplan.planner.work.budget import Unlimited


@pytest.mark.parametrize(
    ("model", "cluster", "batch"),
    [("mixtral-8x22b", "8x8:h100-sxm", 256), ("llama3-70b", "8x8:h100-sxm", 128)],
)
def test_the_first_turn_ends_with_an_answer_near_the_last_one(make_job, model, cluster, batch):
    job = make_job(model, cluster, batch, 4096)
    one = SearchContext.of(job, SearchOptions(), NOTHING, Unlimited()).search(top=1)
    one.step()
    assert one.turn == 1
    first = one.value
    assert one.run(Unlimited()).value <= first <= 1.02 * one.value
    assert one.smallest >= one.value


def test_of_branches_alike_in_some_columns_the_one_with_the_smallest_bound_goes_first(make_job):
    job = make_job("small-dense", "1x8:h100-sxm", 32, 4096)
    nodes = SearchContext.of(job, SearchOptions(), NOTHING, Unlimited()).search(top=1).nodes
    chosen, rest = nodes.pop_kinds(("tp", "pp"), 3)
    assert len({(one.tp, one.pp) for one in map(chosen.table.row, range(3))}) == len(chosen.bound)
    assert sorted(chosen.bound) == chosen.bound.tolist()
    assert chosen.smallest == nodes.smallest
    assert sorted(Pool.concat([chosen, rest]).bound) == sorted(nodes.bound)
