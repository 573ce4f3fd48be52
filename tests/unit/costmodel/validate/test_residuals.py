"""Ends of intervals: weighted quantiles of residuals, by hand."""

from dataclasses import replace
from math import log

import numpy as np
import pytest

from tests.e2e.measured_runs import own_run
from trainplan.costmodel import catalog
from trainplan.costmodel.documents.measured_run import MeasuredRun
from trainplan.costmodel.uncertainty.intervals import LEVEL
from trainplan.costmodel.validate.intervals import TAILS, by_group, nested, of_sources, tail_of
from trainplan.costmodel.validate.predict import predict
from trainplan.costmodel.validate.residuals import (
    TAIL,
    Miss,
    ends,
    ends_of,
    left_out,
    quantile,
    source_weights,
    weights_of,
)
from trainplan.costmodel.validate.stand_ins import assumed_misses, stand_in_misses
from trainplan.costmodel.validate.steps import timed_rows


def misses(source, *values, weight=1.0):
    return [Miss(source, value, weight) for value in values]


def spread(low, high, count=80):
    """Values that lie evenly between two."""
    return [float(one) for one in np.linspace(low, high, count)]


def rows(*changes):
    return timed_rows(
        predict([MeasuredRun.model_validate(own_run(**one)) for one in changes]), everything=True
    )


def test_every_value_of_a_quantile_lies_in_the_middle_of_its_weight():
    values, weights = np.array([3.0, 1.0, 2.0]), np.array([1.0, 1.0, 2.0])
    assert quantile(values, weights, 0.5) == 2.0
    assert quantile(values, weights, 0.125) == 1.0
    assert quantile(values, weights, 0.25) == pytest.approx(1 + 1 / 3)


def test_an_interval_leaves_a_tenth_on_either_side_however_skewed_errors_are():
    found = ends(misses("a", *spread(-0.1, 0), *spread(0, 0.4)))
    assert (found.low, found.high) == (
        pytest.approx(-0.08, abs=2e-3),
        pytest.approx(0.32, abs=4e-3),
    )
    assert (found.runs, found.sources) == (160, 1)


@pytest.mark.parametrize("sign", [1, -1])
def test_an_interval_holds_its_estimate_where_every_run_was_on_one_side(sign):
    found = ends(misses("a", *(sign * one for one in spread(0.2, 0.3))))
    assert (found.low, found.high)[sign < 0] == 0
    assert abs((found.low, found.high)[sign > 0]) > 0.2


def test_sources_weigh_alike_and_those_of_few_layouts_less():
    many, few, repeated = misses("a", *[0.0] * 40), misses("b", 0.0), misses("c", 0, 0, weight=0.5)
    weights = source_weights([*many, *few, *repeated])
    assert weights[:40].sum() == pytest.approx(1)
    assert weights[40] == weights[41:].sum() == 1 / 8


def test_the_fewer_sources_of_a_regime_the_more_the_others_say():
    """Runs of the regime within 2 %, all others within 20 %."""
    wider = misses("z", *spread(-0.2, 0.2))

    def width(*sources):
        own = [one for source in sources for one in misses(source, *spread(-0.02, 0.02))]
        return ends(own, wider).width

    one_run = ends(misses("a", 0.0), wider).width
    assert width("a", "b", "c") < width("a", "b") < width("a") < one_run < ends((), wider).width
    assert ends((), wider).sources == 1


def test_worse_evidence_is_never_narrower():
    first = ends(misses("a", *spread(-0.3, 0.1)))
    second = ends(misses("a", *spread(-0.1, 0.2)))
    found = list(nested((first, second)))
    assert found[0] == first
    assert (found[1].low, found[1].high) == (first.low, second.high)


def test_a_residual_is_of_a_fit_that_had_not_seen_the_run():
    known = rows({"id": "a"}, {"id": "b"}, {"id": "c"})
    [one] = left_out(known, {"a": -0.2, "b": 0.1}, {"a": 0.1, "c": 0.3})
    assert (one.without_study.value, one.without_source.value) == (0.2, -0.1)
    assert one.regime == "h100-sxm bf16 megatron-core dense"
    assert one.study == "user llama3-8b"


def test_runs_that_repeat_a_layout_share_the_weight_of_one():
    other = {"tp": 4, "pp": 1, "micro_batch_size": 1, "recompute": "none"}
    found = weights_of(rows({"id": "a"}, {"id": "b"}, {"id": "c", "layout": other}))
    assert found == [0.5, 0.5, 1.0]


def test_a_regime_takes_studies_left_out_and_all_others_sources_left_out():
    known = rows(*({"id": str(number)} for number in range(8)))
    same = dict.fromkeys(map(str, range(8)), -0.1)
    residuals = left_out(known, same, dict.fromkeys(same, -0.4))
    found = ends_of("h100-sxm bf16 megatron-lm dense", residuals)
    assert found.high > 0.1
    assert ends_of("of no run", residuals).high == 0.4


def test_what_is_left_out_is_judged_by_the_others():
    known = rows(*({"id": f"{s} {n}", "source_group": s} for s in "abc" for n in range(8)))
    near = {row.run.id: 0.3 if row.run.source_group == "c" else 0.0 for row in known}
    residuals = left_out(known, near, near)
    every, *groups = of_sources(residuals, 0.1)
    sides = {one.name: (one.inside_fraction, one.below_fraction) for one in groups}
    assert sides == {"a": (1, 0), "b": (1, 0), "c": (0, 1)}
    assert (every.n, every.below_fraction, every.above_fraction) == (24, pytest.approx(1 / 3), 0)


def test_intervals_leave_no_more_on_either_side_than_holds_sources_left_out():
    """Sources that differ from each other need more than quantiles of all of them."""
    for apart, most in ((0.0, 0.1), (0.02, 0.1), (0.1, 0.02)):
        ids = [f"{source} {n}" for source in range(6) for n in range(8)]
        known = rows(*({"id": name, "source_group": f"s{name[0]}"} for name in ids))
        off = {name: apart * (int(name[0]) - 2.5) + 0.01 * int(name[2]) for name in ids}
        residuals = left_out(known, off, off)
        tail = tail_of(residuals)
        assert tail <= most
        held = of_sources(residuals, tail)[0].inside_fraction
        assert held >= LEVEL or tail == TAILS[-1]
        wider = [one for one in TAILS if one > tail]
        assert all(of_sources(residuals, one)[0].inside_fraction < LEVEL for one in wider)


def test_the_intervals_of_the_catalog_hold_what_they_promise_to_a_stranger():
    found = catalog.intervals()
    assert found.tail <= TAIL + 1e-9
    assert found.left_out >= LEVEL


def test_small_groups_are_one_at_the_end():
    found = by_group({"a": [0.0] * 9, "b": [-1.0] * 4, "c": [1.0] * 12, "d": [0.0] * 2})
    assert [(one.name, one.n) for one in found] == [("c", 12), ("a", 9), ("other", 6)]
    assert found[-1].below_fraction == pytest.approx(4 / 6)


def test_runs_are_priced_as_if_nobody_had_measured_their_gpu():
    [h100] = known = rows({})
    [miss] = assumed_misses(known)
    assert miss.value != pytest.approx(log(h100.measured_s / h100.predicted_s), abs=1e-3)
    assert not stand_in_misses(known)
    cluster = {"gpu": "h200-sxm", "num_gpus": 8, "gpus_per_node": 8}
    assert len(stand_in_misses(rows({"cluster": cluster}))) == 1


ROWWISE = {
    "seq_length": 8192,
    "global_batch_size": 128,
    "precision": "fp8",
    "precision_detail": "fp8-rowwise",
}


@pytest.mark.parametrize("change", [{}, {"runtime": "torchtitan", "training": ROWWISE}])
def test_a_gpu_stands_in_for_itself_at_its_own_price(monkeypatch, change):
    [row] = known = rows(change)
    monkeypatch.setattr("trainplan.costmodel.catalog.stand_in", lambda name: name)
    [miss] = stand_in_misses(known)
    assert miss.value == pytest.approx(log(row.measured_s / row.predicted_s))
    [slower] = stand_in_misses([replace(row, measured_s=2 * row.measured_s)])
    assert slower.value == pytest.approx(miss.value + log(2))
