"""The chosen order of nodes is the best of all orders, and no bound exceeds it."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainplan.costmodel.calibration.machine import machine_for
from trainplan.costmodel.hardware import LinkSpec
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.placement.costs import nodes_of, placement_costs
from trainplan.costmodel.placement.seconds import placed_seconds
from trainplan.planner.questions.placement import LEAST_GAIN, place
from trainplan.planner.solvers.nodes.order_bound import least_seconds
from trainplan.planner.solvers.nodes.orders import CLOSE, good_order
from trainplan.planner.solvers.nodes.placement import proved_order
from trainplan.planner.work.budget import Unlimited

DENSE = tuple(
    Layout(tp=tp, cp=cp, pp=pp, vpp=vpp, dp=6 * 8 // (tp * cp * pp), **more)
    for tp, cp, pp, vpp, more in (
        (8, 1, 2, 1, {"schedule": "1f1b"}),
        (8, 1, 6, 1, {}),
        (8, 1, 3, 2, {"schedule": "interleaved"}),
        (4, 4, 3, 1, {}),
        (1, 1, 1, 1, {"zero_stage": 3, "dp_replicate": 3}),
    )
)
SPARSE = (Layout(dp=48, ep=16),)
LAYOUTS = [*(("small-dense", one) for one in DENSE), *(("small-moe", one) for one in SPARSE)]
RATES = st.one_of(st.sampled_from([5.0, 25.0, 50.0]), st.floats(5.0, 50.0))
SPEEDS = st.sampled_from([0.7, 0.9, 1.0])


@st.composite
def links(draw):
    """Six nodes with some links and nodes slower than others."""
    rates = np.zeros((6, 6))
    for i, j in zip(*np.triu_indices(6, 1), strict=True):
        rates[i, j] = rates[j, i] = draw(RATES)
    speeds = draw(st.one_of(st.none(), st.tuples(*[SPEEDS] * 6)))
    return LinkSpec(
        nodes=tuple(f"n{i}" for i in range(6)), gb_per_s=rates.tolist(), node_speed=speeds
    )


@pytest.fixture(scope="module", params=LAYOUTS, ids=lambda one: f"{one[0]} {one[1]}")
def problem(request, make_job):
    """A job on six nodes and a layout."""
    model, layout = request.param
    return make_job(model, "6x8:h100-sxm", 48, 2048), layout


@settings(max_examples=4)
@given(spec=links())
def test_no_order_of_six_nodes_is_faster_than_the_one_proved_best(problem, spec):
    job, layout = problem
    nodes = nodes_of(spec)
    costs = placement_costs(job, machine_for(job), layout, nodes)
    best = placed_seconds(costs, nodes, np.array([*permutations(range(6))])).min()
    least = least_seconds(costs, nodes)
    proved = proved_order(costs, nodes, good_order(costs, nodes, least), least)
    assert best >= costs.step_seconds * (1 - 1e-12)
    assert least <= best * (1 + 1e-9)
    assert proved.bound_seconds <= best * (1 + 1e-9)
    assert placed_seconds(costs, nodes, proved.order[None])[0] <= best * (1 + 2 * CLOSE)


@settings(max_examples=2)
@given(spec=links(), order=st.permutations(range(6)))
def test_permuting_nodes_permutes_the_answer(problem, spec, order):
    job, layout = problem
    rates = np.array(spec.gb_per_s)[np.ix_(order, order)]
    speeds = spec.node_speed and tuple(spec.node_speed[i] for i in order)
    other = LinkSpec(
        nodes=tuple(spec.nodes[i] for i in order), gb_per_s=rates.tolist(), node_speed=speeds
    )
    found = []
    for one in (spec, other):
        cluster = job.cluster.model_copy(update={"links": one})
        linked = job.model_copy(update={"cluster": cluster})
        found.append(place(linked, machine_for(linked), layout, Unlimited()))
    assert found[0].step_time_s == pytest.approx(found[1].step_time_s, rel=2 * (LEAST_GAIN + CLOSE))
    assert max(one.lower_bound_s for one in found) <= min(one.step_time_s for one in found) * (
        1 + 1e-9
    )
