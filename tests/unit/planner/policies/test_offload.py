"""The fraction of the optimizer that is offloaded: the least with which a layout fits."""

import json

import numpy as np
import pytest

from tests.fractions import QUARTER, steps_of, with_every_fraction
from trainplan.cli.values.layout_text import parse_layout
from trainplan.cli.words import layout_line
from trainplan.costmodel.calibration import context_for
from trainplan.costmodel.candidates.context import context_of
from trainplan.costmodel.layout.layout import Layout, OffloadSpec
from trainplan.costmodel.machine import machine_of
from trainplan.costmodel.runtimes import RUNTIMES
from trainplan.costmodel.step import price
from trainplan.planner.documents import layout_from_json, layout_json
from trainplan.planner.policies.offload import (
    Fractions,
    fractions_of,
    in_parts,
    least_offload,
    with_fraction,
)
from trainplan.planner.questions import estimate
from trainplan.planner.questions.best_plan import SearchOptions, search
from trainplan.planner.runtimes import EXPORTERS
from trainplan.planner.space import Space, parse_choice
from trainplan.planner.space.choices import rules_of_grid
from trainplan.planner.space.grid import values_outside_grid

MEGATRON = RUNTIMES["megatron-lm"]
FINE = Fractions(0.001, 1.0, 0.001)


def rules_with(*texts, excluded=False):
    return rules_of_grid(parse_choice(text, excluded=excluded) for text in texts)


@pytest.fixture(name="rows")
def _rows(make_job, legal_table):
    """Layouts under ZeRO-1, priced with nothing offloaded, and how to price them otherwise."""
    job = make_job("small-dense", "1x8:h100-sxm", 16)
    context = context_of(job, machine_of(job.cluster, "bf16"))
    table = legal_table(job, 200, 3)
    table = with_fraction(table.take(table.zero_stage == 1), 0.0)
    return table, lambda some: price(context.with_table(some))


def test_the_least_fraction_fits_and_a_step_less_does_not(rows):
    table, priced = rows
    plain, whole = priced(table).memory, priced(with_fraction(table, 1.0)).memory
    limit = float(np.quantile(whole.used, 0.6))
    legal = np.ones((2, len(table)), dtype=bool)
    found = least_offload(plain, limit, fractions_of(MEGATRON, ()), legal)
    assert ((found < 0) == (whole.used > limit)).all()
    some, least = table.take(found > 0), found[found > 0]
    assert len(some) > 5
    assert (priced(with_fraction(some, least)).memory.used <= limit).all()
    assert (priced(with_fraction(some, least - 0.001)).memory.used > limit).all()
    assert least * 1000 == pytest.approx(np.round(least * 1000), abs=1e-9)
    assert (plain.used[found == 0] <= limit).all()


def test_a_fraction_that_just_fits_is_taken(rows):
    table, priced = rows
    one, legal = table.take(np.array([0])), np.ones((1, 1), dtype=bool)
    for fraction in np.arange(1, 1001, 37) / 1000:
        limit = float(priced(with_fraction(one, fraction)).memory.used[0]) * (1 + 1e-12)
        assert least_offload(priced(one).memory, limit, (FINE,), legal) == [fraction]


def test_a_range_that_a_rule_forbids_is_left_out(rows):
    table, priced = rows
    memory, ranges = priced(table).memory, fractions_of(MEGATRON, rules_with("offload=0.4"))
    assert [(one.least, one.most) for one in ranges] == [
        (0.0, 0.0),
        (0.001, 0.399),
        (0.4, 0.4),
        (0.401, 1.0),
    ]
    alone = np.repeat([[False], [False], [True], [False]], len(table), axis=1)
    assert set(least_offload(memory, np.inf, ranges, alone)) == {0.4}


def test_a_fraction_between_steps_may_be_held():
    ranges = fractions_of(MEGATRON, rules_with("offload=0.3333"))
    assert [(one.least, one.most) for one in ranges[1:]] == [
        (0.001, 0.333),
        (0.3333, 0.3333),
        (0.334, 1.0),
    ]
    assert ranges[2].at_least(np.array([0.33325, 0.33335])).tolist() == [0.3333, np.inf]


def test_parts_of_ranges_hold_every_step_once():
    parts = in_parts(fractions_of(MEGATRON, rules_with("offload=0.4")))
    steps = [k for one in parts for k in range(round(one.least * 1000), round(one.most * 1000) + 1)]
    assert steps == list(range(1001))


def test_a_runtime_that_offloads_nothing_has_one_fraction(make_job):
    assert fractions_of(RUNTIMES["accelerate"], ()) == (Fractions(0.0, 0.0),)
    job = make_job("small-dense", "1x8:h100-sxm").model_copy(update={"runtime": "accelerate"})
    (stated,) = values_outside_grid(
        Space(context_for(job)), [parse_choice("offload=0.5", excluded=False)]
    )
    assert stated == "--fix offload=0.5: the search tries 0 only"
    assert Space(context_for(job)).axis_values()["offload.optimizer"] == [0.0]


def test_a_runtime_that_offloads_all_or_nothing_has_two(make_job):
    assert fractions_of(RUNTIMES["torchtitan"], ()) == (
        Fractions(0.0, 0.0, step=1.0),
        Fractions(1.0, 1.0, step=1.0),
    )


def test_a_fraction_counts_as_one_choice(make_job):
    job = make_job("small-dense", "1x8:h100-sxm")
    fine = Space(context_for(job)).size
    assert Space(context_for(job)).axis_values()["offload.optimizer"] == [
        "0 to 1 in steps of 0.001"
    ]
    with steps_of(QUARTER):
        assert Space(context_for(job)).size == fine


def tight_job(make_job, cluster, memory_gib):
    job = make_job("small-dense", cluster, 16)
    group = job.cluster.groups[0].model_copy(update={"memory_gib": memory_gib})
    return job.model_copy(update={"cluster": job.cluster.model_copy(update={"groups": (group,)})})


OFFLOADS = SearchOptions(
    search_options="none",
    slack=0.0,
    fix=tuple(parse_choice(text, excluded=False) for text in ("zero_stage=1", "recompute=none")),
)


@pytest.mark.parametrize("memory_gib", [2.1, 2.5, 2.8])
def test_a_plan_offloads_no_more_than_it_must(make_job, memory_gib):
    """Whatever is split, and a search by quarters finds nothing faster."""
    job = tight_job(make_job, "1x2:h100-sxm", memory_gib)
    plan = search(job, OFFLOADS)
    best = plan.best
    assert plan.certificate.optimal
    with steps_of(QUARTER):
        coarse = search(job, OFFLOADS)
    if hasattr(coarse, "best"):
        assert best.estimate.step_time_s <= coarse.best.estimate.step_time_s
    fraction = best.layout.offload.optimizer
    assert 0 < fraction < 1
    less = best.layout.model_copy(update={"offload": OffloadSpec(optimizer=fraction - 0.001)})
    assert best.estimate.memory.fits
    assert not estimate(job, less, memory_margin=0.05).memory.fits
    assert estimate(job, less).step_time_s <= best.estimate.step_time_s


def test_what_the_user_says_of_a_fraction_is_kept(make_job):
    job = tight_job(make_job, "1x2:h100-sxm", 2.5)
    free = search(job, OFFLOADS).best
    fraction = free.layout.offload.optimizer
    other = parse_choice(f"offload={fraction:g}", excluded=True)
    without = search(job, OFFLOADS.model_copy(update={"exclude": (other,)})).best
    assert without.layout.offload.optimizer != fraction
    assert without.estimate.step_time_s >= free.estimate.step_time_s
    held = parse_choice("offload=0.93337", excluded=False)
    fixed = search(job, OFFLOADS.model_copy(update={"fix": (*OFFLOADS.fix, held)})).best
    assert fixed.layout.offload.optimizer == 0.93337


def test_a_fraction_is_printed_read_and_exported(make_job):
    job = make_job("small-dense", "1x8:h100-sxm", 16)
    layout = Layout(dp=8, offload=OffloadSpec(optimizer=0.334))
    assert parse_layout("dp=8,offload=0.334", job.cluster) == layout
    assert "offload 33.4 % of optimizer" in layout_line(layout, job.model)
    assert layout_from_json(json.loads(json.dumps(layout_json(job, layout)))) == layout
    exported = EXPORTERS["megatron-lm"](job, layout).arguments
    fraction = [one for one in exported if one.flag == "--optimizer-offload-fraction"]
    assert [one.values for one in fraction] == [("0.334",)]


def test_more_offload_never_saves_time_and_never_takes_memory(make_job, legal_table):
    job = make_job("small-moe", "1x8:h100-sxm", 16)
    table = legal_table(job, 100, 5)
    context = context_of(job, machine_of(job.cluster, "bf16"))
    every = price(context.with_table(with_every_fraction_of_ten(table)))
    seconds, used = (x.reshape(11, -1) for x in (every.step_seconds, every.memory.used))
    assert (np.diff(seconds, axis=0) >= -1e-12 * seconds[0]).all()
    assert (np.diff(used, axis=0) <= 0).all()
    optimizer = every.memory.optimizer.reshape(len(every.memory.optimizer), 11, -1)
    assert np.diff(optimizer, 2, axis=1) == pytest.approx(0.0, abs=1.0)


def with_every_fraction_of_ten(table):
    with steps_of(0.1):
        return with_every_fraction(MEGATRON, table)


def test_rules_of_a_runtime_still_say_what_may_be_offloaded(make_job):
    job = make_job("small-dense", "1x1:h100-sxm")
    fixed = [parse_choice(text, excluded=False) for text in ("zero_stage=0", "offload=0.5")]
    plan = search(job, SearchOptions(fix=tuple(fixed), only_answer=True))
    assert not hasattr(plan, "best")
    assert "offload_needs_distributed_optimizer" in plan.refused
