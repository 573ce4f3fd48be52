"""Sequences put into rows of so many tokens."""

from __future__ import annotations

import numpy as np

from trainplan.costmodel.lengths.distribution import Floats, Ints


def first_fit(tokens: Ints, capacity: int) -> Ints:
    """Row of each sequence: the first one with room, in the order in which they come.

    Source: Johnson, Near-optimal bin packing algorithms, MIT 1973; the default of Megatron-Bridge's
    packed datasets (`packing_algorithm`, first_fit_shuffle).
    """
    room = np.full(len(tokens), capacity, dtype=np.int64)
    row = np.zeros(len(tokens), dtype=np.int64)
    used = 1
    for place, length in enumerate(tokens.tolist()):
        found = int((room[: used + 1] >= length).argmax())
        room[found] -= length
        row[place] = found
        used = max(used, found + 1)
    return row


def least_work_first(tokens: Ints, work: Floats, capacity: int, rows: int) -> Ints:
    """Row of each sequence: the longest goes first, each to the row of least work with room.

    One for which no row has room waits for later rows: -1.
    Source: Graham, Bounds on multiprocessing timing anomalies, SIAM J. Appl. Math. 17 (1969), with
    a capacity; balanced by attention as WLB-LLM, arXiv:2503.17924, section 4.
    """
    room = np.full(rows, capacity, dtype=np.int64)
    load, row = np.zeros(rows), np.full(len(tokens), -1, dtype=np.int64)
    for place in np.argsort(-work, kind="stable").tolist():
        length = tokens[place]
        found = int(np.where(room >= length, load, np.inf).argmin())
        if room[found] >= length:
            room[found] -= length
            load[found] += work[place]
            row[place] = found
    return row
