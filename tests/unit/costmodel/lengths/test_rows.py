"""Rows of sequences of unequal length."""

import numpy as np
import pytest
from pydantic import ValidationError

from trainplan.costmodel.job.job import LengthSpec, Lognormal, TrainingSpec
from trainplan.costmodel.lengths import padding_fraction, real_tokens_per_step, rows_of
from trainplan.costmodel.lengths.rows import first_fit, least_work_first, lengths_of, sampled, spans


def training(counts=(), packing="greedy", row=1000, lognormal=None):
    lengths = LengthSpec(counts=counts, lognormal=lognormal)
    return TrainingSpec(seq_length=row, global_batch_size=10, lengths=lengths, packing=packing)


def test_first_fit_puts_each_sequence_into_the_first_row_with_room():
    assert first_fit(np.array([6, 5, 4, 5, 1]), 10).tolist() == [0, 1, 0, 1, 2]


def test_a_balanced_row_takes_the_next_longest_where_least_work_is():
    tokens = np.array([2, 6, 4, 4, 2])
    assert least_work_first(tokens, tokens**2.0, 10, 2).tolist() == [1, 0, 1, 1, 0]


def test_a_balanced_row_never_holds_more_than_its_tokens_and_others_wait():
    tokens = np.array([6, 6, 6, 5, 5, 4, 1])
    row = least_work_first(tokens, tokens**2.0, 10, 3)
    assert row.tolist() == [0, 1, 2, -1, -1, 0, 1]


def test_two_halves_fill_a_row_with_half_of_its_attention():
    rows = rows_of(training([(500, 7)]), 0.0, 0)
    assert (rows.sequences, rows.tokens, rows.span) == (2.0, 1000.0, 250.0)
    assert rows.kernel_length == 500.0
    assert set(rows.work.tolist()) == {1.0}


def test_attention_of_a_row_is_the_sum_of_squares_of_its_sequences():
    rows = rows_of(training([(800, 1), (200, 1)]), 0.0, 0)
    assert rows.tokens * rows.span == pytest.approx((800**2 + 200**2) / 2, rel=0.01)
    assert rows.kernel_length == pytest.approx((800**2 + 200**2) / 1000)


def test_a_window_keeps_long_sequences_from_their_square():
    lengths = np.array([100.0, 1000.0])
    assert spans(lengths, 1.0, 400) == pytest.approx([50.0, 400 * (1 - 400 / 2000)])
    assert spans(lengths, 0.5, 400) == pytest.approx([50.0, (320 + 500) / 2])


def test_padded_rows_compute_what_sequences_leave_empty():
    padded = training([(250, 1)], "none")
    assert padding_fraction(padded) == 0.75
    assert real_tokens_per_step(padded) == 2500
    assert real_tokens_per_step(training([(250, 1)])) == 10_000
    assert padding_fraction(training([(600, 1)])) == pytest.approx(0.4)


def test_a_lognormal_has_its_mean_and_is_cut_to_a_row():
    wide = lengths_of(LengthSpec(lognormal=Lognormal(mean=4096, sigma=1.0)), 1 << 20)
    assert wide.mean == pytest.approx(4096, rel=0.01)
    assert float(wide.tokens**2 @ wide.share) == pytest.approx(4096**2 * np.exp(1.0), rel=0.02)
    cut = lengths_of(LengthSpec(lognormal=Lognormal(mean=4096, sigma=1.0)), 8192)
    assert cut.tokens.max() == 8192
    assert lengths_of(LengthSpec(lognormal=Lognormal(mean=700, sigma=0)), 8192).mean == 700


def test_a_sample_has_the_mean_of_the_histogram_and_always_the_same_order():
    lengths = lengths_of(LengthSpec(counts=((10, 900), (100, 90), (1000, 10))), 1000)
    assert sampled(lengths, 1000).mean() == pytest.approx(28.0, rel=0.01)
    assert (sampled(lengths, 1000) == sampled(lengths, 1000)).all()


@pytest.mark.parametrize("counts", [(), ((10, 0.0),), ((10, -1.0),), ((0, 1.0),)])
def test_a_histogram_without_mass_or_lengths_is_refused(counts):
    with pytest.raises(ValidationError):
        LengthSpec(counts=counts)


def test_a_sequence_longer_than_a_row_is_refused_with_what_to_do():
    with pytest.raises(ValidationError, match="raise seq_length to 2000, or cut or drop"):
        training([(2000, 1)])
    assert training([(2000, 0), (10, 1)]), "a length that never occurs does no harm"


def test_packing_needs_lengths():
    with pytest.raises(ValidationError, match="packing=greedy needs lengths"):
        TrainingSpec(seq_length=10, global_batch_size=1, packing="greedy")


@pytest.mark.parametrize("packing", ["greedy", "balanced"])
@pytest.mark.parametrize("row", [1 << 20, 1 << 24])
def test_rows_far_longer_than_all_sequences_of_a_sample_are_filled(packing, row):
    rows = rows_of(training([(300, 9), (700, 1)], packing, row), 0.0, 0)
    assert rows.tokens == pytest.approx(row, rel=1e-3)
    assert rows.sequences == pytest.approx(row / 340, rel=0.01)
