"""What must hold for every profile."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.grids import examples
from tests.properties.test_search_is_exact import every_legal_layout
from trainplan.costmodel import catalog
from trainplan.costmodel.calibration import Measured, machine_for
from trainplan.costmodel.candidates import Candidates, context_of
from trainplan.costmodel.profiles.profile import (
    AttentionPoint,
    CollectivePoint,
    LayerPoint,
    OptimizerPoint,
    Origin,
    ProductPoint,
    Profile,
    StreamPoint,
    Timing,
)
from trainplan.costmodel.runtimes.registry import traits_of
from trainplan.costmodel.step import price
from trainplan.costmodel.step.node_bound import node_bound_seconds
from trainplan.costmodel.step.simulate import step_seconds
from trainplan.planner.questions.best_plan import SearchOptions, search
from trainplan.planner.space import parse_choice
from trainplan.profiler.fit.points import fitted

pytestmark = pytest.mark.usefixtures("quarters")

PROFILES = Path(__file__).parents[2] / "examples" / "accuracy" / "profiles"
PEAK = catalog.gpu("h100-sxm").peak_tflops["bf16"].value * 1e12
SCALES = st.floats(1.0, 20.0)
NOISE = np.random.default_rng(11)
PRODUCTS = tuple(
    ProductPoint(
        m=m,
        n=n,
        k=k,
        groups=groups,
        time=Timing(seconds=groups * 3 * m * n * k / PEAK * NOISE.uniform(0.8, 1.3) + 6e-6),
    )
    for m in (512, 4096)
    for n in (1024, 8192)
    for k in (512, 4096)
    for groups in (1, 8)
)
LINKS = tuple(
    CollectivePoint(
        operation=operation,
        ranks=ranks,
        per_node=ranks,
        num_bytes=size,
        time=Timing(seconds=(2e-5 + size / 2e11) * NOISE.uniform(0.8, 1.3)),
    )
    for operation in ("all_gather", "reduce_scatter")
    for ranks in (2, 8)
    for size in (2**14, 2**20, 2**24, 2**28)
)
ATTENTION = tuple(
    AttentionPoint(
        micro_batch_size=1,
        seq_length=length,
        num_heads=16,
        num_key_value_heads=16,
        head_dim=64,
        value_dim=64,
        forward=Timing(seconds=16 * length**2 * 256 / PEAK + 1e-5),
        backward=Timing(seconds=16 * length**2 * 800 / PEAK + 1e-5),
    )
    for length in (512, 1024, 2048, 4096, 8192)
)
STREAMS = tuple(
    StreamPoint(name="norm", moved_bytes=size, time=Timing(seconds=4e-6 + size / 2.5e12))
    for size in (2**20, 2**24, 2**28)
)
KINDS = {"products": PRODUCTS, "links": LINKS, "attention": ATTENTION, "streams": STREAMS}


def scaled(points, factor):
    """The points, all of them so many times as long."""
    return [
        point.model_copy(
            update={
                name: value.model_copy(update={"seconds": factor * value.seconds})
                for name, value in point
                if isinstance(value, Timing)
            }
        )
        for point in points
    ]


def profile(points, gpu="h100-sxm"):
    bare = Profile(
        gpu=gpu, gpus_per_node=8, origins=(Origin(source="a test"),), points=tuple(points)
    )
    return fitted(bare, catalog.gpu(gpu))


def layer(job, forward, **more):
    seconds = Timing(seconds=forward), Timing(seconds=2.2 * forward)
    return LayerPoint(
        model=job.model,
        seq_length=job.training.seq_length,
        forward=seconds[0],
        backward=seconds[1],
        **{"runtime": job.runtime, "micro_batch_size": 1} | more,
    )


@pytest.fixture(scope="module", params=["small-dense", "small-moe"])
def job(request, make_job):
    return make_job(request.param, "1x8:h100-sxm", 16)


@pytest.fixture(scope="module")
def table(job, legal_table):
    return legal_table(job, 30, 3)


def steps(job, table, points):
    machine = machine_for(job, Measured(profile=profile(points)))
    return step_seconds(context_of(job, machine).with_table(table))


@pytest.mark.grid
@pytest.mark.parametrize("kind", KINDS)
@examples(2, by_night=5)
@given(before=st.floats(0.5, 2.0), slower=SCALES)
def test_what_is_measured_slower_never_makes_a_step_faster(job, table, kind, before, slower):
    others = [point for name, points in KINDS.items() if name != kind for point in points]
    fast, slow = (
        steps(job, table, [*others, *scaled(KINDS[kind], factor)])
        for factor in (before, before * slower)
    )
    assert (slow >= fast * (1 - 1e-9)).all()


@examples(2, by_night=5)
@given(forward=st.floats(1e-4, 1e-1), slower=SCALES)
def test_slower_measured_layers_never_make_a_step_faster(job, table, forward, slower):
    fast, slow = (
        steps(job, table, [layer(job, forward * factor, moe=moe) for moe in (False, True)])
        if job.model.moe
        else steps(job, table, [layer(job, forward * factor)])
        for factor in (1.0, slower)
    )
    assert (slow >= fast * (1 - 1e-9)).all()


@examples(2, by_night=5)
@given(data=st.data())
def test_bounds_hold_on_a_profiled_machine(job, table, data):
    points = [
        point
        for points in KINDS.values()
        for point in scaled(points, data.draw(st.floats(0.1, 10.0)))
    ]
    points += [layer(job, data.draw(st.floats(1e-4, 1e-1)), micro_batch_size=n) for n in (1, 2)]
    machine = machine_for(job, Measured(profile=profile(points)))
    explicit = step_seconds(context_of(job, machine).with_table(table))
    bound = price(context_of(job, machine).with_table(table)).step_seconds
    floor = node_bound_seconds(context_of(job, machine).with_table(table))
    assert (bound <= explicit * (1 + 1e-9)).all()
    assert (floor <= bound * (1 + 1e-9)).all()


@pytest.mark.parametrize("model", ["small-dense", "small-moe"])
def test_bounds_hold_with_fast_products_and_a_step_of_muon(make_job, legal_table, model):
    job = make_job(model, "1x8:h100-sxm", 16, precision="fp8", optimizer="muon")
    split = [point.model_copy(update={"precision": "fp8"}) for point in PRODUCTS]
    fast = [one.model_copy(update={"fast_accumulation": True}) for one in scaled(split, 0.5)]
    step = OptimizerPoint(name="muon", num_params=2**26, side=2**12, time=Timing(seconds=0.2))
    machine = machine_for(job, Measured(profile=profile([*split, *fast, step])))
    assert machine.linear.fast is not None
    assert machine.optimizer_slowness > 1
    context = context_of(job, machine).with_table(legal_table(job, 30, 3))
    assert (price(context).step_seconds <= step_seconds(context) * (1 + 1e-9)).all()
    assert (node_bound_seconds(context) <= price(context).step_seconds * (1 + 1e-9)).all()


@examples(2, by_night=5)
@given(seed=st.integers(0, 2**32 - 1))
def test_a_table_prices_like_its_rows_on_a_profiled_machine(job, table, seed):
    points = [point for points in KINDS.values() for point in points]
    machine = machine_for(job, Measured(profile=profile([*points, layer(job, 0.004)])))
    row = int(np.random.default_rng(seed).integers(len(table)))
    whole = step_seconds(context_of(job, machine).with_table(table))[row]
    alone = step_seconds(context_of(job, machine).with_table(table.take(np.array([row]))))[0]
    assert alone == pytest.approx(whole, rel=1e-12)


def published(name):
    document = json.loads((PROFILES / f"{name}.json").read_text())
    assert document.pop("schema") == Profile.SCHEMA
    return Profile.model_validate(document)


EVEN = SearchOptions(
    top=3, search_options="none", fix=(parse_choice("stages=even", excluded=False),)
)
"""What brute force lists."""


@pytest.mark.parametrize(
    ("model", "gpu", "own"),
    [
        ("small-dense", "h100-sxm", "made"),
        ("small-dense", "b200", "simumax-b200"),
        ("small-moe", "l4", "mist-l4"),
    ],
)
def test_a_search_with_a_profile_finds_what_brute_force_finds(make_job, model, gpu, own):
    job = make_job(model, f"1x4:{gpu}", 16)
    if own == "made":
        points = [point for points in KINDS.values() for point in points]
        known = profile([*points, layer(job, 0.004), layer(job, 0.003, tp=2)])
    else:
        known = published(own)
    measured = Measured(profile=known)
    machine, traits = machine_for(job, measured), traits_of(job)
    table = every_legal_layout(job)
    priced = price(Candidates(job, machine, traits, table))
    fits = priced.memory.used <= machine.memory_bytes * (1 - SearchOptions().margin(job))
    plan = search(job, EVEN, measured=measured)
    best = plan.best.estimate.step_time_s
    assert plan.certificate.optimal
    assert plan.certificate.lower_bound_s <= best
    near = priced.step_seconds[fits] <= best * (1 + 1e-12)
    assert near.any()
    simulated = step_seconds(Candidates(job, machine, traits, table.take(fits).take(near)))
    assert best == pytest.approx(simulated.min(), rel=1e-12)
