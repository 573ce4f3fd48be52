"""Sequences of unequal length: what rows hold, what attention costs, and who waits for whom.

`rows` has the lengths, fills rows with them and counts what a row holds; `waits` has how long ranks
and stages wait for the one whose rows have most attention work.

Lengths: all lengths that may occur (tokens), and their shares.
lengths_of: the lengths of a histogram or distribution, cut to a row.
mean_length: tokens of a sequence.
padding_fraction: share of a row's tokens that is padding.
real_tokens_per_step: tokens of sequences in an optimizer step, without padding.
Rows: rows of a job: tokens, sequences, attention work over its mean.
rows_of: those rows; none where all sequences are equal.
span_share: what a token attends to over what it would in a row of one sequence.
Waiting: replicas, micro batches and stages that wait for each other.
waiting_factor: attention seconds of the ranks all wait for, over those of a mean row.
"""

from trainplan.costmodel.lengths.rows import (
    Lengths,
    Rows,
    lengths_of,
    mean_length,
    padding_fraction,
    real_tokens_per_step,
    rows_of,
    span_share,
)
from trainplan.costmodel.lengths.waits import Waiting, waiting_factor
