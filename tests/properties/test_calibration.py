"""What must hold for every calibration."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.grids import examples
from trainplan.costmodel.calibration.effects import Shared, effects_of, machine_spread
from trainplan.costmodel.calibration.fit import Observation, calibrate
from trainplan.costmodel.calibration.machine import Measured, speed_for, with_scalars
from trainplan.costmodel.calibration.scalars import NETWORK_FACTORS, Steps, fit_of
from trainplan.costmodel.candidates import context_of
from trainplan.costmodel.documents.calibration import Scalars
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.machine import machine_of
from trainplan.costmodel.step import price
from trainplan.costmodel.step.node_bound import node_bound_seconds
from trainplan.costmodel.step.simulate import step_seconds
from trainplan.planner.questions.best_plan import SearchOptions, search

SCALARS = st.builds(
    Scalars,
    speed=st.floats(0.2, 3.0),
    inter_node_bandwidth=st.floats(0.1, 3.0),
    fixed_overhead_seconds=st.floats(0.0, 2.0),
)
LAYOUT = Layout(tp=8, dp=2, sequence_parallel=True)
SPEED_ALONE = np.array([True, False, False])


@pytest.fixture(scope="module")
def job(make_job):
    return make_job("small-dense", "2x8:h100-sxm")


@pytest.fixture(scope="module")
def table(job, legal_table):
    return legal_table(job, 40, 3)


def priced(job, table, scalars):
    machine = with_scalars(machine_of(job.cluster, "bf16"), scalars)
    return machine, step_seconds(context_of(job, machine).with_table(table))


@examples(12, by_night=100)
@given(scalars=SCALARS)
def test_bounds_hold_on_a_calibrated_machine(job, table, scalars):
    machine, steps = priced(job, table, scalars)
    bound = price(context_of(job, machine).with_table(table)).step_seconds
    floor = node_bound_seconds(context_of(job, machine).with_table(table))
    assert (bound <= steps * (1 + 1e-9)).all()
    assert (floor <= bound * (1 + 1e-9)).all()


@examples(12, by_night=100)
@given(scalars=SCALARS, slower=st.floats(0.3, 1.0), more=st.floats(0.0, 1.0))
def test_a_slower_calibration_never_makes_a_step_faster(job, table, scalars, slower, more):
    _, before = priced(job, table, scalars)
    for change in (
        {"speed": scalars.speed * slower},
        {"inter_node_bandwidth": scalars.inter_node_bandwidth * slower},
        {"fixed_overhead_seconds": scalars.fixed_overhead_seconds + more},
    ):
        _, after = priced(job, table, scalars.model_copy(update=change))
        assert (after >= before * (1 - 1e-12)).all()


@given(
    priced_seconds=st.lists(st.floats(0.1, 100.0), min_size=1, max_size=8),
    factor=st.floats(0.5, 2.0),
    data=st.data(),
)
def test_longer_times_never_give_a_higher_speed_nor_overshoot(priced_seconds, factor, data):
    count = len(priced_seconds)
    noise = data.draw(st.lists(st.floats(0.95, 1.05), min_size=count, max_size=count))
    times = np.array(priced_seconds)
    priced_at = np.log(times)[:, None] + np.zeros(len(NETWORK_FACTORS))
    shared = [Shared("family", "model", 1, str(number)) for number in range(count)]
    effects = effects_of(shared, machine_spread(was_seen=True))
    speed, longer = (
        fit_of(Steps(scale * times * np.array(noise), priced_at, effects), SPEED_ALONE)
        .scalars("family", shared[0].job)
        .speed
        for scale in (factor, 1.1 * factor)
    )
    assert 1 - 1e-9 < speed / longer < 1.3  # equal where both are too far off to be believed
    low, high = sorted([1.0, 1 / factor])
    assert low / 1.06 < speed < 1.06 * high


@given(
    off=st.lists(st.floats(-0.5, 0.5), min_size=2, max_size=6),
    models=st.lists(st.sampled_from("abc"), min_size=6, max_size=6),
    data=st.data(),
)
def test_the_order_of_runs_does_not_matter_to_the_speed(off, models, data):
    shared = [Shared("f", m, 1, str(n)) for n, (_, m) in enumerate(zip(off, models, strict=False))]
    order = data.draw(st.permutations(range(len(off))))
    found = []
    for places in (range(len(off)), order):
        priced_at = np.array([off[i] for i in places])[:, None] + np.zeros(len(NETWORK_FACTORS))
        effects = effects_of([shared[i] for i in places], machine_spread(was_seen=False))
        fit = fit_of(Steps(np.ones(len(off)), priced_at, effects), SPEED_ALONE)
        found.append([fit.log_speed(*names) for names in ((), ("f",), ("f", shared[0].job))])
    assert np.allclose(*found, atol=1e-6)


def test_a_search_on_a_calibrated_machine_stays_proven(job):
    plain = SearchOptions(search_options="none")
    before = search(job, plain)
    measured = 1.3 * priced(job, LayoutTable.of([LAYOUT]), Scalars())[1][0]
    calibration = calibrate([Observation("run", "test", job, LAYOUT, float(measured))])
    after = search(job, plain, measured=Measured(calibration=calibration))
    assert after.certificate.optimal
    assert after.best.layout == before.best.layout
    ratio = after.best.estimate.step_time_s / before.best.estimate.step_time_s
    assert ratio == pytest.approx(1 / speed_for(job, calibration).value)
    assert after.certificate.lower_bound_s <= after.best.estimate.step_time_s
