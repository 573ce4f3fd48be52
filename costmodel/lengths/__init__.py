"""Sequences of unequal length: what rows hold, what attention costs, and who waits for whom.

`distribution` has the lengths, `packing` fills rows with them, `rows` says what a row holds, and
`waits` how long ranks and stages wait for the one whose rows have most attention work.
"""

from trainplan.costmodel.lengths.rows import (
    Rows,
    mean_length,
    padding_fraction,
    real_tokens_per_step,
    rows_of,
    span_share,
)
from trainplan.costmodel.lengths.waits import Waiting, waiting_factor

__all__ = [
    "Rows",
    "Waiting",
    "mean_length",
    "padding_fraction",
    "real_tokens_per_step",
    "rows_of",
    "span_share",
    "waiting_factor",
]
