"""The attention core over rows that hold several sequences of unequal length."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.candidates import Candidates, Context
from trainplan.costmodel.columns import FloatColumn, IntColumn
from trainplan.costmodel.job import TrainingSpec
from trainplan.costmodel.layouts import num_microbatches
from trainplan.costmodel.lengths import Rows, Waiting, rows_of, waiting_factor
from trainplan.costmodel.model import query_columns, value_columns


@dataclass(frozen=True, slots=True)
class Core:
    """What the attention core does of a micro batch on one rank."""

    flop: FloatColumn
    """Forward, of the ranks that all wait for."""
    length: float | FloatColumn
    """Of its sequences, or of one at which the kernel takes as long."""
    rows: FloatColumn
    """Heads times sequences of that length."""


def packed_core(candidates: Candidates, tokens: FloatColumn, whole: Core) -> Core:
    """The core where its kernel takes each sequence of a row by itself; else that of whole rows.

    Source: 2 FLOPs for each column of each pair of tokens that attend; a kernel of efficiency s /
    (s + s_half) takes sum l (l + s_half) for works of sum l^2: that of one length sum l^2 / sum l.
    The heaviest ranks have the tokens of a mean row, and the squares of longer sequences.
    """
    rows = packed_rows(candidates)
    if rows is None:
        return whole
    model, training = candidates.job.model, candidates.job.training
    filled = rows.tokens / training.seq_length
    columns = (query_columns(model) + value_columns(model)) / candidates.table.tp
    waited = waits(candidates)
    flop = 2.0 * tokens * filled * rows.span * columns
    length = min(rows.kernel_length, 2 * rows.span) * waited  # less in a window, as `kernel_length`
    return Core(flop * waited, length, _heads(whole, training) * rows.tokens / length)


def _heads(whole: Core, training: TrainingSpec) -> FloatColumn:
    """Heads times rows of a micro batch on one rank.

    Source: derived; `Core.rows` counts pieces of its length.
    """
    return whole.rows * whole.length / training.seq_length


def packed_rows(context: Context) -> Rows | None:
    """Rows of a job that packs them, where a fused core tells their sequences apart."""
    training = context.job.training
    if training.packing == "none" or context.traits.kernels.attention == "unfused":
        return None
    return rows_of(training, *_windows(context.job.model))


def _windows(model: ModelSpec) -> tuple[float, int]:
    """Share of the layers that attend to a window, and its tokens."""
    return model.num_sliding_window_layers / model.num_hidden_layers, model.sliding_window or 0


def waiting_columns(candidates: Candidates) -> tuple[IntColumn, ...]:
    """Columns beside its key that the core of packed rows depends on; none of other jobs."""
    if packed_rows(candidates) is None:
        return ()
    return candidates.table.dp, candidates.table.pp, _meets_in_layers(candidates)


def _meets_in_layers(candidates: Candidates) -> IntColumn:
    """Data-parallel ranks that wait for one another in every layer of a micro batch.

    All under ZeRO-3, which gathers each layer from all of them; else those an expert is shared by.
    Source: Zhao et al., PyTorch FSDP, arXiv:2304.11277, section 3; the ep etp ranks of an expert
    group are tp cp neighbours of each of so many replicas.
    """
    table = candidates.table
    experts = np.maximum(1, table.ep * table.etp // (table.tp * table.cp))
    return np.where(table.zero_stage == 3, table.dp, np.minimum(experts, table.dp))


def waits(candidates: Candidates) -> FloatColumn:
    """Seconds of the ranks that all wait for over those of a mean row. Source: `waiting_factor`."""
    table, training = candidates.table, candidates.job.training
    microbatches = np.maximum(1, num_microbatches(candidates.job, table))
    columns = (table.dp, _meets_in_layers(candidates), microbatches)
    cases = zip(
        *(column.tolist() for column in (*columns, table.micro_batch_size, table.pp)), strict=True
    )
    windows = _windows(candidates.job.model)
    return np.array([_known_factor(training, windows, Waiting(*case)) for case in cases])


@lru_cache(maxsize=65_536)
def _known_factor(training: TrainingSpec, windows: tuple[float, int], case: Waiting) -> float:
    rows = rows_of(training, *windows)
    assert rows is not None
    return waiting_factor(rows, case, balanced=training.packing == "balanced")
