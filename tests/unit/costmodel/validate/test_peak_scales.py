"""Scales of the error of a peak: from measured peaks, by sources."""

import math
from types import SimpleNamespace

import pytest

from trainplan.costmodel.uncertainty import NO_PEAKS
from trainplan.costmodel.validate.peaks import HELD, T_OF_SHARE, held_by, peak_misses, peaks


def row(name, source, error, *, kind="reserved", gib=40.0):
    run = SimpleNamespace(
        id=name,
        source_group=source,
        runtime="megatron-lm",
        training=SimpleNamespace(precision="bf16"),
    )
    return SimpleNamespace(
        run=run, kind=kind, measured_gib=gib, predicted_gib=gib * math.exp(-error)
    )


def rows_of(errors, sources=4):
    return [
        row(f"{source}-{i}", f"s{source}", error)
        for source in range(sources)
        for i, error in enumerate(errors)
    ]


def test_the_scale_is_the_size_that_four_fifths_are_within():
    errors = [0.01 * (one + 1) * (-1) ** one for one in range(10)]
    found = peaks(rows_of(errors))
    scale = found.scales["16-bit or wider"]
    assert scale == pytest.approx(found.widened * 0.08 / T_OF_SHARE, rel=0.1)
    doubled = peaks(rows_of([2 * one for one in errors]))
    assert doubled.scales["16-bit or wider"] == pytest.approx(2 * scale, rel=0.01)
    assert found.scales[NO_PEAKS] == max(found.scales.values())
    assert found.libraries == ("megatron-core",)


def test_scales_are_widened_until_sources_left_out_are_held():
    alike = rows_of([0.001, -0.001], sources=3)
    stranger = [row(f"odd-{i}", "odd", 0.3) for i in range(16)]
    found = peaks([*alike, *stranger])
    misses = tuple(peak_misses([*alike, *stranger]))
    assert found.widened > 1
    assert held_by(misses, 1.0) < HELD
    assert held_by(misses, found.widened) >= held_by(misses, 1.0)


def test_small_peaks_do_not_count_and_a_run_counts_once():
    small = [row("small", "s", 0.4, gib=2.0)]
    both = [row("two", "s", 0.3, kind="allocated"), row("two", "s", 0.1)]
    (miss,) = peak_misses([*small, *both])
    assert miss.miss.value == pytest.approx(0.1)
