"""Answers do not depend on the unit of time: what takes c times as long is c times the answer.

Every duration of a problem times c scales seconds and bounds by c, and leaves verdicts, gaps and
choices as they are. A number whose unit was forgotten shows at c = 1e-3 and not at c = 1.
"""

from dataclasses import astuple, fields, is_dataclass, replace
from math import inf

import numpy as np
import pytest

from tests.conftest import legal
from tests.properties.fillings import Looks, pipeline
from trainplan.costmodel.calibration import NOTHING
from trainplan.costmodel.candidates.context import Candidates
from trainplan.costmodel.comm import collectives
from trainplan.costmodel.documents import Constants
from trainplan.costmodel.hardware import FabricTier, LinkSpec
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.machine import machine_of
from trainplan.costmodel.placement.costs import nodes_of, placement_costs
from trainplan.costmodel.runtimes.registry import traits_of
from trainplan.costmodel.step import explicit, price
from trainplan.costmodel.timeline.clock import StageSeconds
from trainplan.planner.goals import SearchContext
from trainplan.planner.plan import SearchOptions
from trainplan.planner.solvers import layer_assignment
from trainplan.planner.solvers.nodes.order_bound import least_seconds
from trainplan.planner.solvers.nodes.orders import good_order
from trainplan.planner.solvers.nodes.placement import proved_order
from trainplan.planner.solvers.schedules.solve import Problem, synthesise
from trainplan.planner.work import Unlimited

UNITS = (2.0**-20, 2.0**-10, 2.0**10)
"""Close to 1e-6, 1e-3 and 1e3; powers of two round nothing, so ties are broken alike."""
EVERY_UNIT = pytest.mark.parametrize("unit", UNITS)
SECONDS = {
    *(
        "sqrt_coefficient",
        "alpha_seconds",
        "fixed_seconds",
        "launch_seconds",
        "attention_fixed_seconds",
    ),
    *("inter_node_alpha", "inter_node_alpha_per_doubling", "p2p_alpha", "alltoall_alpha"),
    *("dispatch_sync_seconds", "host_dense", "host_legacy", "host_tp", "host_fsdp", "host_moe"),
    *(
        "host_moe_graph",
        "host_checkpoint",
        "overhead_seconds",
        "fixed_overhead_seconds",
        "latency_us",
    ),
}
"""Fields of a machine, its constants and its fabric that are times."""


def scaled(of, unit):
    """A machine, or a part of one, on which everything takes `unit` times as long."""
    names = [one.name for one in fields(of)] if is_dataclass(of) else type(of).model_fields
    changed = {}
    for name in names:
        value = getattr(of, name)
        if name in SECONDS:
            changed[name] = value * unit
        elif name.endswith("_per_second") and value is not None:
            changed[name] = value / unit
        elif is_dataclass(value) or isinstance(value, Constants):
            changed[name] = scaled(value, unit)
        elif isinstance(value, tuple):
            changed[name] = tuple(
                scaled(one, unit) if is_dataclass(one) or isinstance(one, FabricTier) else one
                for one in value
            )
    return replace(of, **changed) if is_dataclass(of) else of.model_copy(update=changed)


class Left:
    """A deadline that is always as far: rules of thumb run, and no solver ends."""

    def __init__(self, seconds):
        self.seconds = seconds

    def seconds_left(self):
        return self.seconds


DURATIONS = {
    "alike": (np.ones(4) * 3, np.ones(4) * 4, np.ones(4) * 2),
    "unlike": (*np.array([[3, 2, 5, 4], [4, 7, 3, 2]]), np.ones(4) * 2),
    "rounded": tuple(np.random.default_rng(3).uniform(0.8, 1.2, (3, 4))),
}
"""Seconds of forward passes, input and weight gradients of 4 virtual stages."""


def pipelined(durations, unit, microbatches=5, **rest):
    forward, inputs, weight = (unit * part[None] for part in DURATIONS[durations])
    seconds = StageSeconds(forward, inputs + weight, weight)
    return Problem(2, 2, microbatches, seconds, 0.5 * unit, **rest)


def assert_scaled(other, base, unit):
    assert other.timeline.makespan == pytest.approx(unit * base.timeline.makespan, rel=1e-9)
    assert other.lower_bound == pytest.approx(unit * base.lower_bound, rel=1e-9)
    assert other.gap == pytest.approx(base.gap, rel=1e-6)
    assert other.optimal == base.optimal


@pytest.mark.parametrize(("durations", "placement"), [("unlike", "loop"), ("rounded", "v")])
def test_an_order_of_passes_that_is_not_proved_is_proved_in_no_unit(durations, placement):
    """The solver of orders has no time: its bound is that of the durations."""
    base = synthesise(pipelined(durations, 1.0, placement=placement), Left(0.01))
    assert not base.optimal
    for unit in UNITS:
        other = synthesise(pipelined(durations, unit, placement=placement), Left(0.01))
        assert_scaled(other, base, unit)


def test_a_proved_order_of_passes_is_proved_in_every_unit():
    base, other = (
        synthesise(pipelined("alike", c, 3, memory_limit=3), Left(inf)) for c in (1.0, UNITS[1])
    )
    assert base.optimal
    assert_scaled(other, base, UNITS[1])


@EVERY_UNIT
@pytest.mark.parametrize("cutoff", [inf, 1e-3], ids=["with-an-answer", "with-none"])
def test_a_filling_of_stages_is_the_same_in_every_unit(unit, cutoff):
    of = pipeline(3, 17, 2, dense=2, memory=1.2)
    other = replace(of, costs=unit * of.costs, constants=unit * of.constants)
    found, same = (
        layer_assignment.solve(one, Looks(9), cutoff=cutoff * c)
        for one, c in ((of, 1.0), (other, unit))
    )
    assert same.proved == found.proved
    assert (found.counts is None) == (cutoff < inf)
    if found.counts is not None:
        assert same.value == pytest.approx(unit * found.value, rel=1e-9)
        assert same.lower_bound == pytest.approx(unit * found.lower_bound, rel=1e-9)


@pytest.fixture
def on_machine(monkeypatch):
    """(job, unit) -> its machine in which, as in the formulas, every second is `unit` as long."""
    hops = collectives.HOP_SECONDS, collectives.NODE_HOP_SECONDS

    def make(job, unit=1.0):
        for name, value in zip(("HOP_SECONDS", "NODE_HOP_SECONDS"), hops, strict=True):
            monkeypatch.setattr(collectives, name, unit * value)
        machine = replace(
            machine_of(job.cluster, job.training.precision), cpu_adam_params_per_second=5e9
        )
        return scaled(machine, unit)

    return make


@pytest.mark.parametrize("layout", [Layout(tp=4, cp=2, pp=2, dp=2), Layout(dp=32, ep=16)])
def test_an_order_of_nodes_is_the_same_in_every_unit(make_job, on_machine, layout):
    rates = np.random.default_rng(5).uniform(5, 50, (4, 4))
    speeds = (1.0, 0.7, 0.9, 1.0)
    nodes = nodes_of(
        LinkSpec(nodes=tuple("abcd"), gb_per_s=(rates + rates.T).tolist(), node_speed=speeds)
    )
    job = make_job("small-moe" if layout.ep > 1 else "small-dense", "4x8:h100-sxm", 64)
    found = []
    for c in (1.0, *UNITS):
        costs = placement_costs(job, on_machine(job, c), layout, nodes)
        least = least_seconds(costs, nodes)
        proved = proved_order(costs, nodes, good_order(costs, nodes, least), least)
        found.append((least, proved.bound_seconds, proved.order.tolist()))
    (least, bound, order), *others = found
    for unit, (same_least, same_bound, same_order) in zip(UNITS, others, strict=True):
        assert same_least == pytest.approx(unit * least, rel=1e-9)
        assert same_bound == pytest.approx(unit * bound, rel=1e-6)
        assert same_order == order


JOBS = {
    "dense": ("llama3-8b", "24x8:h100-sxm", "bf16", "megatron-lm"),
    "experts": ("deepseek-v3", "48x8:h100-sxm", "fp8", "megatron-lm"),
    "sharded": ("small-moe", "3x8:a100-sxm-80gb", "bf16", "torchtitan"),
    "seeing": ("small-seeing", "12x8:h100-sxm", "bf16", "megatron-lm"),
    "gathered": ("small-dense", "6x8:a100-sxm-80gb", "bf16", "fsdp2"),
}


@pytest.mark.parametrize("name", JOBS)
def test_a_step_takes_as_much_longer_as_all_parts_of_a_machine(
    make_job, legal_table, on_machine, name
):
    model, cluster, precision, runtime = JOBS[name]
    job = make_job(model, cluster, 960, precision=precision)
    table, job = legal_table(job, 60, 7), job.model_copy(update={"runtime": runtime})
    table = legal(job, table)
    passes = job.training.global_batch_size // (table.dp * table.micro_batch_size)
    few = table.take(np.flatnonzero(passes < 40)[:4])

    def on(table, unit):
        return Candidates(job, on_machine(job, unit), traits_of(job), table)

    assert len(few)
    seconds = price(on(table, 1.0)).step_seconds
    terms = [astuple(one.terms) for one in explicit(on(few, 1.0))]
    for unit in UNITS:
        assert price(on(table, unit)).step_seconds == pytest.approx(unit * seconds, rel=1e-9)
        for one, same in zip(explicit(on(few, unit)), terms, strict=True):
            assert astuple(one.terms) == pytest.approx(unit * np.array(same), rel=1e-9)


def test_the_fastest_layout_is_the_same_on_a_machine_that_is_slower_throughout(
    make_job, on_machine
):
    job = make_job("small-moe", "1x8:h100-sxm", 24)
    context = SearchContext.of(job, SearchOptions(), NOTHING, Unlimited())
    fast, slow = (
        replace(context, machine=on_machine(job, c)).search(top=3).run(context.budget)
        for c in (1.0, UNITS[1])
    )
    assert [slow.finalists.row(i) for i in range(3)] == [fast.finalists.row(i) for i in range(3)]
    assert slow.evaluated == fast.evaluated > 0
    for name in ("value", "lower_bound_s", "relaxed_bound_s", "step_bound_s"):
        assert getattr(slow, name) == pytest.approx(UNITS[1] * getattr(fast, name), rel=1e-9)
