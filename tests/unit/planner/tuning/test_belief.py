import numpy as np
import pytest

from trainplan.costmodel import catalog
from trainplan.costmodel.measured.varied import SCALARS
from trainplan.planner.tuning.belief import Measurements, Prior, samples
from trainplan.planner.tuning.memory import memory_prior, normal_below
from trainplan.planner.tuning.pricing import Linear, Prices

SIZES = catalog.spreads().layouts
COMPUTE, NETWORK = SCALARS.index("compute"), SCALARS.index("inter_node_bandwidth")


def prior(seconds, slopes=None, alike=None, **spreads):
    """Contenders priced at the middle, with slopes by scalar and given spreads of scalars."""
    count = len(seconds)
    table = np.zeros((count, len(SCALARS)))
    for name, column in (slopes or {}).items():
        table[:, SCALARS.index(name)] = column
    sizes = np.array([spreads.get(name, 1e-6) for name in SCALARS])
    prices = Prices(np.log(np.array(seconds)), np.ones(count))
    known = np.eye(count) if alike is None else np.array(alike)
    return Prior(Linear(prices, np.zeros(len(SCALARS)), table), sizes, known, SIZES)


def measured(*pairs, noise=0.01):
    rows, seconds = zip(*pairs, strict=True)
    return Measurements(np.array(rows), np.log(seconds), np.full(len(rows), noise))


def test_of_two_layouts_the_other_follows_by_the_covariance_over_the_variance():
    # log steps 0 and ln 2, one scalar of spread 0.1 with slopes -1 and -0.5, alike by 0.5
    before = prior(
        (1.0, 2.0), {"compute": (-1.0, -0.5)}, alike=((1.0, 0.5), (0.5, 1.0)), compute=0.1
    )
    found = before.after(measured((0, 1.1)), wide_tails=False)
    own, shared = SIZES.own.value**2, SIZES.shared.value**2
    variance = 0.01 + shared + own + 0.01**2
    covariance = 0.5 * 0.01 + 0.5 * shared
    assert found.log_seconds[1] == pytest.approx(
        np.log(2) + covariance / variance * np.log(1.1), abs=1e-6
    )
    left = 0.25 * 0.01 + shared + own - covariance**2 / variance
    assert found.variance[1] == pytest.approx(left, abs=1e-6)
    assert found.scalars[COMPUTE] == pytest.approx(-0.01 / variance * np.log(1.1), abs=1e-6)


def test_a_slow_step_slows_layouts_alike_more_than_others():
    before = prior((1.0, 1.0, 1.0), alike=((1.0, 0.8, 0.0), (0.8, 1.0, 0.0), (0.0, 0.0, 1.0)))
    found = before.after(measured((0, 1.1)))
    assert found.log_seconds[1] > 0.02
    assert found.log_seconds[2] == pytest.approx(0.0, abs=1e-6)


def test_one_layout_tells_a_slow_network_from_slow_compute():
    before = prior(
        (1.0, 1.0),
        {"compute": (-1.0, -0.2), "inter_node_bandwidth": (0.0, -0.8)},
        compute=0.3,
        inter_node_bandwidth=0.3,
    )
    network = before.after(measured((0, 1.0), (1, 1.25)))
    assert network.scalars[NETWORK] < -0.15
    assert abs(network.scalars[COMPUTE]) < 0.05
    compute = before.after(measured((0, 1.25), (1, 1.05)))
    assert compute.scalars[COMPUTE] < -0.15
    assert abs(compute.scalars[NETWORK]) < 0.05


def test_one_odd_run_among_several_moves_the_machine_less_than_a_normal_one_would():
    slopes = {"compute": (-1.0,) * 8}
    before = prior((1.0,) * 8, slopes, compute=0.1)
    agree = [(row, 1.0 + 0.02 * (row % 3)) for row in range(6)]
    runs = measured(*agree, (6, 1.5))
    odd, normal = before.after(runs), before.after(runs, wide_tails=False)
    assert abs(odd.scalars[COMPUTE]) < 0.7 * abs(normal.scalars[COMPUTE])
    assert odd.log_seconds[6] == pytest.approx(np.log(1.5), abs=0.02)
    assert odd.spread[7] < 1.5 * normal.spread[7]


def test_contrasts_far_beyond_those_of_published_runs_widen_what_is_believed_of_the_rest():
    before = prior((1.0,) * 6, {"speed": (-1.0,) * 6}, speed=0.06)
    near = before.after(measured((0, 1.0), (1, 1.03), (2, 0.98), (3, 1.02)))
    far = before.after(measured((0, 1.0), (1, 1.5), (2, 0.7), (3, 1.3)))
    assert far.spread[5] > 3 * near.spread[5]


def test_what_all_steps_have_in_common_widens_nothing():
    before = prior((1.0,) * 6, {"speed": (-1.0,) * 6}, speed=0.06)
    times = (1.0, 1.03, 0.98, 1.02)
    near = before.after(measured(*enumerate(times)))
    slow = before.after(measured(*((row, 3 * seconds) for row, seconds in enumerate(times))))
    assert slow.spread[5] == pytest.approx(near.spread[5], rel=0.25)
    assert slow.log_seconds[5] == pytest.approx(np.log(3), abs=0.05)


def test_a_machine_half_as_fast_as_planned_is_believed_after_one_trial():
    slopes = {"speed": (-1.0, -1.0), "compute": (-0.8, -0.2)}
    before = prior((1.0, 1.2), slopes, speed=0.06, compute=0.09)
    found = before.after(measured((0, 2.0)))
    assert found.log_seconds[1] == pytest.approx(np.log(2.4), abs=0.06)


def test_draws_have_the_mean_and_the_spread_of_the_belief():
    found = prior((1.0, 1.0), {"compute": (-1.0, -1.0)}, compute=0.2).after(measured((0, 1.1)))
    drawn = samples(found, np.array([0, 1]), 4000, 1)
    assert drawn.mean(axis=0) == pytest.approx(found.log_seconds, abs=0.01)
    assert drawn.std(axis=0) == pytest.approx(found.spread, rel=0.05)


def test_nothing_measured_is_the_prior():
    slopes = {"compute": (-1.0, 0.0), "speed": (-1.0, -1.0)}
    before = prior((1.0, 2.0), slopes, compute=0.1, speed=0.06)
    nothing = Measurements(np.zeros(0, dtype=np.int64), np.zeros(0), np.zeros(0))
    found = before.after(nothing, wide_tails=False)
    alike = SIZES.own.value**2 + SIZES.shared.value**2 + 0.06**2
    assert found.log_seconds == pytest.approx(np.log([1.0, 2.0]))
    assert found.variance == pytest.approx([0.01 + alike, alike])
    any_width = before.after(nothing)
    assert any_width.log_seconds == pytest.approx(found.log_seconds)
    assert (any_width.variance > found.variance).all()


def test_an_out_of_memory_makes_larger_layouts_less_likely_to_fit():
    before = memory_prior(np.array([90.0, 95.0, 105.0, 60.0]), np.full(4, 100.0))
    after = before.after_out_of_memory(0).probabilities()
    assert after[0] == 0.0
    assert after[1] < 0.5 * before.probabilities()[1]
    assert after[2] < 0.5 * before.probabilities()[2]
    assert after[3] > 0.95


def test_a_layout_that_ran_makes_those_a_little_larger_more_likely_to_fit():
    before = memory_prior(np.array([97.0, 100.0]), np.full(2, 100.0))
    after = before.after_fit(0).probabilities()
    assert after[0] == 1.0
    assert after[1] > before.probabilities()[1] + 0.1


def test_a_measured_peak_says_how_far_the_memory_model_is_off():
    before = memory_prior(np.array([50.0, 97.0]), np.full(2, 100.0))
    after = before.after_peak(0, np.log(0.45))
    mean, spread = after.error
    between, own = SIZES.memory.value, SIZES.memory_own.value
    gain = between**2 / (between**2 + own**2)
    assert mean == pytest.approx(gain * np.log(0.9), rel=0.02)
    assert spread == pytest.approx(np.sqrt(1 - gain) * between, rel=0.02)
    assert after.probabilities()[1] > 0.95


def test_the_normal_distribution_is_the_tabulated_one():
    values = np.array([-3.0, -1.0, 0.0, 0.5, 1.2816])
    assert normal_below(values) == pytest.approx(
        [0.00134990, 0.15865525, 0.5, 0.69146246, 0.9000083], abs=2e-7
    )
