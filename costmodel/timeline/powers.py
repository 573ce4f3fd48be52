"""Steps whose cycles repeat: each cycle is one matrix over (max, +), many are a power of it.

When ops end is linear in that algebra: an op ends at the largest end of its inputs, messages
included, plus its seconds. So the ends that a cycle hands on are a matrix times those handed to it.
Source: as `costmodel.copy_streams`; tests compare with whole steps.
"""

from dataclasses import dataclass

import numpy as np

from trainplan.costmodel.columns import (
    BoolColumn,
    FloatColumn,
    FloatMatrix,
    IntColumn,
    IntMatrix,
    RowRanks,
)
from trainplan.costmodel.copy_streams import powered
from trainplan.costmodel.program import NOTHING, Waves
from trainplan.costmodel.timeline.clock import StageSeconds, boundary_of


@dataclass(frozen=True, slots=True)
class Piece:
    """Some ops of a step in the order of their places, and what they take from the cycle before."""

    places: IntColumn
    inputs: IntMatrix
    """Numbers of the ops here; behind them, numbers of those taken; last of all, "no input"."""
    waves: IntColumn
    """Number at which each wave here begins, and where the last one ends."""


@dataclass(frozen=True, slots=True)
class Cut:
    """A step cut before and behind a cycle."""

    order: Waves
    handed: IntColumn
    """Places of the ops in the cycle whose ends it hands on."""
    cycle: Piece
    behind: Piece

    def ends_after(
        self,
        times: int,
        seconds: StageSeconds,
        p2p: FloatColumn,
        ends: FloatMatrix,
        last: IntColumn,
    ) -> RowRanks:
        """When the ops at some places end in a step with so many more cycles; (row, place).

        `ends` are those of the step as it is, `p2p` is as in `op_ends`.
        Source: head of this file.
        """
        durations = seconds.by_kind.T
        latency = p2p
        if p2p.ndim > 1:
            latency = p2p.T[boundary_of(np.arange(len(durations)), seconds.forward.shape[1])]
        result = np.empty((len(p2p), len(last)))
        for row in range(len(p2p)):
            here = np.broadcast_to(latency[..., row], len(durations))
            one, more = (
                self._matrix(piece, durations[:, row], here, wanted)
                for piece, wanted in ((self.cycle, self.handed), (self.behind, last))
            )
            state = ends[self.handed, row]
            if times > len(state):  # a square takes as long as so many cycles one by one
                state = powered(one[..., None], times, state[:, None])[:, 0]
            else:
                for _ in range(times):
                    state = (one + state).max(axis=1)
            result[row] = (more + state).max(axis=1)
        return result

    def _matrix(
        self, piece: Piece, durations: FloatColumn, latency: FloatColumn, wanted: IntColumn
    ) -> FloatMatrix:
        """Longest ways from the ops handed on before to some places; -inf for none.

        Source: head of this file.
        """
        count, taken = len(piece.places), len(self.handed)
        value = np.full((count + taken + 1, taken), -np.inf)
        value[count : count + taken][np.diag_indices(taken)] = 0.0
        duration = self.order.duration[piece.places]
        took, sent = durations[duration], latency[duration] * self.order.hops[:, piece.places]
        for first, end in zip(piece.waves[:-1].tolist(), piece.waves[1:].tolist(), strict=True):
            some = slice(first, end)
            arrived = value[piece.inputs[:, some]] + sent[:, some, None]
            value[some] = arrived.max(axis=0) + took[some, None]
        return value[np.searchsorted(piece.places, wanted)]


def cut_of(
    order: Waves, before: IntColumn, cycle: IntColumn, behind: BoolColumn, row: IntColumn
) -> Cut | None:
    """The cut of a step around a cycle; None where it needs more than the cycle before hands on.

    `before` and `cycle` are places of the ops of two cycles that are alike, in the same order;
    `behind` says which places are behind the second, `row` on which row each op is. What an op
    needs of its own row ends before the op before it.
    """
    size, pieces, taken = len(order.op), [], []
    for places, source in ((np.sort(cycle), before), (np.flatnonzero(behind), cycle)):
        number, handed = np.full((2, size), NOTHING)
        number[places], handed[source] = np.arange(len(places)), np.arange(len(source))
        inputs = order.inputs[:, places]
        there = (inputs != NOTHING) & (inputs < size)
        there[1:] &= row[inputs[1:]] != row[places]
        own, given = (np.where(there, one[inputs % size], NOTHING) for one in (number, handed))
        if (there & (own == NOTHING) & (given == NOTHING)).any():
            return None
        given = np.where(own == NOTHING, given, NOTHING)
        pieces.append((places, own, given))
        taken.append(given[given != NOTHING])
    every = np.unique(np.concatenate(taken))
    parts = []
    for places, own, given in pieces:
        count = len(places)
        inputs = np.where(own != NOTHING, own, count + len(every))
        inputs = np.where(given != NOTHING, count + np.searchsorted(every, given), inputs)
        wave = np.searchsorted(order.starts, places, side="right")
        parts.append(Piece(places, inputs, np.append(np.unique(wave, return_index=True)[1], count)))
    return Cut(order, cycle[every], *parts)
