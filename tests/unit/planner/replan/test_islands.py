"""What to go on with where an island loses nodes: all of them smaller, fewer, or one alone."""

from dataclasses import replace
from random import Random

import pytest

from tests.grids import number
from trainplan.costmodel.base.errors import SpecError
from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.costmodel.job.outer import OuterSpec
from trainplan.costmodel.outer import island_job, whole_cluster
from trainplan.planner.cases import Case
from trainplan.planner.operations import checkpoint_move
from trainplan.planner.plan.options import SearchOptions
from trainplan.planner.questions import search
from trainplan.planner.replan import Stated, islands_of, left_of, outage_of, replan
from trainplan.planner.work import Unlimited

OPTIONS = SearchOptions(search_options="none", only_answer=True)


@pytest.fixture(scope="module")
def planned(make_job):
    def make(islands, nodes, batch=24, gb_per_s=0.5):
        job = make_job("small-dense", f"{nodes}x4:h100-sxm", batch, 512)
        outer = OuterSpec(islands=islands, every=100, gb_per_s=gb_per_s)
        job = job.model_copy(update={"runtime": "torchtitan", "outer": outer})
        return Case(job, OPTIONS), search(job, OPTIONS).best.layout

    return make


def replanned(case, layout, *lost, **how):
    whole = whole_cluster(case.job, case.job.cluster)
    left = left_of(whole, lost, islands=True)
    return replan(case, layout, left, Unlimited(), **how)


def sizes(cluster):
    return [one.num_nodes for one in cluster.groups]


def shape(one):
    """Islands, nodes of each, and the batch of all."""
    job = one.plan.job
    return job.islands, job.cluster.num_nodes, job.islands * job.training.global_batch_size


def test_all_islands_go_on_with_a_node_less_or_fewer_or_one_alone(planned):
    found = replanned(*planned(3, 2), "1")
    assert sizes(found.left) == [2, 2, 1]
    assert shape(found.best) == (3, 1, 72)
    assert shape(found.fewer) == (2, 2, 72)
    assert shape(found.alone) == (1, 2, 72)
    assert found.alone.plan.job.outer is None
    for one in (found.fewer, found.alone):
        assert "in place of 3 islands" in one.changes[0]
        assert one.checkpoint.loads == "after"
    assert found.fewer.plan.outer_step.islands == 2
    outage = outage_of(found, Stated(600.0, 300.0, 7200.0, 0))
    assert outage.lost_nodes == 1
    assert {one.name for one in outage.ways} > {
        "go on",
        "go on with fewer islands",
        "go on without outer steps",
    }
    rates = {"go on": found.best, "go on with fewer islands": found.fewer}
    assert all(one.rate == rates[one.name].rate for one in outage.ways if one.name in rates)


def test_an_island_that_is_lost_whole_leaves_the_others(planned):
    case, layout = planned(2, 2)
    found = replanned(case, layout, "2")
    assert sizes(found.left) == [2]
    assert shape(found.best) == (1, 2, 48)
    assert found.fewer is found.alone is None
    spread = replanned(case, layout, "0:1", "1:1")
    assert shape(spread.best) == (2, 1, 48)
    assert spread.alone is not None
    with pytest.raises(SpecError, match="no node is left"):
        replanned(case, layout, "4")
    with pytest.raises(SpecError, match="are lost, and the plan has 2 such nodes"):
        replanned(case, layout, "5")


def test_a_batch_that_does_not_divide_is_offered_with_one_that_does(planned):
    case, layout = planned(4, 1, batch=8)
    found = replanned(case, layout, "1")
    assert found.undivided == (3,)
    assert found.best is None
    assert shape(found.batch) == (3, 1, 24)
    assert found.batch.plan.best.layout == layout
    assert "24 sequences a step in place of 32" in found.batch.changes[-1]
    assert found.fastest == "alone"
    stated = replanned(case, layout, "1", batch=24)
    assert shape(stated.best) == (3, 1, 24)


def test_idle_islands_are_the_first_spares(planned):
    case, layout = planned(2, 1)
    whole = whole_cluster(case.job, case.job.cluster, 1)
    left = left_of(whole, ["1"], islands=True)
    outage = outage_of(replan(case, layout, left, Unlimited(), idle_nodes=1), Stated())
    assert (outage.lost_nodes, outage.first) == (1, "spare nodes")


def test_a_cluster_is_that_of_all_islands(planned):
    case, _ = planned(3, 2)
    shared = islands_of(case.job, parse_cluster("5x4:h100-sxm"))
    assert sizes(shared) == [2, 2, 1]
    assert sizes(islands_of(case.job, parse_cluster("2x4:h100-sxm"))) == [1, 1]
    stated = parse_cluster("2x4:h100-sxm+1x4:h100-sxm")
    assert islands_of(case.job, stated) == stated
    with pytest.raises(SpecError, match="differ: islands"):
        islands_of(case.job, parse_cluster("2x4:h100-sxm+1x4:a100-sxm-80gb"))


def test_no_part_that_is_searched_alone_is_faster(planned):
    random = Random(5)
    for _ in range(number(2, 100)):
        islands, nodes = random.choice(((2, 2), (3, 2), (4, 1), (2, 3)))
        case, layout = planned(islands, nodes, batch=24, gb_per_s=random.choice((0.05, 0.5, 5.0)))
        found = replanned(case, layout, str(random.randint(1, nodes)))
        have = [0, *sizes(found.left)]
        for one in filter(None, (found.best, found.after, found.fewer, found.alone)):
            count, size, batch = shape(one)
            assert sum(some >= size for some in have) >= count
            outer = case.job.outer.model_copy(update={"islands": count, "gb_per_s": None})
            island = case.job.cluster.with_nodes([size])
            job = case.job.model_copy(
                update={"cluster": island, "outer": None if count == 1 else outer}
            )
            training = job.training.model_copy(update={"global_batch_size": batch})
            whole = island.repeated(count, case.job.outer.gb_per_s, 0.0) if count > 1 else island
            job = job.model_copy(update={"training": training, "cluster": whole})
            best = search(island_job(job), OPTIONS).best.estimate.step_time_s
            assert one.plan.best.estimate.step_time_s >= best * (1 - 1e-9)
            if one is found.fewer or one is found.alone or one is found.after:
                assert one.plan.best.estimate.step_time_s == pytest.approx(best, rel=1e-9)


def test_another_number_of_islands_starts_the_data_anew(planned):
    case, layout = planned(3, 2)
    other = case.job.model_copy(update={"outer": case.job.outer.model_copy(update={"islands": 2})})
    move = checkpoint_move(case.job, layout, other, layout)
    assert (move.loads, move.why) == ("after", "another number of islands")
    assert "ft-replicat-*" in move.commands[0]
    alone = replace(case, job=case.job.model_copy(update={"outer": None})).job
    assert "exclude_from_loading" in checkpoint_move(case.job, layout, alone, layout).commands[0]
