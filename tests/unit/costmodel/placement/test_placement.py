"""Placing nodes on measured links: what an order costs, and which one is chosen."""

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from pydantic import ValidationError

from trainplan.costmodel.calibration.machine import machine_for
from trainplan.costmodel.comm.topology import Places
from trainplan.costmodel.hardware.cluster import ClusterSpec, LinkSpec, NicSpec
from trainplan.costmodel.layout.layout import Layout, ShardSpec
from trainplan.costmodel.measured.links import measured_links
from trainplan.costmodel.placement.costs import nodes_of, placement_costs
from trainplan.costmodel.placement.seconds import placed_seconds
from trainplan.costmodel.profiles.profile import Host, LinkPoint, Origin, Profile, Timing
from trainplan.costmodel.schedules import program
from trainplan.costmodel.step.estimate import without_overhead
from trainplan.costmodel.timeline.clock import StageSeconds, run
from trainplan.planner.questions import estimate
from trainplan.planner.questions import placement as placement_module
from trainplan.planner.questions.placement import not_placed, place
from trainplan.planner.solvers.nodes.order_bound import least_seconds
from trainplan.planner.solvers.nodes.orders import good_order
from trainplan.planner.work.budget import Unlimited

LAYOUTS = (
    Layout(tp=8, dp=4, sequence_parallel=True),
    Layout(tp=4, pp=2, dp=4, sequence_parallel=True),
    Layout(tp=8, pp=2, vpp=2, dp=2, schedule="interleaved", sequence_parallel=True),
    Layout(tp=2, cp=8, dp=2, sequence_parallel=True),
    Layout(tp=16, dp=2, sequence_parallel=True),
    Layout(dp=32, zero_stage=3),
    Layout(dp=32, zero_stage=3, dp_replicate=4),
    Layout(dp=32, recompute="full", recompute_method="uniform", recompute_num_layers=1),
)


BY_STATE = Layout(dp=32, shard=ShardSpec(weights=2, gradients=16, optimizer=32))


def links_of(rates, names=None, **more):
    names = names or tuple(f"n{i}" for i in range(len(rates)))
    return LinkSpec(nodes=names, gb_per_s=np.asarray(rates, dtype=float).tolist(), **more)


def equal(count, rate=50.0):
    return np.full((count, count), rate)


def islands(*sides):
    """Fast links inside a side, slow ones between."""
    sides = np.array(sides)
    return np.where(sides[:, None] == sides[None], 50.0, 5.0)


@pytest.fixture(scope="module")
def job(make_job):
    """Four nodes of eight GPUs."""
    return make_job("llama3-8b", "4x8:h100-sxm", 32, 4096)


def on(job, links):
    return job.model_copy(update={"cluster": job.cluster.model_copy(update={"links": links})})


def placed(job, layout, links):
    job = on(job, links)
    found = place(job, machine_for(job), layout, Unlimited())
    assert found is not None
    return found


def costs_of(job, layout, nodes):
    return placement_costs(job, machine_for(job), layout, nodes)


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_with_equal_links_every_order_takes_the_estimated_step(job, layout):
    nodes = nodes_of(links_of(equal(4)))
    costs = costs_of(job, layout, nodes)
    orders = np.array([*permutations(range(4))])
    expected = estimate(job, layout).step_time_s
    assert placed_seconds(costs, nodes, orders) == pytest.approx(expected, rel=1e-12)
    assert costs.step_seconds == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("factor", [2.0, 6.0])
def test_links_that_are_all_slower_cost_what_slower_adapters_cost(job, layout, factor):
    """Priced on a cluster with thinner adapters; the pipeline's closed form is within 0.5 %."""
    nodes = nodes_of(links_of(equal(4)))
    slowdown = np.full((4, 4), factor)
    np.fill_diagonal(slowdown, 1.0)
    slow = replace(nodes, slowdown=slowdown)
    costs = costs_of(job, layout, slow)
    nic = machine_for(job).nic_bytes_per_second / 1e9
    group = job.cluster.groups[0].model_copy(
        update={"nic": NicSpec(per_node=8, gb_per_s=nic / factor)}
    )
    thin = job.model_copy(update={"cluster": job.cluster.model_copy(update={"groups": (group,)})})
    step = placed_seconds(costs, slow, np.arange(4)[None])[0]
    assert step == pytest.approx(estimate(thin, layout).step_time_s, rel=5e-3)


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_a_slower_link_never_helps(job, layout):
    rates = np.random.default_rng(3).uniform(10, 50, (4, 4))
    rates[0, 3] = rates[3, 0] = 60.0  # the fastest in both
    slower = rates.copy()
    slower[1, 2] = slower[2, 1] = 5.0
    orders = np.array([*permutations(range(4))])
    seconds = []
    for some in (rates, slower):
        nodes = nodes_of(links_of(some))
        seconds.append(placed_seconds(costs_of(job, layout, nodes), nodes, orders))
    assert (seconds[1] >= seconds[0] * (1 - 1e-3)).all()  # between knots costs are interpolated
    assert seconds[1].max() > seconds[0].max()


def test_rings_run_over_neighbours_and_close():
    places = Places(Layout(tp=8, dp=4, pp=2), gpus_per_node=8)
    assert places.ring(1, 4, 8).tolist() == [[4, 5], [4, 7], [5, 6], [6, 7]]
    assert places.paths(closed=False).tolist() == [[[i, i + 4]] for i in range(4)]
    assert places.inside(1)[:, 0].tolist() == [4, 5, 6, 7]


def test_experts_talk_to_all_ranks_of_their_group():
    places = Places(Layout(dp=32, ep=16), gpus_per_node=8)
    assert places.everyone(0, 16, 1).tolist() == [[0, 1], [2, 3]]
    assert places.ring(0, 2, 16).tolist() == [[0, 2], [1, 3]]


def test_stages_that_share_a_node_send_over_no_link():
    places = Places(Layout(tp=4, pp=4), gpus_per_node=8)
    assert places.paths(closed=True).tolist() == [[[0, 0], [0, 1], [1, 1], [0, 1]]]


def test_equal_links_keep_the_given_order(job):
    found = placed(job, LAYOUTS[1], links_of(equal(4)))
    assert found.nodes == ("n0", "n1", "n2", "n3")
    assert found.step_time_s == found.identity_step_time_s == found.lower_bound_s
    assert found.gap_fraction == 0


def test_links_that_differ_by_noise_keep_the_given_order(job):
    rng = np.random.default_rng(0)
    found = placed(job, LAYOUTS[0], links_of(rng.uniform(49, 50, (4, 4))))
    assert found.nodes == ("n0", "n1", "n2", "n3")


def test_the_pipeline_crosses_the_slow_cut_and_data_parallel_groups_do_not(job):
    layout = Layout(tp=8, pp=2, dp=2, sequence_parallel=True)
    found = placed(job, layout, links_of(islands(0, 1, 0, 1)))
    assert {frozenset(found.nodes[:2]), frozenset(found.nodes[2:])} == {
        frozenset(("n0", "n2")),
        frozenset(("n1", "n3")),
    }
    assert found.step_time_s < 0.95 * found.identity_step_time_s
    assert found.gap_fraction == 0


def test_context_parallel_groups_stay_on_the_fast_side(job):
    layout = Layout(tp=2, cp=8, dp=2, sequence_parallel=True)
    found = placed(job, layout, links_of(islands(0, 1, 1, 0)))
    assert set(found.nodes[:2]) in ({"n0", "n3"}, {"n1", "n2"})


def test_slow_nodes_share_a_stage(job):
    layout = Layout(tp=8, pp=2, dp=2, sequence_parallel=True)
    links = links_of(equal(4), node_speed=(0.8, 1.0, 0.8, 1.0))
    found = placed(job, layout, links)
    assert {"n0", "n2"} in (set(found.nodes[:2]), set(found.nodes[2:]))
    assert found.step_time_s <= found.identity_step_time_s


def test_permuting_node_names_changes_nothing(job):
    rates = np.random.default_rng(7).uniform(5, 50, (4, 4))
    rates = np.minimum(rates, rates.T)
    for layout in LAYOUTS[:4]:
        times = set()
        for order in ([0, 1, 2, 3], [2, 0, 3, 1], [3, 2, 1, 0]):
            names = tuple(f"n{i}" for i in order)
            found = placed(job, layout, links_of(rates[np.ix_(order, order)], names))
            times.add(round(found.step_time_s / found.lower_bound_s, 3))
            assert found.step_time_s <= 1.001 * found.lower_bound_s
        assert times == {1.0}


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_many_nodes_are_placed_near_a_proved_bound(job, layout, monkeypatch):
    """Local search and bound, as above 16 nodes, against all orders of four."""
    monkeypatch.setattr(placement_module, "MOST_NODES", 0)
    rates = np.random.default_rng(11).uniform(5, 50, (4, 4))
    nodes = nodes_of(links_of(rates))
    costs = costs_of(job, layout, nodes)
    every = placed_seconds(costs, nodes, np.array([*permutations(range(4))]))
    least = least_seconds(costs, nodes)
    found = placed(job, layout, links_of(rates))
    order = good_order(costs, nodes, least)
    assert least <= every.min() * (1 + 1e-12)
    assert placed_seconds(costs, nodes, order[None])[0] <= every.min() * 1.01
    assert found.lower_bound_s <= every.min() * (1 + 1e-12)
    assert found.gap_fraction >= 0


def test_two_islands_of_many_nodes_are_told_apart(make_job):
    job = make_job("llama3-8b", "40x8:h100-sxm", 320, 4096)
    layout = Layout(tp=8, pp=2, dp=20, sequence_parallel=True)
    sides = [i % 2 for i in range(40)]
    found = placed(job, layout, links_of(islands(*sides)))
    assert {int(name[1:]) % 2 for name in found.nodes[:20]} in ({0}, {1})
    assert found.gap_fraction < 0.01


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"gb_per_s": [[0, 1]]}, "2 rows of 2 numbers"),
        ({"gb_per_s": [[0, 1], [1]]}, "2 rows of 2 numbers"),
        ({"gb_per_s": [[0, 1], [0, 0]]}, "from b to a is 0"),
        ({"gb_per_s": [[0, -1], [1, 0]]}, "greater than or equal to 0"),
        ({"nodes": ["a", "a"]}, "names a twice"),
        ({"nodes": ["a", "b;rm"]}, "pattern"),
        ({"nodes": ["a", "-b"]}, "pattern"),
        ({"nodes": ["a", "b\n"]}, "pattern"),
        ({"node_speed": [1.0]}, "node_speed must have 2 numbers"),
        ({"node_speed": [1.0, 1.2]}, "node_speed is at most 1"),
    ],
)
def test_a_wrong_matrix_is_refused_with_what_to_do(change, message):
    good = {"nodes": ["a", "b"], "gb_per_s": [[0, 40], [40, 0]]}
    LinkSpec.model_validate(good)
    with pytest.raises(ValidationError, match=message):
        LinkSpec.model_validate(good | change)


def test_links_name_as_many_nodes_as_the_cluster_has():
    group = {"gpu": "h100-sxm", "num_nodes": 3, "gpus_per_node": 8}
    links = {"nodes": ["a", "b"], "gb_per_s": [[0, 40], [40, 0]]}
    with pytest.raises(ValidationError, match="links names 2 nodes, the groups have 3"):
        ClusterSpec.model_validate({"groups": [group], "links": links})


@pytest.mark.parametrize("cluster", ["2x8:h100-sxm+2x8:a100-sxm-80gb", "4x4:gb200"])
def test_nodes_that_cannot_change_places_are_left_where_they_are(make_job, cluster):
    job = on(make_job("llama3-8b", cluster), links_of(islands(0, 1, 0, 1)))
    reason = not_placed(job.cluster, machine_for(job))
    assert reason is not None
    assert reason.startswith("measured links are not used")


def measured(pairs, names):
    points = tuple(
        LinkPoint(source=a, target=b, num_bytes=10**9, time=Timing(seconds=seconds))
        for (a, b), seconds in pairs.items()
    )
    hosts = tuple(Host(name=name, num_gpus=8) for name in names)
    return Profile(
        gpu="h100-sxm",
        num_nodes=len(names),
        gpus_per_node=8,
        origins=(Origin(source="test"),),
        hosts=hosts,
        points=points,
    )


def test_a_profile_of_all_links_gives_their_matrix():
    pairs = {("b", "a"): 0.1, ("a", "c"): 0.2, ("b", "c"): 0.4, ("a:0", "a:1"): 0.01}
    links = measured_links(measured(pairs, ("a", "b", "c")))
    assert links is not None
    assert links.nodes == ("a", "b", "c")
    assert [links.gb_per_s[0][1], links.gb_per_s[2][0], links.gb_per_s[1][2]] == [10.0, 5.0, 2.5]


def test_a_profile_that_lacks_a_pair_gives_no_links():
    pairs = {("b", "a"): 0.1, ("a", "c"): 0.2}
    assert measured_links(measured(pairs, ("a", "b", "c"))) is None
    assert measured_links(measured({}, ("a",))) is None
    assert measured_links(measured({("a", "b;x"): 0.1}, ("a", "b;x"))) is None


def simulated(costs, schedule, slowness):
    """Seconds of the pipeline's passes, run one by one; ranks are slower by these factors."""
    passes = np.array([rank.pair_seconds for rank in costs.ranks]) * slowness / 3 / costs.vpp
    forward = np.tile(passes, costs.vpp)[None]
    ops = program(schedule, len(costs.ranks), costs.vpp, costs.microbatches)
    return run(ops, StageSeconds(forward, 2 * forward, 0 * forward)).makespan


@pytest.mark.parametrize("vpp", [1, 2, 4])
@pytest.mark.parametrize("slowness", [(2.0, 2.0), (1.0, 1.5)])
def test_slow_nodes_add_what_the_simulated_pipeline_takes_longer(job, vpp, slowness):
    schedule, nodes = "interleaved" if vpp > 1 else "1f1b", nodes_of(links_of(equal(4)))
    layout = Layout(tp=8, pp=2, vpp=vpp, dp=2, schedule=schedule, sequence_parallel=True)
    costs = replace(costs_of(job, layout, nodes), microbatches=4)
    slower = replace(nodes, slowness=np.repeat(slowness, 2))  # two nodes each pipeline rank
    steps = [placed_seconds(costs, one, np.arange(4)[None])[0] for one in (slower, nodes)]
    longer = simulated(costs, schedule, slowness) - simulated(costs, schedule, np.ones(2))
    assert np.subtract(*(without_overhead(costs.machine, s) for s in steps)) == pytest.approx(
        longer, rel=0.02
    )


def test_two_islands_cost_a_path_over_all_nodes_one_slow_link_whatever_their_order(job):
    """Every node has a fast link, so the mean of their best ones says nothing."""
    layout = Layout(tp=8, pp=4, sequence_parallel=True)
    nodes = nodes_of(links_of(islands(0, 0, 1, 1)))
    costs = placement_costs(job, machine_for(job), layout, nodes)
    orders = np.array([*permutations(range(4))])
    assert costs.step_seconds < least_seconds(costs, nodes) * (1 - 1e-9)
    assert least_seconds(costs, nodes) <= placed_seconds(costs, nodes, orders).min() * (1 + 1e-9)


def test_groups_of_every_state_send_on_the_links_of_their_rings(job):
    """Of 16 ranks that share gradients two nodes are neighbours; updates go over all four."""
    job = job.model_copy(update={"runtime": "zero-topo"})
    nodes = nodes_of(links_of(islands(0, 0, 1, 1)))
    slow, fast = (
        placed_seconds(costs_of(job, BY_STATE, one), one, np.arange(4)[None])[0]
        for one in (nodes, nodes_of(links_of(equal(4))))
    )
    assert fast == pytest.approx(estimate(job, BY_STATE).step_time_s, rel=1e-12)
    assert slow > fast
