"""Shard groups by state: bytes and traffic by hand, and ZeRO stages as points of them."""

from itertools import product

import numpy as np
import pytest

from trainplan.costmodel.base.errors import SpecError
from trainplan.costmodel.calibration import machine_for
from trainplan.costmodel.candidates.context import context_of
from trainplan.costmodel.comm import collective_seconds, group
from trainplan.costmodel.hardware.cluster import NicSpec
from trainplan.costmodel.layout.codecs import Shards
from trainplan.costmodel.layout.layout import Layout, ShardSpec
from trainplan.costmodel.layouts.table import FIELDS, LayoutTable
from trainplan.costmodel.memory.states import RankParams
from trainplan.costmodel.shard_groups import groups_of, shard_codes
from trainplan.costmodel.step import price
from trainplan.costmodel.traffic.data_parallel import step_traffic
from trainplan.costmodel.traffic.sharded import Unit, sharded_traffic
from trainplan.planner.plan.plan import Infeasible
from trainplan.planner.questions.best_plan import SearchOptions, search
from trainplan.planner.space import parse_choice

BY_STATE = Layout(dp=64, shard=ShardSpec(weights=2, gradients=8, optimizer=64))
PARAMS = 1e9


@pytest.fixture(name="job_of")
def _job_of(make_job):
    def make(runtime="zero-topo", **cluster):
        job = make_job("llama3-8b", "8x8:h100-sxm", 256, 4096)
        return job.model_copy(update={"runtime": runtime})

    return make


def candidates_of(job, *layouts):
    return context_of(job, machine_for(job)).with_table(LayoutTable.of(layouts))


@pytest.mark.parametrize(
    ("shard", "same"),
    [
        ((1, 1, 1), {"zero_stage": 0, "dp_replicate": 1}),
        ((1, 1, 64), {"zero_stage": 1}),
        ((1, 1, 16), {"zero_stage": 1, "dp_replicate": 4}),
        ((1, 8, 8), {"zero_stage": 2, "dp_replicate": 8}),
        ((8, 8, 8), {"zero_stage": 3, "dp_replicate": 8}),
        ((64, 64, 64), {"zero_stage": 3}),
        ((8, 8, 64), {"zero_stage": 3, "dp_replicate": 8, "replicas_share_optimizer": True}),
    ],
)
def test_what_stage_and_copies_say_is_written_as_theirs(shard, same):
    spec = ShardSpec(**dict(zip(("weights", "gradients", "optimizer"), shard, strict=True)))
    layout = Layout(dp=32, cp=2, shard=spec)
    assert layout == Layout(dp=32, cp=2, **same)
    (code,) = shard_codes(LayoutTable.of([layout]))
    assert Shards().value(int(code)) == spec


def test_a_column_of_groups_prices_as_stage_and_copies_do(job_of):
    """Rows that no search has: the same groups, said by the column."""
    job = job_of()
    points = [
        Layout(dp=64, zero_stage=stage, dp_replicate=copies)
        for stage, copies in ((1, 1), (1, 4), (2, 1), (2, 8), (3, 1), (3, 8), (3, 32))
    ]
    points.append(Layout(dp=64, zero_stage=3, dp_replicate=8, replicas_share_optimizer=True))
    by_stage = candidates_of(job, *points)
    table = by_stage.table
    off = np.zeros(len(table), np.int64)
    said = by_stage.with_table(
        table.replaced(shard=shard_codes(table), dp_replicate=off + 1, replicas_share_optimizer=off)
    )
    one, other = price(by_stage), price(said)
    assert one.step_seconds.tolist() == other.step_seconds.tolist()
    assert one.memory.used.tolist() == other.memory.used.tolist()


def test_each_state_is_shared_by_ranks_of_its_own(job_of):
    """Bytes P (w / g_w + g / g_g + o / g_o) of a rank."""
    found, whole = (
        price(candidates_of(job_of(), one)).memory
        for one in (BY_STATE, Layout(dp=64, zero_stage=1))
    )
    assert found.weights.max() == pytest.approx(whole.weights.max() / 2)
    assert found.gradients.max() == pytest.approx(whole.gradients.max() / 8)
    assert found.optimizer.max() == pytest.approx(whole.optimizer.max())


def test_experts_have_as_many_copies_as_dense_weights():
    """Of 16 ranks with an expert, 2 share it where 8 of 64 share dense weights."""
    shard = ShardSpec(weights=8, gradients=16, optimizer=64)
    _, expert = groups_of(LayoutTable.of([Layout(dp=64, ep=4, shard=shard)]))
    assert (expert.weights, expert.gradients, expert.optimizer) == (2, 4, 16)


def test_each_collective_is_on_the_links_of_its_group(job_of):
    """Pairs gather, nodes scatter, and all else goes between nodes once a step."""
    some = candidates_of(job_of(), BY_STATE)
    machine, params = some.machine, np.full((1, 1), PARAMS)

    def seconds(name, size, stride, part):
        links = group(machine, np.array([size]), np.array([stride]))
        return collective_seconds(machine, name, np.array([2 * PARAMS / part]), links)[0]

    nothing = np.zeros(1)
    (layer,) = sharded_traffic(some, [Unit(RankParams(params[0], nothing))])
    pairs, nodes = seconds("all_gather", 2, 1, 1), seconds("reduce_scatter", 8, 1, 1)
    assert layer.forward[0] == pytest.approx(pairs)
    assert layer.backward[0] == pytest.approx(pairs + nodes)
    once = step_traffic(some, RankParams(params, np.zeros((1, 1)), has_experts=False))
    assert once.reduce[0, 0] == pytest.approx(seconds("reduce_scatter", 8, 8, 8))
    assert once.gather[0, 0] == pytest.approx(seconds("all_gather", 32, 2, 2))


def test_a_search_finds_groups_by_state_and_holds_them(make_job):
    job = make_job("llama2-7b", "4x8:mi250x", 64, 2048).model_copy(update={"runtime": "zero-topo"})
    text = "shard=weights:2+gradients:8+optimizer:32"
    alone = ("tp=1", "cp=1", "zero_stage=3", "recompute=full", "offload.optimizer=0")
    fix = tuple(parse_choice(one, excluded=False) for one in (text, *alone))
    plan = search(job, SearchOptions(fix=fix, only_answer=True))
    assert plan.best.layout.shard == ShardSpec(weights=2, gradients=8, optimizer=32)
    assert plan.certificate.optimal


def test_groups_that_a_stage_has_are_found_where_the_runtime_has_copies(make_job):
    """`--fix shard` asks who shares what, however a layout says it."""
    job = make_job("small-dense", "4x2:h100-sxm", 16).model_copy(update={"runtime": "torchtitan"})
    fix = (parse_choice("shard=weights:2", excluded=False),)
    layout = search(job, SearchOptions(fix=fix, only_answer=True)).best.layout
    assert (layout.zero_stage, layout.dp * layout.cp // layout.dp_replicate) == (3, 2)
    assert layout.shard is None


def test_a_search_under_a_runtime_without_them_names_the_groups_it_has(make_job):
    job = make_job("small-dense", "4x2:h100-sxm", 16).model_copy(update={"runtime": "torchtitan"})
    fix = (parse_choice("shard=gradients:2,optimizer:8", excluded=False),)
    answer = search(job, SearchOptions(fix=fix))
    assert isinstance(answer, Infeasible)
    assert answer.untried == (
        "--fix shard=gradients:2,optimizer:8: torchtitan has the groups of zero_stage and "
        "dp_replicate alone",
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("weights:3,optimizer:8", "gradients take a multiple"),
        ("weight:2", "expected ranks that share each state, such as"),
        ("weights:0", "must be at least 1"),
        ("weights:2+weights:4", "expected ranks"),
        ("weights:9999999", "must be at most 1048576"),
    ],
)
def test_what_is_no_group_is_refused_in_a_sentence(text, says):
    with pytest.raises(SpecError, match=says):
        FIELDS["shard"].codec.read("shard", text)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"dp": 12, "shard": {"optimizer": 8}}, "8 ranks do not divide dp \\* cp = 12"),
        ({"dp": 8, "zero_stage": 1, "shard": BY_STATE.shard}, "64 ranks do not divide"),
        ({"dp": 64, "zero_stage": 1, "shard": BY_STATE.shard}, "leave zero_stage out"),
        ({"dp": 64, "dp_replicate": 2, "shard": BY_STATE.shard}, "leave dp_replicate out"),
    ],
)
def test_a_layout_has_one_name_for_who_shares_what(fields, says):
    with pytest.raises(ValueError, match=says):
        Layout(**fields)


@pytest.mark.parametrize(("gb_per_s", "by_state"), [(1.0, True), (25.0, False)])
def test_an_answer_has_the_groups_that_pricing_all_finds_fastest(make_job, gb_per_s, by_state):
    job = make_job("small-dense", "4x2:a100-sxm-40gb", 32)
    (nodes,) = job.cluster.groups
    nodes = nodes.model_copy(update={"nic": NicSpec(per_node=1, gb_per_s=gb_per_s)})
    cluster = job.cluster.model_copy(update={"groups": (nodes,)})
    job = job.model_copy(update={"runtime": "zero-topo", "cluster": cluster})
    layouts = {
        Layout(dp=8, shard=ShardSpec(weights=weights, gradients=gradients, optimizer=optimizer))
        for weights, gradients, optimizer in product([1, 2], [1, 2], [2, 4, 8])
        if gradients >= weights
    }
    layouts |= {Layout(dp=8, zero_stage=s, dp_replicate=n) for s, n in product((1, 2, 3), (1, 4))}
    fastest = price(candidates_of(job, *layouts)).step_seconds.min()
    held = ("tp=1", "cp=1", "hpz=1", "micro_batch_size=1", "recompute=none", "tiled_loss=false")
    texts = (*held, "offload.optimizer=0", "dp_replicate=free")
    fix = tuple(parse_choice(one, excluded=False) for one in texts)
    options = SearchOptions(fix=fix, only_answer=True, whole_cluster=True, slack=0.0)
    plan = search(job, options)
    assert plan.certificate.optimal
    (found,) = price(candidates_of(job, plan.best.layout)).step_seconds
    assert found == pytest.approx(fastest)
    assert (plan.best.layout.shard is not None) == by_state
