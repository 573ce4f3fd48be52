"""Widths of intervals: how far sources are off, by hand."""

from dataclasses import replace
from math import exp, log

import numpy as np
import pytest

from tests.e2e.measured_runs import own_run
from trainplan.costmodel import catalog
from trainplan.costmodel.documents.measured_run import MeasuredRun
from trainplan.costmodel.uncertainty.intervals import LEVEL, width_factor
from trainplan.costmodel.validate.intervals import (
    by_group,
    comparison_width,
    held,
    intervals,
    of_sources,
    widening,
)
from trainplan.costmodel.validate.predict import predict
from trainplan.costmodel.validate.residuals import (
    LEAST,
    PRIOR,
    Miss,
    Scale,
    Scales,
    left_out,
    quantile,
    scale_of,
    source_weights,
    student,
    weights_of,
)
from trainplan.costmodel.validate.stand_ins import assumed_misses, stand_in_misses
from trainplan.costmodel.validate.steps import timed_rows

LAYOUT = {"tp": 4, "pp": 1, "micro_batch_size": 1, "recompute": "none"}


def misses(source, *values, weight=1.0):
    return [Miss(source, value, weight) for value in values]


def rows(*changes):
    return timed_rows(
        predict([MeasuredRun.model_validate(own_run(**one)) for one in changes]), everything=True
    )


def test_every_value_of_a_quantile_lies_in_the_middle_of_its_weight():
    values, weights = np.array([3.0, 1.0, 2.0]), np.array([1.0, 1.0, 2.0])
    assert quantile(values, weights, 0.5) == 2.0
    assert quantile(values, weights, 0.125) == 1.0
    assert quantile(values, weights, 0.25) == pytest.approx(1 + 1 / 3)


@pytest.mark.parametrize(
    ("degrees", "published"), [(1, 3.0777), (2, 1.8856), (3, 1.6377), (10, 1.3722), (1e4, 1.2816)]
)
def test_the_quantile_of_students_t_is_that_of_the_tables(degrees, published):
    assert student(0.9, degrees) == pytest.approx(published, rel=1e-3)


def test_the_scale_of_sources_is_the_mean_of_the_logarithms_of_their_errors():
    found = scale_of([*misses("a", *[0.1] * 8), *misses("b", *[-0.3] * 8)])
    each = [log(value**2 + LEAST**2) / 2 for value in (0.1, 0.3)]
    assert found.log == pytest.approx(sum(each) / 2)
    assert found.sources == 2
    assert found.half_width == pytest.approx(exp(found.log) * student(0.9, PRIOR + 2))


def test_sources_weigh_alike_and_those_of_few_layouts_less():
    many, few, repeated = misses("a", *[0.0] * 40), misses("b", 0.0), misses("c", 0, 0, weight=0.5)
    weights = source_weights([*many, *few, *repeated])
    assert weights[:40].sum() == pytest.approx(1)
    assert weights[40] == weights[41:].sum() == 1 / 8


def test_a_regime_of_one_source_is_as_wide_as_one_that_is_off_as_others_are():
    """Sources within 3 %, others within 10 %: it takes two to say that a regime is known."""
    parent = Scale(log(0.1))
    near = [scale_of(misses(name, *[0.0] * 8), parent) for name in "a"]
    assert near[0].log == pytest.approx(parent.log)
    assert near[0].half_width == pytest.approx(0.1 * student(0.9, PRIOR + 1))
    sources = [
        scale_of([one for name in "abcd"[:n] for one in misses(name, *[0.0] * 8)], parent)
        for n in range(5)
    ]
    widths = [one.half_width for one in sources]
    assert widths == sorted(widths, reverse=True)
    assert widths[0] == pytest.approx(0.1 * student(0.9, PRIOR))
    off = scale_of(misses("a", *[0.4] * 8), parent)
    assert off.log == pytest.approx((log(0.1) + log(0.4**2 + LEAST**2) / 2) / 2)


def test_runs_of_few_layouts_are_less_than_a_source():
    parent = Scale(log(0.1))
    few, many = (scale_of(misses("a", *[0.4] * n), parent) for n in (1, 8))
    assert parent.log < few.log < many.log
    assert few.half_width > many.half_width * 0.1
    assert (few.sources, many.sources) == (1 / 8, 1)


def test_a_residual_is_of_a_fit_that_had_not_seen_the_run():
    known = rows({"id": "a"}, {"id": "b"}, {"id": "c"})
    a, b, _ = left_out(known, {"a": -0.2, "c": 0.3})
    assert a.miss.value == 0.2
    assert b.miss.value == pytest.approx(log(known[1].measured_s / known[1].predicted_s))
    assert (a.regime, a.kind) == ("h100-sxm bf16 megatron-core dense", "dense")


def test_runs_that_repeat_a_layout_share_the_weight_of_one():
    found = weights_of(rows({"id": "a"}, {"id": "b"}, {"id": "c", "layout": LAYOUT}))
    assert found == [0.5, 0.5, 1.0]


def runs_of(sources, value, **changes):
    """Eight runs of each source, with what they are off by."""
    each = ({"id": f"{s} {n}", "source_group": s, **changes} for s in sources for n in range(8))
    known = rows(*each)
    return left_out(known, {row.run.id: value(row.run.source_group) for row in known})


def test_a_kind_is_shrunk_to_all_runs_and_a_regime_to_its_kind():
    residuals = runs_of("abc", lambda source: 0.1)
    scales, log_of = Scales(residuals), log(0.1**2 + LEAST**2) / 2
    assert scales.of_regime(residuals[0].regime).log == pytest.approx(log_of)
    assert scales.of_regime("of no run graphs") == Scale(scales.of_kind("graphs").log)
    assert scales.of_kind("graphs").log == pytest.approx(log_of)


def test_what_is_left_out_is_held_against_the_others():
    residuals = runs_of("abc", lambda source: -0.3 if source == "c" else 0.0)
    every, *groups = of_sources(residuals, 1.0)
    sides = {one.name: (one.inside_fraction, one.above_fraction) for one in groups}
    assert sides == {"a": (1, 0), "b": (1, 0), "c": (0, 1)}
    assert (every.n, every.above_fraction, every.below_fraction) == (24, pytest.approx(1 / 3), 0)


def test_of_few_sources_more_is_held_than_was_promised_for_the_next():
    values = list(np.linspace(0, 1, 81))
    for sources in (1, 4, 16):
        same = [one for name in range(sources) for one in misses(str(name), *values)]
        assert held(same) == pytest.approx(min(LEVEL * (1 + 1 / sources), 1.0), abs=0.02)


@pytest.mark.parametrize("apart", [0.0, 0.02, 0.1])
def test_intervals_are_as_wide_as_holds_sources_left_out(apart):
    """Whatever the sources differ by, and no wider than that."""
    residuals = runs_of("abcdefghij", lambda source: apart * (ord(source) - ord("e")) + 0.01)
    widened = widening(residuals)
    assert of_sources(residuals, widened * 1.1)[0].inside_fraction >= LEVEL
    assert of_sources(residuals, widened * 0.6)[0].inside_fraction < LEVEL


def test_worse_evidence_is_never_narrower_and_every_kind_has_a_width():
    known = catalog.intervals().peaks
    cluster = {"gpu": "h200-sxm", "num_gpus": 8, "gpus_per_node": 8}
    runs = [
        one
        for off, tp in ((0.2, 4), (0.3, 2))
        for one in runs_of("ab", lambda _, o=off: o, cluster=cluster, layout=LAYOUT | {"tp": tp})
    ]
    found = intervals(runs, known).regimes
    for kind in ("dense", "graphs", "fsdp", "launch_bound", "mixture_of_experts"):
        widths = [found[f"{name} {kind}"].half_width for name in ("unseen", "stand_in", "assumed")]
        assert widths == sorted(widths)


def test_a_ratio_is_of_two_steps_of_one_source():
    pairs = rows({"source_group": "a"}, {"source_group": "a", "layout": LAYOUT})
    [first, second] = [log(row.predicted_s / row.measured_s) for row in pairs]
    found = comparison_width([*pairs, *rows({"source_group": "b"})])
    assert (found.runs, found.sources) == (1, 1)
    apart = width_factor(pairs[0].layout, pairs[1].layout)
    assert found.half_width == pytest.approx(abs(first - second) / apart, abs=1e-3)


def test_the_intervals_of_the_catalog_hold_what_they_promise_to_a_stranger():
    found = catalog.intervals()
    assert 0.72 <= found.left_out <= 0.9


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
