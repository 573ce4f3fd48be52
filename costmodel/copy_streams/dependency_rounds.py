"""The longest path of rounds that repeat, exact and without walking each of them.

The state between two items is a vector: when each lane is free, when all has ended, when the latest
item of each name ended. An item sets some entries to (the largest of some entries) + its seconds.
That is linear in the algebra of (max, +), which is associative: a round is a matrix, n rounds are
its n-th power, and the power is taken by squaring.

Source: derived, the paragraph above; Baccelli, Cohen, Olsder, Quadrat, Synchronization and
Linearity (1992): event graphs are linear in max-plus.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trainplan.costmodel.copy_streams.transfer_volume import FloatColumn, Lane, Order

ENDED = len(Lane)
"""Slot of the state that holds when all so far has ended; lanes stand before, names behind."""
NAMES = ENDED + 1
State = NDArray[np.float64]
"""Seconds (slot, ..., row)."""


@dataclass(frozen=True, slots=True)
class Columns:
    """A part with its names as slots of the state."""

    lanes: tuple[int, ...]
    seconds: FloatColumn
    """(item, row)."""
    after: tuple[tuple[int, ...], ...]
    slots: tuple[int, ...]
    """Of each item's own name."""
    order: Order
    rounds: int
    chained: int
    """Items, the first ones, that each wait for the one before."""

    @property
    def live(self) -> list[int]:
        """Slots whose value at the start of a round the round depends on."""
        written: set[int] = set()
        read = {ENDED, *self.lanes}
        for after, slot in zip(self.after, self.slots, strict=True):
            read.update(set(after) - written)
            written.add(slot)
        return sorted(read)


def first_state(names: int, rows: int) -> State:
    """Nothing has run: lanes are free, there is nothing to wait for. Source: head of this file."""
    state = np.zeros((NAMES + names, rows))
    state[NAMES:] = -np.inf
    return state


def after_rounds(part: Columns, state: State) -> State:
    """State when all rounds of a part are done. Source: head of this file."""
    if part.order is not Order.OVERLAPPED:
        return _one_after_the_other(part, state)
    if not part.rounds:
        return state
    if part.rounds > 1:
        state = state.copy()
        live = part.live
        state[live] = powered(_matrix(part, live, state.shape), part.rounds - 1, state[live])
    return one_round(part, state)


def one_round(part: Columns, state: State) -> State:
    """State when the items of a part are done once. Source: head of this file."""
    state, after = state.copy(), part.after
    end = state[ENDED]
    for index, (lane, slot) in enumerate(zip(part.lanes, part.slots, strict=True)):
        start = np.maximum(end, state[lane]) if index < part.chained else state[lane]
        for waited in after[index]:
            start = np.maximum(start, state[waited])
        end = start + part.seconds[index]
        state[lane] = state[slot] = end
        np.maximum(state[ENDED], end, out=state[ENDED])
    return state


def _one_after_the_other(part: Columns, state: State) -> State:
    """Rounds that each start when all before has ended: all take what the first takes from 0.

    Source: derived; at the start of such a round every entry of the state is at most the end of
    all before, which every item waits for, so only that one number counts.
    """
    state = state.copy()
    if part.rounds:
        done = one_round(part, first_state(len(state) - NAMES, state.shape[-1]))
        state = np.maximum(state, done + state[ENDED] + (part.rounds - 1) * done[ENDED])
    state[:NAMES] = state[ENDED]
    return state


def _matrix(part: Columns, live: list[int], shape: tuple[int, ...]) -> State:
    """A round as matrix (slot after, slot before, row). Source: head of this file."""
    unit = np.full((shape[0], len(live), shape[-1]), -np.inf)
    unit[live, range(len(live))] = 0.0
    return one_round(part, unit)[live]


def powered(matrix: State, times: int, state: State) -> State:
    """`matrix` to the power of `times`, applied to a state. Source: head of this file."""
    while times:
        if times & 1:
            state = (matrix + state).max(axis=1)
        times >>= 1
        if times:
            matrix = np.stack([(row[:, None] + matrix).max(axis=0) for row in matrix])
    return state
