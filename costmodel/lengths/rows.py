"""What a row of a micro batch holds."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from trainplan.costmodel.job import TrainingSpec
from trainplan.costmodel.lengths.distribution import Floats, Ints, lengths_of, sampled
from trainplan.costmodel.lengths.packing import first_fit, least_work_first


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of a job whose sequences are of unequal length."""

    tokens: float
    """Of a row, those of sequences: the rest is padding."""
    sequences: float
    """Of a row."""
    work: Floats
    """Attention work of rows over its mean, ascending; a row that is padded has that of any."""
    span: float
    """Tokens that a token attends to, mean over those of sequences."""
    kernel_length: float
    """Length of one sequence at which the attention core takes as long for the same work."""


@lru_cache(maxsize=64)
def rows_of(training: TrainingSpec, windowed: float, window: int) -> Rows | None:
    """Rows of a job, where `windowed` of the layers attend to a `window`; none of equal sequences.

    Unpacked, a kernel sees a row of `seq_length` tokens whatever it holds. Packed, the core takes
    each sequence by itself: its work is that of all sequences, never of what is between them.
    Source: NVIDIA Transformer Engine, dot_product_attention.py, qkv_format thd with cu_seqlens.
    """
    if training.lengths is None:
        return None
    lengths = lengths_of(training.lengths, training.seq_length)
    if training.packing == "none":
        span = float(spans(np.array([float(training.seq_length)]), windowed, window)[0])
        whole = float(training.seq_length)
        return Rows(lengths.mean, 1.0, np.ones(1), span, whole)
    tokens, row = _filled(sampled(lengths, training.seq_length), training.seq_length)
    work = tokens * spans(tokens.astype(np.float64), windowed, window)
    if training.packing == "balanced":
        row = least_work_first(tokens, work, training.seq_length, int(row.max()) + 1)
        tokens, work, row = tokens[row >= 0], work[row >= 0], row[row >= 0]
    loads = np.sort(np.bincount(row, weights=work))
    return Rows(
        tokens=float(tokens.sum()) / len(loads),
        sequences=float(len(tokens)) / len(loads),
        work=loads / loads.mean(),
        span=lengths.of_tokens(spans(lengths.tokens, windowed, window)),
        kernel_length=lengths.of_tokens(lengths.tokens),
    )


def _filled(tokens: Ints, capacity: int) -> tuple[Ints, Ints]:
    """Sequences in rows by first fit without those of the last row, and the row of each.

    The last row is not full because no more sequences come. Where all of a sample fits one row, as
    often as they fit again they fill it.
    Source: rows of a stream are closed by the next sequence, and that of a last row never comes.
    """
    again = -(-2 * capacity // max(1, int(tokens.sum())))
    tokens = np.tile(tokens, max(1, again))
    row = first_fit(tokens, capacity)
    whole = row < row.max()
    return tokens[whole], row[whole]


def spans(tokens: Floats, windowed: float, window: int) -> Floats:
    """Tokens that a token of a sequence of each length attends to, mean over its tokens and layers.

    Source: as `costmodel.model.params.window_span`, for a column of lengths.
    """
    inside = np.minimum(tokens, window or np.inf)
    return windowed * inside * (1 - inside / (2 * tokens)) + (1 - windowed) * tokens / 2


@lru_cache(maxsize=64)
def span_share(training: TrainingSpec, windowed: float, window: int) -> float:
    """What a token attends to in its own sequence, over what it would in a row of one sequence.

    Source: the mean over all tokens of `spans` over that of a row.
    """
    assert training.lengths
    lengths = lengths_of(training.lengths, training.seq_length)
    whole = spans(np.array([float(training.seq_length)]), windowed, window)
    return lengths.of_tokens(spans(lengths.tokens, windowed, window)) / float(whole[0])


def real_tokens_per_step(training: TrainingSpec) -> int:
    """Tokens of sequences that one optimizer step consumes, without padding.

    Source: a batch is so many rows, each with its mean of tokens.
    """
    rows = rows_of(training, 0.0, 0) if training.lengths else None
    if rows is None:
        return training.tokens_per_step
    return max(1, round(rows.tokens * training.global_batch_size))


def mean_length(training: TrainingSpec) -> float:
    """Tokens of a sequence. Source: that of `Lengths`."""
    if training.lengths is None:
        return float(training.seq_length)
    return lengths_of(training.lengths, training.seq_length).mean


def padding_fraction(training: TrainingSpec) -> float:
    """Share of the tokens of a row that is padding. Source: a row less those of sequences."""
    rows = rows_of(training, 0.0, 0)
    return 0.0 if rows is None else 1 - rows.tokens / training.seq_length
