"""How much of the optimizer a layout offloads: no more than it must.

Bytes fall linearly with the fraction and seconds never do, so of all fractions with which a layout
fits the least is the fastest. It is solved for and rounded up to the step in which files hold it.

Source: `costmodel.memory.rank.MemoryTable.used_with_offload` is linear in the fraction;
`costmodel.traffic.offload.rank_offload_seconds` is a multiple of it, and nothing else reads
it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from trainplan.costmodel.candidates import Context
from trainplan.costmodel.columns import BoolColumn, ClassRows, FloatColumn
from trainplan.costmodel.layouts import LayoutTable, Rule
from trainplan.costmodel.memory import MemoryTable
from trainplan.costmodel.runtimes import RuntimeTraits

NO_ROOM, HOST_FULL, DRIVES_FULL = -1.0, -2.0, -3.0
"""Instead of a fraction: the GPUs have no room with any; they have, but not the host; not the
drives."""
COLUMN = "offload_optimizer"
ROUNDING = 1e-9
"""Of a step; rounding alone must not add one."""


class Fractions(NamedTuple):
    """Fractions that no rule tells apart, multiples of a step, or one alone."""

    least: float
    most: float
    step: float = 1.0

    def at_least(self, needed: FloatColumn) -> FloatColumn:
        """The first of them that is no less than some others; infinite where none is."""
        steps = np.ceil(needed / self.step - ROUNDING)
        first = np.where(needed <= self.least, self.least, steps / round(1 / self.step))
        return np.where(first <= self.most, first, np.inf)

    def enough(self, over: FloatColumn, states: FloatColumn) -> FloatColumn:
        """The first of them with which no bytes are over; the most, where even that is too few.

        `over` are bytes beyond the room, less than none where some is left, with the most of some
        `states` offloaded; the first axis of both is the row. Source: what is free there need not
        be offloaded, and the states over which it is least decide.
        """
        share = np.divide(over, states, out=np.full(over.shape, -1.0), where=states > 0)
        needed = self.most + share.reshape(len(share), -1).max(axis=1)
        return np.minimum(self.at_least(needed), self.most)

    def split_at(self, value: float) -> tuple[Fractions, ...]:
        """Those below a value, the value, and those above."""
        if not self.least <= value <= self.most:
            return (self,)
        number, each = value / self.step, round(1 / self.step)
        below = (np.ceil(number - ROUNDING) - 1) / each
        above = (np.floor(number + ROUNDING) + 1) / each
        parts = (
            Fractions(self.least, float(below), self.step),
            Fractions(value, value, self.step),
            Fractions(float(above), self.most, self.step),
        )
        return tuple(part for part in parts if part.least <= part.most)


PARTS = 4
"""Of a range, where each is a row of its own. Source: assumed; any number gives the same answer."""
NOTHING = Fractions(0.0, 0.0)


def fractions_of(traits: RuntimeTraits, rules: Sequence[Rule]) -> tuple[Fractions, ...]:
    """All fractions of a runtime, in ranges between which some rule may tell, smallest first."""
    step = traits.offloading.optimizer_step
    ranges: tuple[Fractions, ...] = (NOTHING,)
    if step is not None:
        ranges = (NOTHING, Fractions(step, 1.0, step))
    named = {value for rule in rules if COLUMN in rule.columns for value in rule.values}
    for value in sorted(named):
        ranges = tuple(part for one in ranges for part in one.split_at(value))
    return ranges


def fractions_of_splits(traits: RuntimeTraits, rules: Sequence[Rule]) -> tuple[Fractions, ...]:
    """Those of layouts whose layers may be split freely: what moves beside the passes has none.

    Source: `planner.policies.recompute.paths_bound`.
    """
    return (NOTHING,) if traits.offloading.moves_overlapped else fractions_of(traits, rules)


def in_parts(ranges: Sequence[Fractions]) -> tuple[Fractions, ...]:
    """The same in shorter ranges, whose ends bound what is between more closely."""
    parts = []
    for least, most, step in ranges:
        first, last, each = round(least / step), round(most / step), round(1 / step)
        ends = np.unique(np.linspace(first, last + 1, PARTS + 1).round().astype(np.int64)).tolist()
        alone = least == most
        parts += (
            [Fractions(least, most, step)]
            if alone
            else [Fractions(start / each, (end - 1) / each, step) for start, end in pairwise(ends)]
        )
    return tuple(parts)


def range_from(fraction: float, ranges: Sequence[Fractions]) -> Fractions | None:
    """The rest of the range of a fraction; None where nothing is offloaded, or there is none."""
    for one in ranges:
        if fraction > 0 and one.least <= fraction <= one.most:
            return one._replace(least=fraction)
    return None


def most_within(fractions: FloatColumn, ranges: Sequence[Fractions]) -> FloatColumn:
    """The largest fraction of the range of each of some; themselves where there is none."""
    most = fractions
    for one in ranges:
        within = (one.least <= fractions) & (fractions <= one.most)
        most = np.where(within, one.most, most)
    return most


def with_fraction(table: LayoutTable, fraction: float | FloatColumn) -> LayoutTable:
    """All rows with a fraction of the optimizer offloaded."""
    return table.replaced(offload_optimizer=np.full(len(table), fraction))


def with_most_offload(table: LayoutTable, ranges: Sequence[Fractions]) -> LayoutTable:
    """All rows with the largest fraction of every range, one range after the other."""
    return LayoutTable.concat(with_fraction(table, one.most) for one in ranges)


def with_least_offload(table: LayoutTable, ranges: Iterable[Fractions]) -> LayoutTable:
    """As `with_most_offload`, with the smallest fractions."""
    return LayoutTable.concat(with_fraction(table, one.least) for one in ranges)


def legal_offloads(
    on: Context, rules: Sequence[Rule], table: LayoutTable, ranges: Sequence[Fractions]
) -> tuple[BoolColumn, Counter[str]]:
    """Which rows may offload fractions of each range, shape (range, row), and what others break.

    A row that may none counts for the rule that refuses the last fraction that others leave.
    """
    legal, lost = np.ones((len(ranges), len(table)), dtype=bool), Counter[str]()
    tables = [with_fraction(table, one.least) for one in ranges]
    for rule in rules:
        each = tables if COLUMN in rule.columns else tables[:1]
        broken = np.array([rule.broken(on.job, one) for one in each])
        if broken.any():
            before = legal.any(axis=0)
            legal &= ~broken
            lost[rule.name] += int((before & ~legal.any(axis=0)).sum())
    return legal, +lost


def least_offload(
    memory: MemoryTable,
    memory_bytes: float | ClassRows,
    ranges: Sequence[Fractions],
    legal: BoolColumn,
) -> FloatColumn:
    """Least fraction with which layouts fit that offload nothing here; negative: none does.

    More takes more of the host, so where the least is too much for a node no other fits.

    `legal` tells which row may have fractions of which range; shape (range, row).
    """
    needed = memory.offload_needed(memory_bytes)
    chosen, away = np.full(len(needed), NO_ROOM), memory.off_device
    for one, may in zip(ranges, legal, strict=True):
        first = one.at_least(needed)
        for _ in range(2):  # rounding may ask for one step more
            used = memory.used_with_offload(np.minimum(first, 1.0))
            fits = (used <= memory_bytes).all(axis=0)
            first = np.where(fits, first, one.at_least(first + one.step / 2))
        found, share = (chosen < 0) & may & fits & np.isfinite(first), np.minimum(first, 1.0)
        space = np.where(away.drive_used(share) <= away.drive_limit, first, DRIVES_FULL)
        host = np.where(away.host_used(share) <= away.host_limit, space, HOST_FULL)
        chosen = np.where(found, host, chosen)
    return chosen


def with_least_of(
    table: LayoutTable, memory: MemoryTable, memory_bytes: float | ClassRows, one: Fractions
) -> LayoutTable:
    """All rows with the least fraction of a range with which each fits, or its largest.

    `memory` is theirs where nothing is offloaded.
    """
    least = least_offload(memory, memory_bytes, (one,), np.ones((1, len(table)), dtype=bool))
    return with_fraction(table, np.where(least < 0, one.most, least))


def largest_fraction(
    on: Context, rules: Sequence[Rule], table: LayoutTable, ranges: Sequence[Fractions]
) -> FloatColumn:
    """Largest fraction that rows may offload by some rules; 0 where none is legal."""
    most, (legal, _) = np.zeros(len(table)), legal_offloads(on, rules, table, ranges)
    for one, may in zip(ranges, legal, strict=True):
        most = np.where(may, one.most, most)
    return most
