"""The grid that a search covers, counted by hand."""

import pytest

from trainplan.costmodel.axes import RULES
from trainplan.costmodel.axes.values import divisors
from trainplan.costmodel.calibration import context_for
from trainplan.planner.plan.options import SearchOptions
from trainplan.planner.questions.best_plan import search
from trainplan.planner.space import Space
from trainplan.planner.space.grid import RuleFilter, nodes


def layers(job, count):
    model = job.model.model_copy(update={"num_hidden_layers": count})
    return Space(context_for(job.model_copy(update={"model": model})))


@pytest.mark.parametrize(
    ("count", "pp", "values"),
    [
        (12, 1, (1,)),
        (12, 2, (1, 2, 3, 6)),  # stages of 6, 3, 2 and 1 layers
        (12, 4, (1, 3)),
        (13, 2, (1, 2, 3, 4, 5, 6, 7)),  # 13 layers and up to 2 empty ends: 15 places of 2
        (14, 4, (1, 2, 3, 4)),
        (12, 16, (1,)),
    ],
)
def test_virtual_stages_divide_the_layers_of_a_rank_or_are_all_that_may_be(
    make_job, count, pp, values
):
    """Embedding and head may have a stage to themselves where layers do not divide."""
    space = layers(make_job("small-dense", "4x8:h100-sxm"), count)
    assert space.virtual_stages(pp) == values


def test_a_choice_of_degrees_has_experts_micro_batches_and_sequence_parallelism_below_it(make_job):
    """ep and etp out of 1, 2, 4, 8; micro batches of 1 to 64 or that divide 24; on or off."""
    space = Space(context_for(make_job("small-moe", "1x8:h100-sxm", 24)))
    assert space.micro_batches == (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64)
    assert space.node_choices == 4 * 4 * 11 * 2
    assert Space(context_for(make_job("small-dense", "1x8:h100-sxm", 24))).node_choices == 11 * 2


@pytest.mark.parametrize(
    ("model", "runtime", "tokens", "values"),
    [
        ("llama3.1-8b", "megatron-lm", 32_768, [1, 2, 4, 8]),
        ("llama3.1-8b", "megatron-lm", 16_384, [1]),
        ("llama3.1-8b", "torchtitan", 32_768, [1]),
        ("gpt-oss-20b", "megatron-lm", 32_768, [1]),
    ],
)
def test_heads_are_exchanged_inside_rings_of_long_sequences(
    make_job, model, runtime, tokens, values
):
    """Of 8 key-value heads; a ring has no windows."""
    job = make_job(model, "1x8:h100-sxm", 1, tokens).model_copy(update={"runtime": runtime})
    space = Space(context_for(job))
    assert space.axis_values()["cp_heads"] == values
    found = nodes(space, RuleFilter(job, RULES)).table
    pairs = {(cp, heads) for cp, heads in zip(found.cp, found.cp_heads, strict=True) if heads > 1}
    assert pairs == ({(4, 2), (8, 2), (8, 4)} if len(values) > 1 else set())


def test_a_search_of_long_sequences_finds_heads_inside_a_ring(make_job):
    best = search(
        make_job("llama3.1-8b", "4x8:h100-sxm", 1, 131_072), SearchOptions(slack=0.0)
    ).best
    assert (best.layout.cp, best.layout.cp_heads) == (32, 8)
    assert best.estimate.step_time_s < 1.4858, "1.5098 without"


def test_degrees_split_the_world_in_every_ordered_way(make_job):
    """8 is a product of four factors in 20 ways: three twos among four places."""
    table = Space(context_for(make_job("small-dense", "1x8:h100-sxm"))).degree_table
    assert len(table) == 20
    assert (table.tp * table.cp * table.pp * table.dp == 8).all()
    assert divisors(12) == (1, 2, 3, 4, 6, 12)


def test_vpp_need_not_divide_where_layers_may_be_split_freely(make_job):
    job = make_job("mixtral-8x7b", "4x8:h100-sxm", 256, 4096)
    assert 17 not in Space(context_for(job)).virtual_stages(2)
    assert Space(context_for(job), any_vpp=True).virtual_stages(2) == tuple(range(1, 18))
    assert Space(context_for(job), any_vpp=True).virtual_stages(1) == (1,)
