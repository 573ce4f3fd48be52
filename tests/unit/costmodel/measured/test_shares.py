"""How much a measured part counts beside what the catalog says of it."""

from math import inf, log

import numpy as np
import pytest

from trainplan.cli.pages.parts.evidence import interval_lines
from trainplan.costmodel import catalog
from trainplan.costmodel.blocks.measured_layers import library_of
from trainplan.costmodel.calibration.fit import Observation, calibrate
from trainplan.costmodel.calibration.machine import Measured, machine_for
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.machine import machine_of
from trainplan.costmodel.measured.counted import doubt_of, shares_note
from trainplan.costmodel.measured.curve_residuals import single_products
from trainplan.costmodel.measured.profile import measured_machine
from trainplan.costmodel.profiles.profile import (
    LayerPoint,
    Origin,
    ProductPoint,
    Profile,
    Timing,
)
from trainplan.costmodel.residuals.shares import IN_PLACE, STATED, TAIL, Share, share
from trainplan.planner.questions import estimate
from trainplan.planner.questions.best_plan import notes
from trainplan.profiler.fit.points import fitted

SEEN, UNSEEN = 0.014, 0.057
LAYOUT = Layout(tp=2, dp=4, sequence_parallel=True)
SIDES = ((2048, 1024), (8192, 1024), (2048, 4096), (8192, 4096))


def times(machine, slowness):
    """Products that take so many times as long as the catalog says, but for a start."""
    rate = machine.half
    for m, n in SIDES:
        for k in (1024, 4096):
            flop = rate.flop_factor * 2 * m * n * k / rate.peak_flop_per_second
            moved = rate.byte_factor * 2 * (m * k + k * n + m * n)
            known = rate.fixed_seconds + flop + moved / machine.memory_bytes_per_second
            yield ProductPoint(m=m, n=n, k=k, time=Timing(seconds=slowness * known))


@pytest.fixture
def job(make_job):
    return make_job("small-dense", "1x8:h100-sxm")


@pytest.fixture
def profile(job):
    """slowness -> products of an H100, whose products the catalog knows from training runs."""
    machine = machine_of(job.cluster, "bf16")

    def stated(slowness, source="a test"):
        points = tuple(times(machine, slowness))
        bare = Profile(
            gpu="h100-sxm", gpus_per_node=8, origins=(Origin(source=source),), points=points
        )
        return fitted(bare, catalog.gpu("h100-sxm"))

    return stated


def test_a_kernel_slower_alone_than_the_catalog_says_is_slower_in_a_step():
    assert share(0.1, SEEN, 0.001).level > 0.98
    assert share(0.1, UNSEEN, 0.001).level > 0.99


def test_a_kernel_faster_alone_says_as_much_as_the_doubt_of_the_catalog_lets_it():
    for spread in (SEEN, UNSEEN):
        variance = spread**2 * TAIL / (TAIL - 2)
        known = variance / (variance + IN_PLACE**2)
        assert share(-0.05, spread, 0.0).level == pytest.approx(known, rel=0.1)
    assert share(-0.05, inf, 1.0) == Share()
    assert share(0.5, 0.0, 0.0).level == 0


def test_what_is_known_well_is_believed_far_from_the_catalog():
    assert share(log(5), 0.17, STATED, in_place=0.0).level > 0.75
    assert share(-log(5), 0.17, 0.05, in_place=0.0).level > 0.98
    assert share(0.1, 0.17, STATED, in_place=0.0).level < 0.45


@pytest.mark.parametrize("spread", [SEEN, UNSEEN, 0.17])
@pytest.mark.parametrize("noise", [0.001, 0.1, STATED])
def test_what_is_believed_grows_with_what_is_measured_and_never_jumps(spread, noise):
    seen = np.arange(-1.6, 1.6, 0.004)
    levels = [share(one, spread, noise, in_place=0.0).level for one in seen]
    steps = np.diff(seen * np.array(levels))
    assert steps.min() > 0
    assert steps.max() < 0.08
    assert np.abs(np.diff([share(one, spread, noise).shape for one in seen])).max() < 0.08


def test_all_of_it_is_what_was_measured_and_none_of_it_the_catalog():
    assert Share(1.0, 1.0, 3.0).mean(2.0, 7.0) == pytest.approx(7.0)
    assert Share(0.0, 0.0, 3.0).mean(2.0, 7.0) == pytest.approx(2.0)
    assert Share(1.0, 0.0, 3.0).mean(2.0, 7.0) == pytest.approx(6.0)
    assert Share(1.0, 0.0, 3.0).rate(6.0, 1.0) == pytest.approx(2.0)


def gemm(job, found):
    plain = estimate(job, LAYOUT).terms.gemm
    return estimate(job, LAYOUT, Measured(found)).terms.gemm / plain


def test_slow_products_reach_the_step_and_fast_ones_hardly(job, profile):
    assert gemm(job, profile(1.3)) == pytest.approx(1.3, rel=0.1)
    assert 0.97 < gemm(job, profile(0.8)) < 1.0


def test_what_the_catalog_has_already_changes_nothing(job, profile):
    source = catalog.fitted("h100-sxm").gemm["bf16"].source
    again = profile(1.3, source[source.index("ai-dynamo") :].split()[0])
    assert doubt_of(again, "bf16").products == 0
    assert gemm(job, again) == pytest.approx(1.0)


def test_a_gpu_that_the_catalog_assumes_is_as_it_was_measured(profile):
    """The MI300X has products of its own and collectives that are assumed."""
    found = profile(1.0).model_copy(update={"gpu": "mi300x"})
    assert doubt_of(found, "bf16").collectives == inf
    assert doubt_of(profile(1.0), "bf16").collectives < 1


def test_products_of_a_gpu_that_accumulates_fast_alone_set_share_and_residuals():
    slow, fast = (
        ProductPoint(m=m, n=64, k=64, fast_accumulation=m > 64, time=Timing(seconds=1.0))
        for m in (64, 128)
    )
    assert single_products((slow, fast), ("bf16",)) == [slow]
    assert single_products((fast,), ("bf16",)) == [fast]
    assert single_products((fast,), ("fp8",)) == []


def test_the_answer_says_by_how_much(job, profile):
    written = " ".join(notes(job, Measured(profile(0.8))))
    assert "measured, shrunk to the catalog: matrix products by 9" in written
    machine = measured_machine(job.cluster, "bf16", profile(1.3))
    assert shares_note(machine, profile(1.3)) == ()


def layer(job, seconds, **fields):
    return LayerPoint(
        model=job.model,
        micro_batch_size=1,
        seq_length=job.training.seq_length,
        forward=Timing(seconds=seconds),
        backward=Timing(seconds=2 * seconds),
        **fields,
    )


def level(job, point):
    """Seconds of a step with a layer measured, over those without."""
    origins = (Origin(source="a test"),)
    found = Profile(gpu="h100-sxm", gpus_per_node=8, origins=origins, points=(point,))
    plain = estimate(job, Layout(zero_stage=0)).terms
    terms = estimate(job, Layout(zero_stage=0), Measured(found)).terms
    return (terms.gemm + terms.attention) / (plain.gemm + plain.attention)


def test_a_layer_of_the_runtime_of_the_job_counts_and_a_sum_of_operations_hardly(make_job):
    job = make_job("small-dense", "1x1:h100-sxm").model_copy(update={"runtime": "torch-eager"})
    one, two = (level(job, layer(job, n * 1e-5, runtime="torch-eager")) for n in (1, 2))
    as_known = 1e-5 * (1 + (1 - one) / (two - one))
    fast = layer(job, 0.8 * as_known, runtime="torch-eager")
    assert level(job, fast) < 0.9
    assert level(job, fast.model_copy(update={"alone": True})) > 0.97


def test_layers_of_one_library_are_of_every_runtime_that_trains_them():
    assert library_of("megatron-bridge") == library_of("nemo")
    assert library_of("another-tool") == "another-tool"


def test_a_profile_that_no_step_was_held_against_widens_the_interval(make_job, profile):
    job = make_job("llama3-8b", "1x8:h100-sxm")

    def width(measured):
        found = estimate(job, LAYOUT, measured)
        return found.uncertainty.step_time_high_s / found.uncertainty.step_time_low_s

    parts = profile(1.3)
    seconds = estimate(job, LAYOUT, Measured(parts)).step_time_s
    steps = calibrate([Observation("a-run", "a test", job, LAYOUT, seconds)], parts)
    assert width(Measured(parts)) > 1.01 * width(Measured())
    (written,) = interval_lines(job, estimate(job, LAYOUT, Measured(parts)).uncertainty)
    assert "no measured step was held against this profile" in written
    assert width(Measured(parts, steps)) < width(Measured(parts))
    assert not machine_for(job, Measured(parts, steps)).unvalidated
    refused = steps.model_copy(update={"refused": True})
    assert width(Measured(parts, refused)) == pytest.approx(width(Measured()))
