"""The search stays exact where sequences are of unequal length, and off changes no price."""

from dataclasses import fields
from functools import lru_cache

import numpy as np
import pytest

from tests.grids import EXACT, number
from tests.properties.every_split import chunks_alike, every_layout_and_split
from tests.properties.test_bounds_nest import (
    test_node_skeleton_layout_and_simulation_bound_each_other as bounds_nest,
)
from tests.properties.test_search_is_exact import assert_best_of_all, every_legal_layout
from trainplan.costmodel.candidates.context import context_of
from trainplan.costmodel.job.job import LengthSpec, Lognormal, TrainingSpec
from trainplan.costmodel.layouts import SELECTIVE
from trainplan.costmodel.machine import machine_of
from trainplan.costmodel.step import price
from trainplan.costmodel.step.simulate import step_seconds
from trainplan.planner.questions.best_plan import SearchOptions, search
from trainplan.planner.space.choices import parse_choice, rules_of_grid, rules_of_job

pytestmark = pytest.mark.usefixtures("quarters")

WIDE = LengthSpec(lognormal=Lognormal(mean=300, sigma=1.3))


def with_lengths(job, packing, lengths=WIDE):
    stated = {**dict(job.training), "lengths": lengths, "packing": packing}
    return job.model_copy(update={"training": TrainingSpec.model_validate(stated)})


@pytest.mark.grid
@pytest.mark.parametrize("memory_gib", [80, 1.6])
@pytest.mark.parametrize("packing", ["greedy", "balanced"])
@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("small-dense", "megatron-lm"),
        ("small-moe", "megatron-lm"),
        ("small-dense", "torchtitan"),
        ("small-dense", "megatron-zero-bubble"),
    ],
)
def test_the_search_finds_what_brute_force_finds(make_job, model, name, packing, memory_gib):
    job = make_job(model, "1x4:h100-sxm", 8).model_copy(update={"runtime": name})
    assert_best_of_all(with_lengths(job, packing), memory_gib)


@pytest.mark.parametrize("packing", ["greedy", "balanced"])
@pytest.mark.parametrize(
    "case",
    [
        ("llama3-8b", "2x8:h100-sxm", 64, 4096, "megatron-lm"),
        ("llama3-8b", "2x8:h100-sxm", 64, 4096, "torchtitan"),
        ("small-moe", "2x4:a100-sxm-40gb", 24, 2048, "megatron-lm"),
    ],
)
def test_every_bound_stays_below_what_it_bounds(make_job, case, packing):
    bounds_nest(lambda *wanted: with_lengths(make_job(*wanted), packing), case)


@lru_cache(maxsize=8)
def prices(job):
    table = every_legal_layout(job)
    table = table.take(np.arange(0, len(table), number(5, by_night=1)))
    return price(context_of(job, machine_of(job.cluster, "bf16")).with_table(table))


@pytest.mark.parametrize("model", ["small-dense", "small-moe"])
def test_padded_rows_cost_to_the_bit_what_rows_of_one_length_cost(make_job, model):
    job = make_job(model, "1x4:h100-sxm", 8, 4096)
    plain, padded = prices(job), prices(with_lengths(job, "none"))
    assert (plain.step_seconds == padded.step_seconds).all()
    for field in fields(plain.seconds.layers[0]):
        one, other = (getattr(each.seconds.layers[0], field.name) for each in (plain, padded))
        assert (one == other).all()


@pytest.mark.parametrize("packing", ["greedy", "balanced"])
def test_rows_that_one_sequence_fills_cost_what_rows_of_one_length_cost(make_job, packing):
    job = make_job("small-moe", "1x4:h100-sxm", 8, 4096)
    full = with_lengths(job, packing, LengthSpec(counts=((4096, 3),)))
    assert prices(full).step_seconds == pytest.approx(prices(job).step_seconds, rel=1e-12)


def test_packing_takes_less_time_than_a_row_of_one_sequence_and_balance_still_less(make_job):
    job = make_job("small-dense", "1x4:h100-sxm", 8, 4096)
    whole, greedy, balanced = (
        prices(with_lengths(job, packing)).step_seconds
        for packing in ("none", "greedy", "balanced")
    )
    # what shards gather hides beside a pass, not beside what is recomputed by modules
    table = every_legal_layout(job)
    table = table.take(np.arange(0, len(table), number(5, by_night=1)))
    gathers = (table.zero_stage >= 2) & (table.recompute == SELECTIVE)
    assert (greedy <= whole * (1 + 1e-12 + 0.005 * gathers)).all()
    assert np.mean(greedy < whole) > 0.5
    assert (balanced <= greedy * (1 + 1e-3 + 0.005 * gathers)).all()
    assert (balanced < greedy).any()


@pytest.mark.parametrize("packing", ["greedy", "balanced"])
def test_the_best_split_of_stages_stays_the_best_of_all(make_job, packing):
    job = with_lengths(make_job("small-dense", "1x4:l4", 8), packing)
    shape = {"num_hidden_layers": 4}
    job = job.model_copy(update={"model": job.model.model_copy(update=shape)})
    choices = [parse_choice(text, excluded=False) for text in ("pp=2", "cp=1")]
    rules = [*rules_of_grid(choices), *rules_of_job(job)]
    context = context_of(job, machine_of(job.cluster, "bf16"))
    table = every_layout_and_split(job, rules)
    seconds = step_seconds(context.with_table(table))
    found = search(job, SearchOptions(**EXACT, fix=tuple(choices), top=1, search_options="none"))
    alike = seconds[chunks_alike(job, table)].min()
    assert seconds.min() <= found.best.estimate.step_time_s * (1 + 1e-9)
    assert found.best.estimate.step_time_s <= alike * (1 + 1e-9)
    assert found.certificate.uneven_stages.any_split_lower_bound_s <= seconds.min() * (1 + 1e-9)
