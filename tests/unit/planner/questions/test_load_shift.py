"""Step time and memory by step: verdicts, and memory against draws of whole steps."""

import json

import numpy as np
import pytest

from trainplan.cli.pages.parts.load_shift import load_shift_lines
from trainplan.costmodel.job.job import RuntimeOptions
from trainplan.costmodel.job.routing import RoutingSpec
from trainplan.costmodel.layout.layout import Layout
from trainplan.planner.cases import replaced
from trainplan.planner.documents.document import plan_json
from trainplan.planner.documents.read_back import plan_from_json
from trainplan.planner.plan.options import SearchOptions
from trainplan.planner.questions.best_plan import search
from trainplan.planner.questions.estimation import estimate
from trainplan.planner.questions.load_shift import load_shift
from trainplan.planner.space import parse_choice

LAYOUT = Layout(dp=8, ep=8)
PIPELINE = Layout(pp=2, dp=4, ep=4)


def under(job, routing):
    options = RuntimeOptions.model_validate({"routing": routing})
    return job.model_copy(update={"options": options})


def shift(job, layout=LAYOUT):
    return load_shift(job, layout, estimate(job, layout))


def routing_of(job, popularity):
    """Counts of steps by their popularity [step, layer, expert]."""
    steps = tuple(tuple(tuple(map(float, one)) for one in step) for step in popularity)
    total = tuple(map(tuple, np.sum(steps, axis=0)))
    several = steps if len(steps) > 1 else ()
    return RoutingSpec(kind="measured", tokens_per_expert=total, steps=several, source="a.csv")


def steps_of(job, number, spread=0.3, seed=1):
    rng, moe = np.random.default_rng(seed), job.model.moe
    shape = (number, job.model.num_moe_layers, moe.num_experts)
    return np.round(1000 * np.exp(spread * rng.standard_normal(shape)))


@pytest.fixture(scope="module", name="small")
def small_job(make_job):
    return make_job("small-moe", "1x8:h100-sxm")


@pytest.mark.parametrize("routing", [None, "balanced", "load:1.2"])
def test_rows_that_are_the_same_in_all_steps_have_no_percentiles(small, routing):
    assert shift(under(small, routing)) is None
    assert shift(under(small, "random"), Layout(dp=8)) is None


@pytest.mark.parametrize(
    ("number", "levels", "fits"),
    [
        (1, [50, 90, 99], None),
        (5, [50, 100], None),
        (20, [50, 90, 100], None),
        (100, [50, 90, 99, 100], True),
    ],
)
def test_so_many_steps_tell_so_much(small, number, levels, fits):
    found = shift(under(small, routing_of(small, steps_of(small, number))))
    assert [one.percentile for one in found.percentiles] == levels
    assert found.fits is fits
    assert found.steps == (number if number > 1 else 0)
    for name in ("step_time_s", "memory_bytes"):
        values = [getattr(one, name) for one in found.percentiles]
        assert values == pytest.approx(sorted(values), rel=1e-12)
    text = " ".join(load_shift_lines(found))
    assert ("not known" in text) is (fits is None)
    assert f"{number} steps; the 99th percentile needs 100" in text or number in {1, 100}


def test_chance_alone_decides_where_a_routing_is_stated(make_job):
    job = under(make_job("qwen3-30b-a3b", "1x8:h200-sxm", 64, 4096), "random")
    found = shift(job)
    assert (found.steps, found.fits, found.fullest) == (0, True, ())
    first, *_, last = found.percentiles
    priced = estimate(job, LAYOUT)
    assert first.step_time_s == pytest.approx(priced.step_time_s, rel=2e-3)
    assert last.step_time_s >= first.step_time_s
    assert last.memory_bytes > first.memory_bytes
    assert "chance alone" in next(load_shift_lines(found))


def test_a_full_step_of_a_few_is_a_no_and_others_are_not_known(make_job):
    """What fits with a mean step runs out of memory in one of twenty."""
    job = make_job("qwen3-30b-a3b", "1x8:h200-sxm", 64, 4096)
    layout = Layout(dp=8, ep=8, micro_batch_size=2)
    popularity = np.ones((20, 48, 128))
    even = shift(under(job, routing_of(job, popularity)), layout)
    assert even.fits is None
    popularity[7, :, :16] = 30.0
    found = shift(under(job, routing_of(job, popularity)), layout)
    assert found.percentiles[0].fits
    assert not found.percentiles[-1].fits
    assert found.fits is False
    assert "runs out of memory when load shifts" in next(load_shift_lines(found))


def test_times_are_those_of_the_steps_at_the_percentiles(small):
    steps = steps_of(small, 10)
    found = shift(under(small, routing_of(small, steps)))
    each = sorted(
        estimate(under(small, routing_of(small, steps[i : i + 1])), LAYOUT).step_time_s
        for i in range(10)
    )
    times = [one.step_time_s for one in found.percentiles]
    assert times == pytest.approx([each[4], each[8], each[9]], rel=2e-3)


def test_the_fullest_layers_and_ranks_are_named(small):
    popularity = np.ones((2, small.model.num_moe_layers, small.model.moe.num_experts))
    popularity[:, 1, -1] = 3.0
    found = shift(under(small, routing_of(small, popularity)))
    layers = [i for i, has in enumerate(small.model.moe_layers) if has]
    assert (found.fullest[0].layer, found.fullest[0].rank) == (layers[1], 7)
    assert f"expert rank 7 in layer {layers[1]} " in list(load_shift_lines(found))[-1]


def test_experts_lie_in_every_step_as_they_do_for_all(small):
    """A placement by the sum of two steps, whose hot experts are others, is no better in either."""
    popularity = np.ones((2, small.model.num_moe_layers, small.model.moe.num_experts))
    popularity[0, :, 0] = popularity[1, :, 1] = 3.0
    job = under(small, routing_of(small, popularity))
    placed = job.model_copy(update={"options": replaced(job.options, expert_placement="best")})
    before, after = shift(job), shift(placed)
    assert after.fullest[0].load < before.fullest[0].load
    assert after.percentiles[-1].memory_bytes <= before.percentiles[-1].memory_bytes
    usual = estimate(placed, LAYOUT).step_time_s
    assert all(one.step_time_s >= usual * (1 - 1e-9) for one in after.percentiles)


def loads_drawn(job, layout, steps, rng, draws):
    """Kept rows of the fullest rank of each stage over balanced ones, [draw, stage], by hand."""
    layers = job.model.num_moe_layers
    moe, experts = job.model.moe, job.model.moe.num_experts
    microbatches = job.training.global_batch_size // layout.dp
    tokens, half = job.training.seq_length * layout.ep, layers // 2
    replicas = layout.dp // layout.ep
    found = np.zeros((draws, 2))
    for draw in range(draws):
        shares = steps[rng.integers(len(steps))]
        shares = shares / shares.sum(axis=-1, keepdims=True)
        for stage, flight in ((0, 2), (1, 1)):
            mine = shares[:half] if stage == 0 else shares[half:]
            for _ in range(replicas * microbatches // flight):
                rows = np.zeros(experts)
                for one in mine:
                    rows += rng.multinomial(tokens * moe.num_experts_per_tok * flight, one)
                load = rows.reshape(layout.ep, -1).sum(axis=1).max() / rows.sum() * layout.ep
                found[draw, stage] = max(found[draw, stage], load)
    return found


@pytest.mark.parametrize("level", [50.0, 90.0])
def test_memory_at_a_percentile_is_that_of_drawn_steps(make_job, level):
    """Rows that ranks keep are drawn; bytes of a load come from prices of stated loads."""
    job = make_job("small-moe", "1x8:h100-sxm", 32, 512)
    steps = steps_of(job, 20, spread=0.2)
    found = shift(under(job, routing_of(job, steps)), PIPELINE)
    (point,) = [one for one in found.percentiles if one.percentile == level]
    drawn = loads_drawn(job, PIPELINE, steps, np.random.default_rng(3), 400)
    one, two = (estimate(under(job, f"load:{x}"), PIPELINE).memory for x in (1, 2))
    ranks = list(zip(one.pipeline_ranks, two.pipeline_ranks, strict=True))
    low = np.array([a.total_bytes for a, _ in ranks])
    slope = np.array([b.reserved_bytes - a.reserved_bytes for a, b in ranks])
    transients = [1.02 * (b.transients_bytes - a.transients_bytes) for a, b in ranks]
    bytes_drawn = (low + (drawn - 1) * (slope - transients)).max(axis=1)
    variable = slope[0] * (np.percentile(drawn[:, 0], level) - 1)
    expected = np.percentile(bytes_drawn, level)
    assert point.memory_bytes - low.max() >= 0.9 * (expected - low.max())
    assert point.memory_bytes == pytest.approx(expected, abs=0.35 * variable)


def test_a_plan_keeps_how_steps_shift(make_job):
    job = make_job("qwen3-30b-a3b", "1x8:h100-sxm", 64, 8192)
    job = under(job, routing_of(job, steps_of(job, 3)))
    held = ("ep=8", "tp=1", "pp=1", "cp=1", "micro_batch_size=1", "recompute=full")
    fix = tuple(parse_choice(text, excluded=False) for text in held)
    plan = search(job, SearchOptions(search_options="none", fix=fix))
    assert plan.load_shift.steps == 3
    text = json.dumps(plan_json(plan))
    assert json.loads(text)["load_shift"]["fits"] is plan.load_shift.fits
    assert plan_from_json(text).load_shift == plan.load_shift
    assert plan_from_json(text).job.options.routing == job.options.routing
