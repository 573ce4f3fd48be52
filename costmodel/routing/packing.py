"""Experts into packs of equal size, ranks or nodes, as even as a greedy rule and swaps make them.

`weights` are rows [step, expert]. A pack has as many slots as any other. What is made small is the
fullest pack of each step over the mean one: its mean over steps, or that of the fullest step.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

import numpy as np

from trainplan.costmodel.columns import FloatColumn, IntColumn

Aim = Literal["mean", "worst"]
"""Of the fullest pack of each step: the mean over steps, or that of the fullest step."""
_OF: Mapping[Aim, Callable[..., FloatColumn]] = MappingProxyType({"mean": np.mean, "worst": np.max})
CLOSE, CLOSE_OF_STEPS = 1e-9, 1e-4
"""Of the mean pack, what a swap gains at least: more than rounding, of steps more than is known.

Source: derived; the mean of a pack of n rows in each of S steps is known to (n S) ** -1/2 of
itself, which is 1e-4 of 100,000 rows in each of 1,000.
"""


@dataclass(frozen=True, eq=False)
class Packing:
    """What each slot holds: an expert, and the pack the slot is of. Shape [slot].

    Slots that hold one expert share its rows equally.
    """

    experts: IntColumn
    packs: IntColumn

    def shares(self, experts: int, packs: int) -> FloatColumn:
        """Of an expert's rows those that each pack computes: [expert, pack]."""
        copies = np.bincount(self.experts, minlength=experts)
        result = np.zeros((experts, packs))
        np.add.at(result, (self.experts, self.packs), 1 / copies[self.experts])
        return result


def fullest(weights: FloatColumn, shares: FloatColumn, aim: Aim = "mean") -> float:
    """The fullest pack over the mean one. Shapes: weights [step, expert], shares [expert, pack].

    Source: derived; rows of a pack are the sum of its shares of the rows of experts.
    """
    rows = weights @ shares
    return float(_OF[aim](rows.max(axis=1) / rows.mean(axis=1)))


def packed(weights: FloatColumn, packs: int, copies: int = 0, aim: Aim = "mean") -> Packing:
    """Experts and so many copies more in packs: greedily, then by swaps until none helps.

    Source: the greedy rule is that of deepseek-ai/EPLB (README.md): the next copy is of the expert
    with most rows a copy; the largest goes first, into the emptiest pack with a free slot (Graham,
    SIAM J. Appl. Math. 17 (1969), 416). A swap is made only where it improves that.
    """
    total = weights.sum(axis=0)
    experts, count = np.arange(weights.shape[1]), np.ones(weights.shape[1])
    for _ in range(copies):
        most = int((total / count).argmax())
        experts, count[most] = np.append(experts, most), count[most] + 1
    each = weights[:, experts] / count[experts]
    start = _greedy(each.sum(axis=0), packs)
    return Packing(experts, _swapped(each * packs / each.sum(axis=1, keepdims=True), start, aim))


def _greedy(weights: FloatColumn, packs: int) -> IntColumn:
    """The pack of each slot. Source: as `packed`."""
    size, sums = len(weights) // packs, np.zeros(packs)
    held, result = np.zeros(packs, dtype=np.int64), np.zeros(len(weights), dtype=np.int64)
    for slot in np.argsort(-weights, kind="stable").tolist():
        pack = int(np.where(held < size, sums, np.inf).argmin())
        result[slot] = pack
        sums[pack] += weights[slot]
        held[pack] += 1
    return result


def _swapped(weights: FloatColumn, start: IntColumn, aim: Aim) -> IntColumn:
    """The steepest swap of a fullest pack with another, again and again until none helps.

    weights: over the mean pack, [step, slot].
    """
    result, packs, of = start.copy(), int(start.max()) + 1, _OF[aim]
    sums = weights @ (result[:, None] == np.arange(packs))
    looked: list[int] = []
    close = CLOSE if len(weights) == 1 else CLOSE_OF_STEPS
    while packs > 1:
        left = [one for one in np.unique(sums.argmax(axis=1)).tolist() if one not in looked]
        if not left:
            break
        pack = left[0]
        own, others = np.nonzero(result == pack)[0], np.nonzero(result != pack)[0]
        gone = weights[:, own, None] - weights[:, None, others]
        here, there = sums[:, pack, None, None] - gone, sums[:, None, result[others]] + gone
        rest = _without(sums, pack)[:, None, result[others]]
        largest = of(np.maximum(np.maximum(here, there), rest), axis=0)
        gain = float(of(sums.max(axis=1))) - largest
        one, other = np.unravel_index(int(gain.argmax()), gain.shape)
        if gain[one, other] <= close:
            looked.append(pack)
            continue
        first, second = own[one], others[other]
        result[first], result[second] = result[second], result[first]
        sums, looked = weights @ (result[:, None] == np.arange(packs)), []
    return result


def _without(sums: FloatColumn, pack: int) -> FloatColumn:
    """The fullest of all packs but one and each: [step, pack]; 0 where there are but two."""
    rest = np.array(sums)
    rest[:, pack] = 0.0
    order = np.sort(rest, axis=1)
    is_most = np.arange(rest.shape[1]) == rest.argmax(axis=1)[:, None]
    return np.where(is_most, order[:, -2:-1], order[:, -1:])


def least_fullest(weights: FloatColumn, packs: int, copies: int = 0, aim: Aim = "mean") -> float:
    """What no packing is below, of the fullest pack over the mean one.

    Source: derived, `_least` of each step; the fullest of a step is no less than its bound, so the
    mean and the largest of them are no less than those of the bounds.
    """
    return float(_OF[aim]([_least(row, packs, copies) for row in weights]))


def _least(weights: FloatColumn, packs: int, copies: int) -> float:
    """The bound of one step.

    The mean pack. Without copies, with n slots a pack, items from the largest: some i packs hold
    the i first, and in their other slots no less than as many of the smallest, so the mean of these
    packs is a bound. Of the first k packs + 1 one pack holds k + 1, no less than the last ones of
    them, and the smallest besides. Two slots a pack: the largest with
    the smallest, and so on. With copies: no share is below w / c where the copies c of all are as
    many as there are.

    Source: derived; for two slots an exchange of partners makes no other pairing better.
    """
    ordered = np.sort(weights)[::-1] * (packs / weights.sum())
    if copies:
        count = np.ones(len(ordered))
        for _ in range(copies):
            count[int((ordered / count).argmax())] += 1
        return max(1.0, float((ordered / count).max()))
    size = len(ordered) // packs
    large = np.concatenate([[0.0], ordered.cumsum()])
    small = np.concatenate([[0.0], ordered[::-1].cumsum()])
    first = np.arange(1, packs + 1)
    means = (large[first] + small[first * (size - 1)]) / first
    k = np.arange(1, size)
    several = large[k * packs + 1] - large[k * (packs - 1)] + small[size - 1 - k]
    pairs = ordered[:packs] + ordered[: packs - 1 : -1] if size == 2 else np.zeros(1)
    return float(max(1.0, means.max(), several.max(initial=0.0), pairs.max()))
