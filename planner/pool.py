"""Branches of the search that wait to be opened."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from costmodel.table import BoolColumn, FloatColumn, IntColumn, LayoutTable


@dataclass(frozen=True, slots=True)
class Pool:
    """Branches waiting to be opened, each with its bound and its family of like layouts."""

    table: LayoutTable
    bound: FloatColumn
    family: IntColumn

    @property
    def smallest(self) -> float:
        """Smallest bound; infinite when empty."""
        return float(self.bound.min(initial=np.inf))

    def take(self, rows: IntColumn | BoolColumn) -> Pool:
        """The branches picked by an index or a mask."""
        return Pool(self.table.take(rows), self.bound[rows], self.family[rows])

    def split(self, count: int) -> tuple[Pool, Pool]:
        """The `count` branches with the smallest bounds, in order, and the others."""
        first = np.argsort(self.bound, kind="stable")[:count]
        rest = np.ones(len(self.bound), dtype=bool)
        rest[first] = False
        return self.take(first), self.take(rest)

    def below(self, limit: float) -> Pool:
        """The branches that can still win."""
        wins = self.bound < limit
        return self if wins.all() else self.take(wins)

    def joined(self, other: Pool) -> Pool:
        """Both together."""
        return Pool(
            LayoutTable.concat([self.table, other.table]),
            np.concatenate([self.bound, other.bound]),
            np.concatenate([self.family, other.family]),
        )
