"""Columns of many candidates: numpy arrays named by their axes, and their distinct rows.

Of a matrix the axes stand in the order of its name. A row is a candidate, a class some ranks that
are alike, a group a node group, a kind one of blocks, a boundary lies between two stages.
"""

from collections.abc import Iterable
from typing import cast

import numpy as np
from numpy.typing import NDArray

IntColumn = NDArray[np.int64]
FloatColumn = NDArray[np.float64]
BoolColumn = NDArray[np.bool_]
ObjectColumn = NDArray[np.object_]
Column = IntColumn | FloatColumn | ObjectColumn
IntMatrix = NDArray[np.int64]
FloatMatrix = NDArray[np.float64]


Rows = FloatColumn  # (row,)
ClassRows = FloatColumn  # (class, row)
RankRows = FloatColumn  # (rank, row)
KindRankRows = FloatColumn  # (kind, rank, row)
IntRowStages = IntColumn  # (row, stage)
RowBoundaries = FloatColumn  # (row, boundary)
RowRanks = FloatColumn  # (row, rank)
RankChunks = FloatColumn  # (rank, chunk)
IntRankChunks = IntColumn  # (rank, chunk)
IntStageKinds = IntColumn  # (stage, kind)
OpStagePasses = FloatColumn  # (op, stage, k)


def objects(values: Iterable[tuple[object, ...] | None]) -> ObjectColumn:
    """A column of tuples or None."""
    listed = list(values)
    column = np.empty(len(listed), dtype=object)
    column[:] = listed
    return column


LARGEST_LOOKED_UP = 1 << 20
"""A table of so many values is as fast as a sort of few; micro batches may be far more."""
FEW = 1 << 12
"""Codes so small are looked up without closing their gaps first."""


def distinct(*columns: IntColumn | FloatColumn) -> tuple[IntColumn, IntColumn]:
    """One row of every distinct combination of values, and for each row its combination.

    A formula of few columns is priced once for each combination and gathered by row. Values are
    counts or codes, not negative: looking them up is faster than sorting. Shares and large counts
    are sorted.
    """
    code, size = np.zeros(len(columns[0]), dtype=np.int64), 1
    if len(code) == 1:
        return code, code
    for column in columns:
        place, count = _places(column, FEW)
        code, size = code * count + place if size > 1 else place, size * count
        if size > FEW:
            code, size = _places(code)
    code, size = _places(code)
    row = np.zeros(size, dtype=np.int64)
    row[code] = np.arange(len(code))
    return row, code


def _places(values: IntColumn | FloatColumn, few: int = 0) -> tuple[IntColumn, int]:
    """Place of each value among the distinct values in ascending order, and their number.

    Integers below `few` are their own places: some numbers may then have no value.
    """
    largest = values.max(initial=-1) if values.dtype == np.int64 else np.inf
    if largest > LARGEST_LOOKED_UP:
        found, places = np.unique(values, return_inverse=True)
        return places, len(found)
    if largest < few:
        return cast("IntColumn", values), int(largest) + 1
    present = np.zeros(int(largest) + 1, dtype=bool)
    present[values] = True
    place = np.cumsum(present) - 1
    return place[values], int(place[-1]) + 1 if len(place) else 0


def nondominated(rows: IntMatrix | FloatColumn) -> IntColumn:
    """Numbers of rows such that every other is nowhere larger than one of them.

    Source: a row that is nowhere smaller has no smaller sum, so in the order of falling sums each
    row need be compared with those kept before it alone.
    """
    kept: list[int] = []
    for row in np.lexsort((np.arange(len(rows)), -rows.sum(axis=1))).tolist():
        if not kept or not (rows[kept] >= rows[row]).all(axis=1).any():
            kept.append(row)
    return np.array(kept)
