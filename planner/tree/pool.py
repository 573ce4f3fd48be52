"""Branches of the search that wait to be opened."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trainplan.costmodel.columns import BoolColumn, FloatColumn, IntColumn, distinct
from trainplan.costmodel.layouts import LayoutTable
from trainplan.planner.policies import takes_longer

WHOLE_GROUP = -1
"""Number of the member of a branch whose bound holds under every combination of a group."""


@dataclass(frozen=True, slots=True)
class Pool:
    """Branches waiting to be opened, each with its bound and its family of like layouts."""

    table: LayoutTable
    bound: FloatColumn
    branch: IntColumn
    member: IntColumn
    """Combination of settings of each, by its number in the group; `WHOLE_GROUP` where the bound
    holds for all of them."""

    @classmethod
    def of(
        cls,
        table: LayoutTable,
        bound: FloatColumn,
        branch: IntColumn | None = None,
        member: int = WHOLE_GROUP,
    ) -> Pool:
        """Branches of one member or of all; of one family where none is given."""
        if branch is None:
            branch = np.zeros(len(table), dtype=np.int64)
        return cls(table, bound, branch, np.full(len(table), member))

    @classmethod
    def concat(cls, pools: Sequence[Pool]) -> Pool:
        """The branches of all pools, in order."""
        return cls(
            LayoutTable.concat([pool.table for pool in pools]),
            np.concatenate([pool.bound for pool in pools]),
            np.concatenate([pool.branch for pool in pools]),
            np.concatenate([pool.member for pool in pools]),
        )

    @property
    def smallest(self) -> float:
        """Smallest bound; infinite when empty."""
        return float(self.bound.min(initial=np.inf))

    @property
    def by_shape(self) -> IntColumn:
        """Rows in the order of their bounds, but those of one pipeline shape together.

        To bound a shape takes longer than its rows do.
        """
        table = self.table
        samples = table.dp * table.micro_batch_size
        first, shape = distinct(table.schedule, table.pp, table.vpp, samples)
        least = np.full(len(first), np.inf)
        np.minimum.at(least, shape, self.bound)
        return np.lexsort((self.bound, shape, least[shape]))

    @property
    def unsettled(self) -> IntColumn:
        """Rows that no other of these may settle: the first of each family, then others of some.

        Source: `takes_longer`; what another row only adds time to waits for what is known of that
        one.
        """
        table, family = self.table, self.branch
        first = np.sort(np.unique(family, return_index=True)[1])
        settled, chosen = np.zeros(len(table), dtype=bool), []
        for row in dict.fromkeys([*first.tolist(), *range(len(table))]):
            if not settled[row]:
                chosen.append(row)
                one = table.take(np.array([row]))
                settled |= (family == family[row]) & takes_longer(table, one)
        return np.array(chosen, dtype=np.int64)

    def take(self, rows: IntColumn | BoolColumn) -> Pool:
        """The branches picked by an index or a mask."""
        return Pool(self.table.take(rows), self.bound[rows], self.branch[rows], self.member[rows])

    def pop_smallest(self, count: int) -> tuple[Pool, Pool]:
        """The `count` branches with the smallest bounds, in order, and the others.

        Equal bounds stay in the order they were found in, so that equal searches open the same.
        """
        first = np.argsort(self.bound, kind="stable")[:count]
        rest = np.ones(len(self.bound), dtype=bool)
        rest[first] = False
        return self.take(first), self.take(rest)

    def pop_kinds(self, names: Sequence[str], count: int) -> tuple[Pool, Pool]:
        """As `pop_smallest`, of branches alike in some columns the first alone."""
        ordered = self.pop_smallest(len(self.bound))[0]
        first = first_of_each(ordered.table, names)[:count]
        rest = np.ones(len(ordered.bound), dtype=bool)
        rest[first] = False
        return ordered.take(first), ordered.take(rest)

    def prune(self, limit: float) -> Pool:
        """The branches that can still win."""
        wins = self.bound < limit
        return self if wins.all() else self.take(wins)

    def joined(self, other: Pool) -> Pool:
        """Both together."""
        some = [one for one in (self, other) if len(one.bound)]
        return Pool.concat(some) if len(some) > 1 else (*some, self)[0]


def first_of_each(table: LayoutTable, names: Sequence[str]) -> IntColumn:
    """The first row of each that are alike in some columns, in order."""
    codes = np.array([getattr(table, name) for name in names])
    return np.sort(np.unique(codes, axis=1, return_index=True)[1])
