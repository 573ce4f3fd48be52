"""Scalars of a machine, fitted on measured steps."""

from dataclasses import replace

import numpy as np
import pytest

from trainplan.costmodel.base import SpecError
from trainplan.costmodel.blocks.candidates import context_of
from trainplan.costmodel.layouts import LayoutTable
from trainplan.costmodel.machine import machine_of
from trainplan.costmodel.measured import Measured, machine_for
from trainplan.costmodel.measured.calibration import calibrated, calibration_notes, with_scalars
from trainplan.costmodel.measured.calibration_fit import Observation, calibrate
from trainplan.costmodel.measured.scalars import INTER_NODE, Steps, fit_of, identified_by
from trainplan.costmodel.spec import ClusterSpec, Layout
from trainplan.costmodel.spec.cluster import NicSpec
from trainplan.costmodel.spec.evidence.calibration import Scalars
from trainplan.costmodel.step import explicit
from trainplan.costmodel.step.simulate import step_seconds
from trainplan.planner.questions.search import estimate, notes, search

ONE_NODE = "1x8:h100-sxm"
TP = Layout(tp=8, sequence_parallel=True)
LAYOUTS = (
    TP,
    Layout(tp=4, dp=2, sequence_parallel=True),
    Layout(tp=2, dp=4, sequence_parallel=True),
    Layout(dp=8),
)
SPREAD_OUT = (
    Layout(tp=8, dp=4, sequence_parallel=True),
    Layout(tp=8, pp=4, sequence_parallel=True),
    Layout(tp=32, sequence_parallel=True),
    Layout(tp=16, dp=2, sequence_parallel=True),
)
"""Layouts of 32 GPUs that spend unlike shares of their step between nodes."""


def seconds(job, layout, scalars=None):
    """Step time of a layout on a machine with scalars."""
    machine = machine_of(job.cluster, job.training.precision)
    machine = with_scalars(machine, scalars or Scalars())
    return float(step_seconds(context_of(job, machine).with_table(LayoutTable.of([layout])))[0])


def observed(job, layout, time, name="run"):
    return Observation(name, "test", job, layout, time)


def runs(job, layouts, scalars):
    """Steps of a machine with these scalars, free of noise."""
    return [
        observed(job, layout, seconds(job, layout, scalars), f"run-{number}")
        for number, layout in enumerate(layouts)
    ]


@pytest.fixture
def job(make_job):
    return make_job("small-dense", ONE_NODE)


@pytest.fixture
def wide(make_job):
    """Four nodes with one network adapter each."""
    job = make_job("llama3-8b", "4x8:h100-sxm", global_batch_size=64, seq_length=4096)
    thin = job.cluster.groups[0].model_copy(update={"nic": NicSpec(per_node=1, gb_per_s=50)})
    return job.model_copy(update={"cluster": ClusterSpec(groups=(thin,))})


def test_a_run_the_catalog_predicts_changes_nothing(job):
    calibration = calibrate([observed(job, TP, seconds(job, TP))])
    assert calibration.speed.value == pytest.approx(1.0, abs=1e-6)
    assert not calibration.inter_node_bandwidth.identified
    assert not calibration.fixed_overhead_seconds.identified
    assert calibration.error_left_out_fraction is None


@pytest.mark.parametrize("factor", [0.5, 0.8, 1.25, 2.0])
def test_a_calibration_moves_the_estimate_towards_its_own_run(job, factor):
    measured = factor * seconds(job, TP)
    calibration = calibrate([observed(job, TP, measured)])
    (run,) = calibration.runs
    assert run.after_step_time_s == pytest.approx(measured, rel=0.08)
    assert abs(run.after_step_time_s - measured) < abs(run.before_step_time_s - measured)
    again = estimate(job, TP, measured=Measured(calibration=calibration)).step_time_s
    assert again == pytest.approx(run.after_step_time_s, rel=1e-9)


def test_a_small_deviation_is_believed_in_part_and_a_large_one_almost_whole(job):
    def believed(factor):
        calibration = calibrate([observed(job, TP, factor * seconds(job, TP))])
        return -np.log(calibration.speed.value) / np.log(factor)

    assert 0.1 < believed(1.03) < 0.5
    assert 0.9 < believed(1.5) < believed(2.5) < 1


def test_several_equal_runs_are_believed_more_than_one(job):
    def speed(layouts):
        times = [1.1 * seconds(job, layout) for layout in layouts]
        return calibrate(list(map(observed, [job] * len(times), layouts, times))).speed

    assert abs(np.log(speed(LAYOUTS).value * 1.1)) < abs(np.log(speed(LAYOUTS[:1]).value * 1.1))
    assert (
        speed(LAYOUTS).high - speed(LAYOUTS).low < speed(LAYOUTS[:1]).high - speed(LAYOUTS[:1]).low
    )


@pytest.mark.parametrize("odd", [0.3, 3.0])
def test_one_bad_run_of_three_moves_the_speed_by_a_few_percent(job, odd):
    good = runs(job, LAYOUTS[:3], Scalars(speed=0.8))
    bad = replace(good[0], step_time_s=odd * good[0].step_time_s)
    clean, spoilt = calibrate(good).speed.value, calibrate([bad, *good[1:]]).speed.value
    assert spoilt == pytest.approx(clean, rel=0.08)


def test_one_run_never_fits_more_than_the_speed(wide):
    calibration = calibrate([observed(wide, SPREAD_OUT[2], 2 * seconds(wide, SPREAD_OUT[2]))])
    assert calibration.inter_node_bandwidth.value == 1.0
    assert calibration.fixed_overhead_seconds.value == 0.0


def test_unlike_layouts_tell_a_slow_network(wide):
    calibration = calibrate(runs(wide, SPREAD_OUT, Scalars(inter_node_bandwidth=0.5)))
    assert calibration.inter_node_bandwidth.identified
    assert calibration.inter_node_bandwidth.value == pytest.approx(0.5, rel=0.15)
    assert calibration.speed.value == pytest.approx(1.0, rel=0.1)
    assert calibration.error_after_fraction < calibration.error_before_fraction / 3


def test_runs_of_one_node_say_nothing_of_the_network(job):
    calibration = calibrate(runs(job, LAYOUTS, Scalars(speed=0.9)))
    assert not calibration.inter_node_bandwidth.identified
    assert calibration.inter_node_bandwidth.value == 1.0


def test_equal_shares_between_nodes_do_not_identify_the_network(wide):
    times = np.full(4, seconds(wide, SPREAD_OUT[2]))
    factors = np.linspace(1, 0, 11)
    steps = Steps(times, np.log(times)[:, None] + 0.5 * factors[None, :])
    assert not identified_by(steps)[INTER_NODE]


def test_steps_of_clearly_unlike_length_tell_a_fixed_overhead(make_job):
    jobs = [make_job("small-dense", ONE_NODE, batch) for batch in (8, 16, 64, 512)]
    truth = Scalars(fixed_overhead_seconds=0.1)
    observations = [
        observed(job, layout, seconds(job, layout, truth))
        for job, layout in zip(jobs, LAYOUTS, strict=True)
    ]
    calibration = calibrate(observations)
    assert calibration.fixed_overhead_seconds.identified
    assert calibration.fixed_overhead_seconds.value == pytest.approx(0.1, rel=0.2)


def test_the_overhead_is_never_negative():
    times = np.array([0.05, 0.1, 1.0, 10.0])
    steps = Steps(times, np.log(times + 0.04)[:, None] + np.zeros((1, 11)))
    fit = fit_of(steps, np.array([True, False, True]))
    assert fit.scalars.fixed_overhead_seconds == 0.0


def test_runs_of_two_machines_are_refused(job, make_job):
    other = make_job("small-dense", "1x8:a100-sxm-80gb")
    with pytest.raises(SpecError, match=r"h100-sxm bf16 megatron-lm"):
        calibrate([observed(job, TP, 1.0), observed(other, TP, 1.0)])
    with pytest.raises(SpecError, match="none"):
        calibrate([])
    mixed = make_job("small-dense", "1x8:a100-sxm-80gb+1x8:h100-sxm")
    with pytest.raises(SpecError, match="one kind of GPU"):
        calibrate([observed(mixed, TP, 1.0)])


@pytest.mark.parametrize("factor", [0.001, 1000.0])
def test_a_step_of_another_magnitude_is_refused(job, factor):
    with pytest.raises(SpecError, match=r"my-run: .* check its unit"):
        calibrate([observed(job, TP, factor * seconds(job, TP), "my-run")])


def test_the_error_of_left_out_layouts_is_that_of_layouts_not_fitted(job):
    times = {0: 1.0, 1: 1.0, 2: 1.0, 3: 1.5}
    observations = [
        observed(job, layout, times[number] * seconds(job, layout))
        for number, layout in enumerate(LAYOUTS)
    ]
    calibration = calibrate(observations)
    assert calibration.error_left_out_fraction is not None
    assert calibration.error_left_out_fraction < 0.05
    two = calibrate([observations[0], observations[3]])
    assert two.error_left_out_fraction > two.error_after_fraction


def test_the_terms_of_a_calibrated_estimate_sum_to_its_step(job):
    calibration = calibrate([observed(job, TP, 1.4 * seconds(job, TP))])
    machine = machine_for(job, Measured(calibration=calibration))
    table = LayoutTable.of(list(LAYOUTS))
    for one, plain in zip(
        explicit(context_of(job, machine).with_table(table)),
        explicit(context_of(job, machine_for(job)).with_table(table)),
        strict=True,
    ):
        terms = {name: getattr(one.terms, name) for name in type(one.terms).__dataclass_fields__}
        assert sum(terms.values()) == pytest.approx(one.step_time_s)
        assert terms["gemm"] == pytest.approx(plain.terms.gemm / calibration.speed.value)
        assert terms["overhead"] >= 0


def test_numbers_a_calibration_touches_are_measured_and_say_on_what(job):
    calibration = calibrate([observed(job, TP, 1.4 * seconds(job, TP), "my-run")])
    plain = machine_of(job.cluster, "bf16")
    for before, after in zip(
        plain.provenance, calibrated(plain, calibration, job).provenance, strict=True
    ):
        if before.kind == "datasheet":
            assert after == before
        else:
            assert after.kind == "measured"
            assert "my-run" in after.source
            assert before.source in after.source


def test_a_calibration_of_another_gpu_is_refused(job, make_job):
    calibration = calibrate([observed(job, TP, seconds(job, TP))])
    for cluster in ("1x8:a100-sxm-80gb", "1x8:a100-sxm-80gb+1x8:h100-sxm"):
        with pytest.raises(SpecError, match="fitted on h100-sxm"):
            search(make_job("small-dense", cluster), measured=Measured(calibration=calibration))


def test_another_precision_runtime_or_model_is_a_note(job, make_job):
    calibration = calibrate([observed(job, TP, seconds(job, TP))])
    assert len(calibration_notes(job, calibration)) == 1
    other = make_job("small-moe", ONE_NODE, precision="fp8")
    found = " ".join(notes(other, Measured(calibration=calibration)))
    assert "calibrated on precision bf16, asked for fp8" in found
    assert "calibrated on small-dense" in found
    assert "asked for torchtitan" in " ".join(
        calibration_notes(job.model_copy(update={"runtime": "torchtitan"}), calibration)
    )
