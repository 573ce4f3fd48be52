"""Fewest and most layers of every pipeline rank, of one layout or of many of one shape."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from trainplan.costmodel.columns import BoolColumn, FloatColumn, IntColumn, RankRows

Counts = TypeVar("Counts", IntColumn, RankRows)


@dataclass(frozen=True, slots=True)
class Windows(Generic[Counts]):
    """Fewest and most layers of every rank; shape (rank,), or (rank, row) of many layouts."""

    least: Counts
    most: Counts

    def equals(self, other: Windows[Counts]) -> bool:
        """Are they the same?"""
        return bool((self.least == other.least).all() and (self.most == other.most).all())

    def count(self, layers: int) -> int:
        """Ways to spread so many layers of one layout.

        Source: ranks take layers beyond their least one independently of another, so the ways of
        several ranks are the convolution of those of each.
        """
        ways = np.ones(1)
        for slack in (self.most - self.least).tolist():
            ways = np.convolve(ways, np.ones(slack + 1))
        left = layers - int(self.least.sum())
        return int(ways[left]) if 0 <= left < len(ways) else 0

    def hold(self, layers: int) -> BoolColumn:
        """Rows whose ranks can hold so many layers between them."""
        some = (self.most >= self.least).all(axis=0) & (self.least.sum(axis=0) <= layers)
        return np.asarray(some & (self.most.sum(axis=0) >= layers))

    def cheapest(self, cost: FloatColumn, layers: int) -> FloatColumn:
        """Least cost of so many layers, given what one costs on each rank; of each row.

        Source: the continuous knapsack, Dantzig, Operations Research 5, 1957.
        """
        order = np.argsort(cost, axis=0)
        spare = np.take_along_axis(self.most - self.least, order, axis=0)
        rest = layers - self.least.sum(axis=0)
        used = (rest - (np.cumsum(spare, axis=0) - spare)).clip(0.0, spare)
        more = (used * np.take_along_axis(cost, order, axis=0)).sum(axis=0)
        return np.asarray((cost * self.least).sum(axis=0) + more)
