"""Scores of predictions against measured runs."""

import math
from dataclasses import replace

import pytest

from tests.e2e.measured_runs import own_run
from trainplan.costmodel.calibration.effects import Shared
from trainplan.costmodel.documents.measured_run import MeasuredRun
from trainplan.costmodel.validate.intervals import coverage
from trainplan.costmodel.validate.memory_scores import verdicts
from trainplan.costmodel.validate.one_step import Step, after_one_step, scored
from trainplan.costmodel.validate.predict import predict, unreadable
from trainplan.costmodel.validate.ranking import job_of, ranking, sizes_of, spearman
from trainplan.costmodel.validate.scores import scores, worst
from trainplan.costmodel.validate.steps import (
    GROUPINGS,
    errors,
    mean_of_medians,
    measured_step_seconds,
    timed_rows,
)


def priced(*records):
    return predict([MeasuredRun.model_validate(one) for one in records])


def layouts(*degrees, factor=1.0):
    """Runs of one job in several layouts, measured `factor` times as long as predicted."""
    records = [
        own_run(
            id=f"tp {tp}",
            layout={"tp": tp, "pp": 1, "micro_batch_size": 1, "recompute": "none"},
        )
        for tp in degrees
    ]
    steps = [one.estimate.step_time_s for one in priced(*records)]
    return [
        record | {"measured": {"step_time_s": step * factor}}
        for record, step in zip(records, steps, strict=True)
    ]


def test_an_error_is_predicted_over_measured_minus_one():
    found = errors("all", [-0.5, 0.1, 0.2])
    assert (found.bias_fraction, found.median_fraction) == (0.1, 0.2)
    assert found.mean_fraction == pytest.approx(0.8 / 3)


def test_every_source_counts_once_and_small_ones_together():
    many, few, fewer = [0.1] * 100, [0.2] * 8, [0.4] * 7
    found = mean_of_medians([("a", many), ("b", few), ("c", fewer), ("d", fewer)])
    assert found == (pytest.approx((0.1 + 0.2 + 0.4) / 3), 3)
    assert mean_of_medians([]) is None


def test_a_step_time_follows_from_throughput_only_where_all_is_stated():
    rate = {"tokens_per_s_per_gpu": 1000.0}
    run = MeasuredRun.model_validate(own_run(measured=rate))
    assert measured_step_seconds(run) == pytest.approx(8192 * 128 / 8 / 1000)
    nowhere = MeasuredRun.model_validate(own_run(measured=rate, cluster={"gpu": "h100-sxm"}))
    assert measured_step_seconds(nowhere) is None


def test_a_run_good_for_memory_alone_has_no_step_time_score():
    assert not timed_rows(priced(own_run(use=["memory"])), everything=True)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ([1, 2, 3, 4], [10, 20, 30, 40], 1.0),
        ([1, 2, 3, 4], [4, 3, 2, 1], -1.0),
        ([1, 2, 3], [5, 5, 5], 0.0),
        ([1, 1, 2], [1, 1.0000000000001, 2], 1.0),
        ([1, 2, 3, 4, 5], [2, 1, 4, 3, 5], 0.8),
    ],
)
def test_spearman_correlates_ranks(first, second, expected):
    assert spearman(first, second) == pytest.approx(expected)


def test_the_right_order_has_no_regret():
    rows = timed_rows(priced(*layouts(1, 2, 4, 8)), everything=False)
    found = ranking(rows)
    assert found.groups[0].num_layouts == 4
    assert (found.mean_spearman, found.mean_regret_fraction) == (pytest.approx(1.0), 0.0)


def test_regret_is_what_the_picked_layout_costs():
    records = layouts(1, 2, 4, 8)
    predicted = [one["measured"]["step_time_s"] for one in records]
    pick = predicted.index(min(predicted))
    records[pick]["measured"]["step_time_s"] = 3.0
    records[pick - 1]["measured"]["step_time_s"] = 2.0
    rows = timed_rows(priced(*records), everything=False)
    assert ranking(rows).mean_regret_fraction == pytest.approx(0.5)


def test_near_ties_of_the_pick_are_those_worth_a_measurement():
    """tp 8 is picked; what is as slow as the model says is no near-tie, what is as fast is."""
    records = layouts(1, 2, 4, 8)
    for one in records:
        one["measured"]["step_time_s"] = 2.0
    rows = list(timed_rows(priced(*records), everything=False))
    order = sorted(range(4), key=lambda i: rows[i].predicted_s)
    first, second = (rows[i] for i in order[:2])
    close = replace(
        second,
        measured_s=1.0,
        estimate=replace(second.estimate, step_time_s=first.predicted_s * 1.01),
    )
    others = [rows[i] for i in order[2:]]
    found = ranking([first, close, *others]).groups[0]
    assert (found.near_ties, found.regret_fraction) == (2, 1.0)
    assert found.regret_after_ties_fraction == 0.0
    assert found.regret_by_evidence_fraction == 1.0
    known = ranking([first, close, *others], lambda row: row.layout == close.layout).groups[0]
    assert (known.regret_fraction, known.regret_by_evidence_fraction) == (1.0, 0.0)
    apart = ranking([first, replace(second, measured_s=1.0), *others]).groups[0]
    assert (apart.near_ties, apart.regret_after_ties_fraction) == (1, 1.0)


def test_regret_is_told_by_the_number_of_layouts():
    few = timed_rows(priced(*layouts(1, 2, 4)), everything=False)
    group = ranking(few).groups[0]
    large = [replace(group, num_layouts=n, regret_fraction=r) for n, r in ((4, 0.2), (9, 0.4))]
    assert [
        (one.layouts, one.groups, one.mean_regret_fraction)
        for one in sizes_of([group, *large, replace(group, num_layouts=10)])
    ] == [("3 to 4", 2, 0.1), ("5 to 9", 1, 0.4), ("10 or more", 1, 0.0)]
    assert ranking(few).sizes == tuple(sizes_of([group]))


def test_two_layouts_are_no_order():
    assert ranking(timed_rows(priced(*layouts(1, 2)), everything=False)) is None
    assert ranking(timed_rows(priced(*layouts(1, 2, 4)), everything=False)) is not None


def test_one_measured_step_removes_most_of_a_small_constant_factor():
    rows = timed_rows(priced(*layouts(1, 2, 4, factor=1.05)), everything=False)
    found = after_one_step(rows)
    assert found.before_fraction == pytest.approx(1 - 1 / 1.05)
    assert found.after_fraction < 0.5 * found.before_fraction
    assert found.same_model.after_fraction == found.after_fraction
    assert found.other_family is None


def step(model, layout, off, source="user"):
    shared = Shared(f"dense {model[:-1]}", model, 1, layout)
    return Step(source, ("h100-sxm", "bf16", "nemo", source), shared, off, seen=False)


def test_a_step_says_less_of_another_model_and_least_of_another_family():
    steps = [step("llama1", layout, -0.05) for layout in "ab"]
    steps += [step("llama2", "c", -0.05), step("qwen1", "d", -0.05)]
    found = scored(steps)
    assert [found.same_model.sources[0].n, found.sources[0].n] == [2, 3]
    assert found.other_family.sources[0].n == 4
    errors = [one.after_fraction for one in (found.same_model, found, found.other_family)]
    assert errors == sorted(set(errors))
    assert errors[-1] < found.before_fraction


def test_steps_of_another_source_are_no_partners():
    assert scored([step("llama1", "a", 0.1), step("llama1", "b", 0.1, "another")]) is None


def test_a_run_with_many_partners_counts_once():
    offs = (0.0, 0.0, 0.0, 0.3)
    steps = [step("llama1", layout, off) for layout, off in zip("abcd", offs, strict=True)]
    (source,) = scored(steps).sources
    assert source.n == 4
    assert source.after_fraction == pytest.approx(0.0)


def test_a_gpu_in_its_drivers_words_is_the_same_machine():
    runs = layouts(2, 8, factor=1.3)
    runs[1]["cluster"] = runs[1]["cluster"] | {"gpu": "NVIDIA H100 80GB HBM3"}
    rows = timed_rows(priced(*runs), everything=True)
    assert after_one_step(rows) is not None
    assert job_of(rows[0]) == job_of(rows[1])
    assert list(GROUPINGS["gpu"](rows[1].run)) == ["h100-sxm"]


def test_a_run_alone_has_no_partner():
    assert after_one_step(timed_rows(priced(*layouts(1)), everything=False)) is None


def test_a_false_fit_is_named_and_counted_among_those_that_do_not_fit():
    tiny = own_run(id="ran", measured={}, fits=True, device_memory_gib=1.0)
    large = own_run(id="oom", measured={}, fits=False, device_memory_gib=1000.0)
    suspect = large | {"id": "suspect", "suspect": True}
    found = verdicts(priced(tiny, large, suspect), everything=False)
    assert (found.false_fits, found.false_refusals) == (("oom",), ("ran",))
    assert (found.false_fit_fraction, found.false_refusal_fraction) == (1.0, 1.0)
    assert (found.answered, found.labels) == (2, 2)


def test_the_worst_row_is_off_by_the_largest_factor():
    double, third = layouts(1, factor=0.5), layouts(2, factor=3.0)
    rows = timed_rows(priced(*double, *third), everything=False)
    assert [row.run.id for row in worst(rows, 1)] == ["tp 2"]


def test_coverage_counts_measured_steps_inside_the_interval():
    slower = [*layouts(2, factor=9.0), *layouts(4, factor=9.0)]
    rows = timed_rows(priced(*layouts(1), *slower, *layouts(8, factor=0.1)), everything=False)
    found = coverage(rows)
    assert (found.inside_fraction, found.below_fraction, found.above_fraction) == (0.25, 0.25, 0.5)


def test_scores_of_nothing_are_empty():
    found = scores([unreadable("x", "no fields")])
    assert found.headline is None
    assert found.skipped == {"invalid_record": 1}
    assert not found.rows


def test_errors_are_finite():
    found = scores(priced(*layouts(1, 2, 4, 8)))
    assert all(math.isfinite(row.error_fraction) for row in found.rows)
    assert found.headline.num_sources == 1
