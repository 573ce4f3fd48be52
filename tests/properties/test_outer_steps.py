"""What must hold of islands for any links, rounds, types and overlaps."""

import numpy as np
import pytest

from tests.grids import number
from trainplan.costmodel.calibration import context_for
from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.costmodel.job.job import Job, TrainingSpec
from trainplan.costmodel.job.outer import OuterSpec
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.outer.of_job import sync_of
from trainplan.costmodel.outer.outer_step import exposed_seconds
from trainplan.costmodel.presets.presets import preset
from trainplan.costmodel.step import explicit, price
from trainplan.planner.plan import SearchOptions
from trainplan.planner.questions.best_plan import search

JOBS = number(3, by_night=60)
BRIEF = SearchOptions(search_options="none", only_answer=True, top=1, slack=0.0)
LAYOUTS = [
    Layout(tp=tp, pp=pp, dp=8 // tp // pp, micro_batch_size=size, zero_stage=1)
    for tp in (1, 2)
    for pp in (1, 2)
    for size in (1, 2)
]


def drawn(rng, **fields):
    fragments = int(rng.choice([1, 2, 4]))
    between = int(rng.integers(2, 40))
    overlap = ("none", "eager", int(rng.integers(1, between)))[rng.integers(3)]
    values = {
        "islands": int(rng.integers(2, 9)),
        "every": fragments * between,
        "fragments": fragments,
        "overlap": overlap,
        "dtype": str(rng.choice(["fp32", "bf16", "int8"])),
        "gb_per_s": float(10 ** rng.uniform(-2, 2)),
        "latency_us": float(rng.choice([0, 50_000])),
    }
    return OuterSpec(**{**values, **fields})


def job(outer, batch=32):
    return Job(
        model=preset("llama3.2-1b"),
        training=TrainingSpec(seq_length=1024, global_batch_size=batch),
        cluster=parse_cluster("1x8:h100-sxm"),
        outer=outer,
    )


def steps(outer):
    on = context_for(job(outer)).with_table(LayoutTable.of(LAYOUTS))
    return np.array([one.step_time_s for one in explicit(on)])


@pytest.mark.parametrize("seed", range(JOBS))
def test_the_best_of_an_island_is_best_with_its_share_of_the_syncs(seed):
    """As joining is the same for all layouts, and no step gets shorter as a local one grows."""
    outer = drawn(np.random.default_rng(seed))
    joined, alone = search(job(outer), BRIEF), search(job(None), BRIEF)
    local = alone.best.estimate.step_time_s
    sync_s = sync_of(joined.job, context_for(joined.job).machine).seconds
    share = exposed_seconds(sync_s, local, outer, outer.every) / outer.every
    assert joined.best.estimate.step_time_s == pytest.approx(local + share)
    assert joined.certificate.optimal
    assert joined.certificate.lower_bound_s <= joined.best.estimate.step_time_s * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(10 * JOBS))
def test_bounds_terms_and_directions(seed):
    rng = np.random.default_rng(seed)
    outer = drawn(rng)
    on = context_for(job(outer)).with_table(LayoutTable.of(LAYOUTS))
    found, bounds = explicit(on), price(on).step_seconds
    seconds = np.array([one.step_time_s for one in found])
    assert (bounds <= seconds * (1 + 1e-9)).all()
    for one in found:
        terms = one.terms
        total = sum(getattr(terms, name) for name in terms.__slots__)
        assert total == pytest.approx(one.step_time_s)
        assert terms.outer_comm >= 0
    slower = outer.model_copy(update={"gb_per_s": outer.gb_per_s / 3})
    assert (steps(slower) >= seconds).all()
    shorter = outer.model_copy(update={"every": outer.every * 2})
    assert (steps(shorter) <= seconds).all()
    narrower = outer.model_copy(update={"dtype": "int8"})
    assert (steps(narrower) <= seconds).all()
    rare = outer.model_copy(update={"every": 1_000_000})
    np.testing.assert_allclose(steps(rare), steps(None), rtol=0.05)
