"""Scalars of a machine, fitted on measured steps."""

from dataclasses import replace

import numpy as np
import pytest

from trainplan.costmodel import catalog
from trainplan.costmodel.base.errors import SpecError
from trainplan.costmodel.calibration.effects import Shared, effects_of
from trainplan.costmodel.calibration.fit import Observation, calibrate
from trainplan.costmodel.calibration.machine import (
    Measured,
    calibrated,
    calibration_notes,
    machine_for,
    speed_for,
    with_scalars,
)
from trainplan.costmodel.calibration.scalars import INTER_NODE, Steps, fit_of, identified_by
from trainplan.costmodel.candidates import context_of
from trainplan.costmodel.documents.calibration import Calibration, Scalars
from trainplan.costmodel.hardware.cluster import ClusterSpec, NicSpec
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.machine import machine_of
from trainplan.costmodel.step import explicit
from trainplan.costmodel.step.simulate import step_seconds
from trainplan.costmodel.uncertainty.intervals import seen
from trainplan.planner.questions import estimate
from trainplan.planner.questions.best_plan import notes, search

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


def unlike(count):
    """So many runs of one model in layouts of their own."""
    return effects_of([Shared("f", "m", 1, str(number)) for number in range(count)], 0.05)


@pytest.fixture
def job(make_job):
    return make_job("small-dense", ONE_NODE)


@pytest.fixture
def fitted(job):
    """On a machine and software that constants were fitted on."""
    found = job.model_copy(update={"runtime": "nemo"})
    assert seen(found)
    return found


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


@pytest.mark.parametrize("factor", [0.5, 0.8, 0.95, 1.05, 1.25, 2.0])
def test_a_calibration_moves_the_estimate_towards_its_own_run(job, factor):
    measured = factor * seconds(job, TP)
    calibration = calibrate([observed(job, TP, measured)])
    (run,) = calibration.runs
    assert abs(run.after_step_time_s - measured) < abs(run.before_step_time_s - measured)
    assert (run.after_step_time_s - measured) * (run.before_step_time_s - measured) > 0
    again = estimate(job, TP, measured=Measured(calibration=calibration)).step_time_s
    assert again == pytest.approx(run.after_step_time_s, rel=1e-9)


def corrected(job, factors):
    """Log of the speed of a job whose layouts take so many times the predicted step."""
    runs = [
        observed(job, layout, factor * seconds(job, layout), str(number))
        for number, (layout, factor) in enumerate(zip(LAYOUTS, factors, strict=False))
    ]
    return -np.log(speed_for(job, calibrate(runs)).value)


def test_one_run_is_believed_in_part_and_a_far_one_no_more_than_a_near_one(fitted):
    assert 0.5 < corrected(fitted, [1.03]) / np.log(1.03) < 0.9
    assert corrected(fitted, [1.5]) == pytest.approx(corrected(fitted, [3.0]))
    assert corrected(fitted, [1.05]) < corrected(fitted, [1.5]) < 0.1


@pytest.mark.parametrize("factor", [1.05, 3.0])
def test_a_run_far_off_does_not_narrow_the_interval(job, factor):
    calibration = calibrate([observed(job, TP, factor * seconds(job, TP))])
    machine = machine_for(job, Measured(calibration=calibration))
    assert machine.speed < 1
    assert machine.calibrated == (factor < 2)


@pytest.mark.parametrize("ends", [{"low": 1.5}, {"high": 0.5}])
def test_a_scalar_outside_its_range_is_refused(job, ends):
    text = calibrate([observed(job, TP, seconds(job, TP))]).model_dump(mode="json")
    text["speed"] |= ends
    with pytest.raises(ValueError, match="low <= value <= high"):
        Calibration.model_validate(text)


def test_layouts_that_agree_are_believed_almost_whole_however_far_off(job):
    for factor in (0.5, 1.1, 2.0):
        shares = [
            corrected(job, [factor] * count) / np.log(factor) for count in range(1, len(LAYOUTS))
        ]
        assert shares == sorted(shares)
        assert 0.85 < shares[-1] < 1


def test_several_equal_runs_are_known_better_than_one(job):
    def spread(layouts):
        times = [1.1 * seconds(job, layout) for layout in layouts]
        runs = list(map(observed, [job] * len(times), layouts, times))
        return calibrate(runs).speeds[-1].log_speed_spread

    assert spread(LAYOUTS) < spread(LAYOUTS[:2]) < spread(LAYOUTS[:1])


def test_a_step_measured_again_is_no_second_piece_of_evidence(job):
    once = calibrate([observed(job, TP, 1.1 * seconds(job, TP))])
    twice = calibrate([observed(job, TP, 1.1 * seconds(job, TP), name) for name in "ab"])
    assert twice.speed.value == pytest.approx(once.speed.value)
    assert twice.error_left_out_fraction is None


def test_the_model_that_ran_is_corrected_most_then_its_family_then_others(job, make_job):
    calibration = calibrate([observed(job, TP, 1.05 * seconds(job, TP))])
    model = job.model
    relatives = [
        model,
        model.model_copy(update={"name": "small-dense-2"}),
        model.model_copy(update={"name": "large"}),
    ]
    jobs = [job.model_copy(update={"model": one}) for one in relatives]
    longer = job.training.model_copy(update={"seq_length": 2 * job.training.seq_length})
    jobs.insert(1, job.model_copy(update={"training": longer}))
    own, length, family, other = (-np.log(speed_for(one, calibration).value) for one in jobs)
    assert own > length == family > other > 0
    mixture = make_job("small-moe", ONE_NODE)
    assert -np.log(speed_for(mixture, calibration).value) == pytest.approx(other)


def test_what_is_less_like_the_runs_is_known_less_well(fitted):
    calibration = calibrate([observed(fitted, TP, 1.05 * seconds(fitted, TP))])
    spreads = [one.log_speed_spread for one in calibration.speeds]
    assert calibration.log_speed_spread > spreads[0] > spreads[1]
    sizes = catalog.spreads().runs
    before = np.sqrt(sizes.machine_seen.value**2 + sizes.family.value**2 + sizes.model.value**2)
    assert calibration.log_speed_spread < before


def test_a_machine_nobody_fitted_is_corrected_further_than_a_fitted_one(fitted):
    def others(runtime):
        job = fitted.model_copy(update={"runtime": runtime})
        return -np.log(calibrate([observed(job, TP, 1.05 * seconds(job, TP))]).speed.value)

    unseen = "nanotron"
    assert not seen(fitted.model_copy(update={"runtime": unseen}))
    assert others(unseen) > 2 * others(fitted.runtime) > 0


def test_another_precision_takes_over_a_part_of_what_the_machine_has(job):
    calibration = calibrate([observed(job, TP, 1.05 * seconds(job, TP))])
    other = job.model_copy(
        update={"training": job.training.model_copy(update={"precision": "fp8"})}
    )
    share = np.log(speed_for(other, calibration).value) / np.log(calibration.speed.value)
    assert share == pytest.approx(catalog.spreads().runs.carried.value)
    machine = machine_for(other, Measured(calibration=calibration))
    assert not machine.calibrated
    assert machine_for(job, Measured(calibration=calibration)).calibrated


def test_runs_that_contradict_each_other_are_refused_with_their_errors(job):
    factors = (1.12, 0.9, 1.1, 0.88)
    calibration = calibrate(
        [
            observed(job, layout, factor * seconds(job, layout))
            for layout, factor in zip(LAYOUTS, factors, strict=True)
        ]
    )
    assert calibration.refused
    assert calibration.error_left_out_fraction > calibration.error_before_fraction
    assert calibration.speed.value == 1.0
    assert not calibration.speeds
    machine, plain = machine_for(job, Measured(calibration=calibration)), machine_for(job)
    assert machine.speed == 1.0
    assert not machine.calibrated
    assert machine.provenance == plain.provenance
    (note,) = calibration_notes(job, calibration)
    assert "changes nothing" in note
    assert f"{100 * calibration.error_left_out_fraction:.1f} % off with a correction" in note
    assert f"{100 * calibration.error_before_fraction:.1f} % without" in note


def test_the_order_of_runs_does_not_matter(job, make_job):
    other = make_job("small-moe", ONE_NODE)
    found = [observed(job, TP, 1.1 * seconds(job, TP), "a")]
    found += [observed(job, LAYOUTS[1], 1.2 * seconds(job, LAYOUTS[1]), "b")]
    found += [observed(other, LAYOUTS[3], 0.95 * seconds(other, LAYOUTS[3]), "c")]
    first, second = calibrate(found), calibrate(found[::-1])
    assert first.speed.value == pytest.approx(second.speed.value)
    for one, same in zip(first.speeds, second.speeds, strict=True):
        assert (one.family, one.model) == (same.family, same.model)
        assert one.speed.value == pytest.approx(same.speed.value)


def test_a_calibration_of_an_earlier_release_is_read_and_corrects_every_model(job, make_job):
    text = calibrate([observed(job, TP, 1.1 * seconds(job, TP))]).model_dump(mode="json")
    for key in ("log_speed_spread", "speeds", "refused"):
        del text[key]
    text["speed"] = text["speed"] | {"value": 0.8, "low": 0.76, "high": 0.84}
    old = Calibration.model_validate(text)
    for one in (job, make_job("small-moe", ONE_NODE)):
        machine = machine_for(one, Measured(calibration=old))
        assert machine.speed == pytest.approx(0.8)
        assert machine.calibrated


@pytest.mark.parametrize("odd", [0.3, 3.0])
def test_one_bad_run_of_four_moves_the_speed_by_a_few_percent(job, odd):
    good = runs(job, LAYOUTS, Scalars(speed=0.8))
    bad = replace(good[0], step_time_s=odd * good[0].step_time_s)
    clean, spoilt = (speed_for(job, calibrate(one)).value for one in (good, [bad, *good[1:]]))
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
    steps = Steps(times, np.log(times)[:, None] + 0.5 * factors[None, :], unlike(4))
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
    steps = Steps(times, np.log(times + 0.04)[:, None] + np.zeros((1, 11)), unlike(4))
    fit = fit_of(steps, np.array([True, False, True]))
    assert fit.scalars().fixed_overhead_seconds == 0.0


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
        assert terms["gemm"] == pytest.approx(plain.terms.gemm / speed_for(job, calibration).value)
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
    assert "calibrated on precision bf16, requested fp8" in found
    assert "calibrated on small-dense" in found
    assert "requested torchtitan" in " ".join(
        calibration_notes(job.model_copy(update={"runtime": "torchtitan"}), calibration)
    )
