"""A calibration on top of a profile: one measured step corrects the measured machine."""

import pytest

from trainplan.costmodel.base.errors import SpecError
from trainplan.costmodel.calibration.fit import Observation, calibrate
from trainplan.costmodel.calibration.machine import (
    Measured,
    agreed,
    machine_for,
    profile_digest,
    speed_for,
)
from trainplan.costmodel.catalog.entries import gpu
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.measured.profile import measured_machine
from trainplan.costmodel.profiles.profile import Origin, ProductPoint, Profile, Timing
from trainplan.planner.questions import estimate
from trainplan.planner.questions.best_plan import notes
from trainplan.profiler.fit.points import fitted

LAYOUT = Layout(tp=2, dp=4, sequence_parallel=True)
OTHER = Layout(tp=4, dp=2, sequence_parallel=True)


def profile(slowness, name="h100-sxm"):
    points = [
        ProductPoint(m=m, n=n, k=k, time=Timing(seconds=slowness * 2 * m * n * k / 9e14 + 5e-6))
        for m in (2048, 8192)
        for n in (1024, 4096)
        for k in (1024, 4096)
    ]
    origins = (Origin(source="a test"),)
    return fitted(Profile(gpu=name, gpus_per_node=8, origins=origins, points=points), gpu(name))


@pytest.fixture
def job(make_job):
    return make_job("small-dense", "1x8:h100-sxm")


def run(job, seconds):
    return Observation("my-run", "a test", job, LAYOUT, seconds)


def test_one_step_corrects_the_measured_machine_and_not_the_catalog(job):
    slow = profile(10.0)
    parts = estimate(job, LAYOUT, Measured(slow)).step_time_s
    calibration = calibrate([run(job, 1.03 * parts)], slow)
    both = Measured(slow, calibration)
    assert calibration.runs[0].before_step_time_s == pytest.approx(parts)
    assert 1.01 * parts < estimate(job, LAYOUT, both).step_time_s < 1.03 * parts
    ratio = (
        estimate(job, OTHER, both).step_time_s / estimate(job, OTHER, Measured(slow)).step_time_s
    )
    assert ratio == pytest.approx(1 / speed_for(job, calibration).value)
    of_catalog = calibrate([run(job, 1.03 * parts)])
    assert of_catalog.runs[0].before_step_time_s < 0.8 * parts
    assert of_catalog.speed.value < calibration.speed.value


def test_it_says_that_it_corrects_a_profile(job):
    slow = profile(3.0)
    calibration = calibrate([run(job, estimate(job, LAYOUT, Measured(slow)).step_time_s)], slow)
    found = " ".join(notes(job, Measured(slow, calibration)))
    assert "of the profile's" in found
    sources = machine_for(job, Measured(slow, calibration)).provenance
    products = next(one for one in sources if one.quantity.endswith("matrix products"))
    assert products.kind == "measured"
    assert "my-run" in products.source
    assert "; profile: a test" in products.source


def test_a_calibration_is_used_with_the_profile_it_corrects_and_no_other(job):
    slow, fast = profile(3.0), profile(1.5)
    of_catalog = calibrate([run(job, 1.0 * estimate(job, LAYOUT).step_time_s)])
    of_slow = calibrate([run(job, estimate(job, LAYOUT, Measured(slow)).step_time_s)], slow)
    assert agreed(Measured(slow, of_slow)).calibration == of_slow
    for measured, says in (
        (Measured(fast, of_slow), "another profile"),
        (Measured(slow, of_catalog), "corrects the catalog"),
        (Measured(None, of_slow), "corrects a profile"),
    ):
        with pytest.raises(SpecError, match=says):
            agreed(measured)
    for measured in (Measured(slow, of_catalog), Measured(None, of_slow)):
        with pytest.raises(SpecError, match="this calibration corrects"):
            machine_for(job, measured)


def test_a_profile_of_another_gpu_calibrates_nothing(job):
    with pytest.raises(SpecError, match="measured on a100-sxm-80gb, the runs are of h100-sxm"):
        calibrate([run(job, 1.0)], profile(1.0, "a100-sxm-80gb"))


def test_the_order_of_points_does_not_name_a_profile_anew():
    slow = profile(3.0)
    turned = slow.model_copy(update={"points": slow.points[::-1], "notes": ("read again",)})
    assert profile_digest(turned) == profile_digest(slow)
    assert profile_digest(profile(3.1)) != profile_digest(slow)
    assert profile_digest(slow.model_copy(update={"points": slow.points[1:]})) != (
        profile_digest(slow)
    )


def test_without_a_profile_nothing_changes(job):
    calibration = calibrate([run(job, estimate(job, LAYOUT).step_time_s)])
    assert calibration.profile_digest is None
    assert measured_machine(job.cluster, "bf16").provenance == machine_for(job).provenance
