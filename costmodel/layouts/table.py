"""Many layouts at once: one numpy column per field of `Layout`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from trainplan.costmodel.layouts.even_split import layers_per_stage
from trainplan.costmodel.spec.layout import (
    OFFLOAD_MODULES,
    RECOMPUTE,
    RECOMPUTE_METHODS,
    RECOMPUTE_MODULES,
    SCHEDULE_NAMES,
    Layout,
    OffloadSpec,
    StageSpec,
)

IntColumn = NDArray[np.int64]
FloatColumn = NDArray[np.float64]
BoolColumn = NDArray[np.bool_]
ObjectColumn = NDArray[np.object_]

NONE, SELECTIVE, FULL = range(3)
"""Codes of the column `recompute`."""
UNIFORM, BLOCK = 1, 2
"""Codes of the column `recompute_method`; 0 is null."""


@dataclass(frozen=True, slots=True)
class LayoutTable:
    """Candidates as columns. Row `i` of every column is candidate `i`.

    Names are coded: `schedule`, `recompute` and `recompute_method` by their place in the tuples of
    `costmodel.spec.layout`, `recompute_modules` and `offload_modules` as bit sets over
    `RECOMPUTE_MODULES` and `OFFLOAD_MODULES`.
    """

    tp: IntColumn
    pp: IntColumn
    vpp: IntColumn
    cp: IntColumn
    dp: IntColumn
    ep: IntColumn
    etp: IntColumn
    dp_replicate: IntColumn
    zero_stage: IntColumn
    sequence_parallel: IntColumn
    micro_batch_size: IntColumn
    schedule: IntColumn
    recompute: IntColumn
    recompute_modules: IntColumn
    recompute_method: IntColumn
    recompute_num_layers: IntColumn
    offload_optimizer: FloatColumn
    offload_modules: IntColumn
    stages: ObjectColumn
    """`Layout.stages`: tuples of `StageSpec`, or None for the even split."""

    def __len__(self) -> int:
        return len(self.tp)

    @classmethod
    def of(cls, layouts: Iterable[Layout]) -> LayoutTable:
        """Transpose layouts into columns."""
        layouts = list(layouts)
        coded = [_coded(layout) for layout in layouts]
        columns = {name: np.array([row[name] for row in coded]) for name in coded[0]}
        return cls(**columns, stages=objects(layout.stages for layout in layouts))

    @classmethod
    def of_columns(cls, size: int, columns: Mapping[str, NDArray[np.generic]]) -> LayoutTable:
        """Table of `size` rows from some columns; the others hold the defaults of `Layout`."""
        defaults = _coded(Layout())
        return cls(
            **{
                name: np.asarray(columns[name]) if name in columns else np.full(size, value)
                for name, value in defaults.items()
            },
            stages=np.full(size, None, dtype=object),
        )

    def take(self, rows: NDArray[np.generic]) -> LayoutTable:
        """The rows picked by an index or a mask."""
        rows = np.flatnonzero(rows) if rows.dtype == bool else rows  # counted once for all columns
        return LayoutTable(**{f.name: getattr(self, f.name)[rows] for f in fields(self)})

    def pieces(self, most: int) -> list[LayoutTable]:
        """The rows in order, so many at most in each table."""
        starts = range(0, len(self), most)
        return [self.take(np.arange(s, min(s + most, len(self)))) for s in starts]

    def replaced(self, **columns: IntColumn | FloatColumn | ObjectColumn) -> LayoutTable:
        """The same rows with some columns replaced."""
        same = {f.name: getattr(self, f.name) for f in fields(self)}
        return LayoutTable(**{**same, **columns})

    @staticmethod
    def concat(tables: Iterable[LayoutTable]) -> LayoutTable:
        """All rows of all tables in order."""
        parts = list(tables)
        return LayoutTable(
            **{
                f.name: np.concatenate([getattr(part, f.name) for part in parts])
                for f in fields(LayoutTable)
            }
        )

    def row(self, index: int) -> Layout:
        """Read one candidate back."""
        value = {name: getattr(self, name)[index].item() for name in _NUMBERS}
        num_layers = value["recompute_num_layers"]
        return Layout(
            **{name: value[name] for name in _PLAIN},
            sequence_parallel=bool(value["sequence_parallel"]),
            schedule=SCHEDULE_NAMES[value["schedule"]],
            recompute=RECOMPUTE[value["recompute"]],
            recompute_modules=modules_of(value["recompute_modules"]),
            recompute_method=RECOMPUTE_METHODS[value["recompute_method"]],
            recompute_num_layers=num_layers or None,
            offload=OffloadSpec(optimizer=value["offload_optimizer"]),
            offload_modules=modules_of(value["offload_modules"], OFFLOAD_MODULES),
            stages=self.stages[index],
        )


_CODED = (
    "sequence_parallel",
    "schedule",
    "recompute",
    "recompute_modules",
    "recompute_method",
    "recompute_num_layers",
    "offload_optimizer",
    "offload_modules",
)
_NUMBERS = tuple(f.name for f in fields(LayoutTable) if f.name != "stages")
_PLAIN = tuple(name for name in _NUMBERS if name not in _CODED)
"""Columns that hold a field of `Layout` as it is."""


def _coded(layout: Layout) -> dict[str, int | float]:
    return {
        **{name: int(getattr(layout, name)) for name in _PLAIN},
        "sequence_parallel": int(layout.sequence_parallel),
        "schedule": SCHEDULE_NAMES.index(layout.schedule),
        "recompute": RECOMPUTE.index(layout.recompute),
        "recompute_modules": module_bits(layout.recompute_modules),
        "recompute_method": RECOMPUTE_METHODS.index(layout.recompute_method),
        "recompute_num_layers": layout.recompute_num_layers or 0,
        "offload_optimizer": layout.offload.optimizer,
        "offload_modules": module_bits(layout.offload_modules, OFFLOAD_MODULES),
    }


def objects(values: Iterable[tuple[StageSpec, ...] | None]) -> ObjectColumn:
    """A column of tuples or None."""
    listed = list(values)
    column = np.empty(len(listed), dtype=object)
    column[:] = listed
    return column


def stage_codes(table: LayoutTable) -> tuple[IntColumn, list[tuple[StageSpec, ...] | None]]:
    """A number for every distinct `stages` of a table, and what it stands for; 0 for None."""
    if (table.stages == None).all():  # noqa: E711 - elementwise
        return np.zeros(len(table), dtype=np.int64), [None]
    numbers: dict[tuple[StageSpec, ...] | None, int] = {None: 0}
    every = table.stages.tolist()
    once = {id(stages): stages for stages in every}  # to hash a split takes long
    code = {one: numbers.setdefault(stages, len(numbers)) for one, stages in once.items()}
    return np.array([code[id(stages)] for stages in every], dtype=np.int64), list(numbers)


def evenly(table: LayoutTable) -> BoolColumn:
    """Which rows leave the split of layers to the runtime, wherever its stages live?"""

    def even(stages: tuple[StageSpec, ...] | None) -> bool:
        counts = tuple(stage.layers for stage in stages or ())
        own = any(stage.recompute_num_layers is not None for stage in stages or ())
        named = any(stage.group for stage in stages or ())
        return not own and named and counts == layers_per_stage(sum(counts), len(counts))

    codes, splits = stage_codes(table)
    return np.array([stages is None or even(stages) for stages in splits])[codes]


def module_bits(modules: Iterable[str], names: Sequence[str] = RECOMPUTE_MODULES) -> int:
    """Bit set of modules."""
    return sum(1 << names.index(module) for module in set(modules))


def modules_of(bits: int, names: Sequence[str] = RECOMPUTE_MODULES) -> tuple[str, ...]:
    """Modules of a bit set."""
    return tuple(m for i, m in enumerate(names) if bits >> i & 1)


def recomputes(table: LayoutTable, module: str) -> BoolColumn:
    """Does selective recomputation drop this module?"""
    bit = 1 << RECOMPUTE_MODULES.index(module)
    return np.asarray((table.recompute_modules & bit) != 0)


def offloads(table: LayoutTable, *modules: str) -> BoolColumn:
    """Do activations of any of these modules wait on the host?"""
    return np.asarray((table.offload_modules & module_bits(modules, OFFLOAD_MODULES)) != 0)


def distinct(*columns: IntColumn) -> tuple[IntColumn, IntColumn]:
    """One row of every distinct combination of values, and for each row its combination.

    A formula of few columns is priced once for each combination and gathered by row. Values are
    counts or codes, neither negative nor large: looking them up is faster than sorting.
    """
    code, size = np.zeros(len(columns[0]), dtype=np.int64), 1
    for column in columns:
        place, count = _places(column)
        code, size = _places(code * count + place)
    row = np.zeros(size, dtype=np.int64)
    row[code] = np.arange(len(code))
    return row, code


def _places(values: IntColumn) -> tuple[IntColumn, int]:
    """Place of each value among the distinct values in ascending order, and their number."""
    present = np.zeros(int(values.max(initial=-1)) + 1, dtype=bool)
    present[values] = True
    place = np.cumsum(present) - 1
    return place[values], int(present.sum())
