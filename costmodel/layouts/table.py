"""Many layouts at once: one numpy column per field of `Layout`; how layers spread by themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from operator import attrgetter, itemgetter
from types import MappingProxyType
from typing import Annotated, Any, get_type_hints

import numpy as np
from numpy.typing import NDArray

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.base import SpecError
from trainplan.costmodel.columns import BoolColumn, Column, FloatColumn, IntColumn, ObjectColumn
from trainplan.costmodel.layout import (
    OFFLOAD_MODULES,
    PARAMETER_TIERS,
    RECOMPUTE,
    RECOMPUTE_METHODS,
    RECOMPUTE_MODULES,
    SCHEDULE_NAMES,
    TIERS,
    Codec,
    Count,
    Flag,
    Layout,
    Modules,
    Names,
    Shards,
    Share,
    Stages,
    StageSpec,
    bits,
)

EMPTY_ENDS = 2
"""Stages that may hold no layer: the first runs the embedding, the last head and loss.

Source: Llama 3, arXiv:2407.21783, section 3.3.2 (balancing the pipeline of 126 layers).
"""


def layers_per_stage(num_layers: int, num_stages: int) -> tuple[int, ...]:
    """Decoder layers of every virtual stage, in pipeline order; they sum to `num_layers`.

    Every stage gets `num_layers // num_stages`. What is left goes one layer each to the stages
    between first and last, from the front; then to the first; the last never gets one, because
    the remainder is smaller than the number of stages. With one or two stages more than layers the
    last, then the first stage holds no layer: only the head and the embedding.

    Source: derived. The first stage also runs the embedding and the last one the output
    projection and the loss, so an extra layer there lengthens the slowest stage sooner than
    between them; the projection is the heavier of the two, hence the order first, last.

    Raises:
        SpecError: A stage between the first and the last would be empty, or there is no stage.
    """
    most = num_layers + EMPTY_ENDS
    if not 1 <= num_stages <= most:
        raise SpecError(
            f"{num_layers} layers cannot fill {num_stages} pipeline stages; use 1 to {most}"
        )
    base, extras = divmod(num_layers, num_stages)
    inner = range(1, num_stages - 1)
    order = (*inner, 0, num_stages - 1)
    longer = frozenset(order[:extras])
    return tuple(base + (stage in longer) for stage in range(num_stages))


def stage_layers(model: ModelSpec, layout: Layout) -> tuple[int, ...]:
    """Layers of every virtual stage: as the layout states them, else `layers_per_stage`."""
    if layout.stages is None:
        return layers_per_stage(model.num_hidden_layers, layout.pp * layout.vpp)
    return tuple(stage.layers for stage in layout.stages)


NONE, SELECTIVE, FULL = range(3)
"""Codes of the column `recompute`."""
UNIFORM, BLOCK = 1, 2
"""Codes of the column `recompute_method`; 0 is null."""
ON_HOST, ON_DRIVE = 1, 2
"""Codes of the column `offload_parameters`; 0 is on the GPU."""


@dataclass(frozen=True, slots=True)
class LayoutTable:
    """Candidates as columns. Row `i` of every column is candidate `i`.

    Each column says how it codes its field of `Layout`, which has its name; `offload_optimizer` is
    `offload.optimizer`. What else a choice is: its axis, in `costmodel.axes`.
    """

    tp: Annotated[IntColumn, Count()]
    pp: Annotated[IntColumn, Count()]
    vpp: Annotated[IntColumn, Count()]
    cp: Annotated[IntColumn, Count()]
    dp: Annotated[IntColumn, Count()]
    ep: Annotated[IntColumn, Count()]
    etp: Annotated[IntColumn, Count()]
    dp_replicate: Annotated[IntColumn, Count(by_request=True)]
    zero_stage: Annotated[IntColumn, Count(least=0)]
    sequence_parallel: Annotated[IntColumn, Flag()]
    micro_batch_size: Annotated[IntColumn, Count()]
    schedule: Annotated[IntColumn, Names(SCHEDULE_NAMES)]
    recompute: Annotated[IntColumn, Names(RECOMPUTE)]
    recompute_modules: Annotated[IntColumn, Modules(RECOMPUTE_MODULES)]
    recompute_method: Annotated[IntColumn, Names(RECOMPUTE_METHODS)]
    recompute_num_layers: Annotated[IntColumn, Count(absent=True)]
    offload_optimizer: Annotated[FloatColumn, Share("the optimizer kept in host memory")]
    offload_modules: Annotated[IntColumn, Modules(OFFLOAD_MODULES, by_request=True)]
    offload_tier: Annotated[IntColumn, Names(TIERS)]
    offload_parameters: Annotated[IntColumn, Names(PARAMETER_TIERS)]
    offload_checkpoints: Annotated[FloatColumn, Share("kept activations off the GPU")]
    offload_stride: Annotated[IntColumn, Count(least=0)]
    stages: Annotated[ObjectColumn, Stages()]
    tiled_loss: Annotated[IntColumn, Flag()]
    tiled_mlp: Annotated[IntColumn, Flag()]
    cp_heads: Annotated[IntColumn, Count()]
    gtp: Annotated[IntColumn, Count(by_request=True)]
    egtp: Annotated[IntColumn, Count(by_request=True)]
    replicas_share_optimizer: Annotated[IntColumn, Flag()]
    hpz: Annotated[IntColumn, Count()]
    shard: Annotated[IntColumn, Shards()]

    def __len__(self) -> int:
        return len(self.tp)

    @classmethod
    def of(cls, layouts: Iterable[Layout]) -> LayoutTable:
        """Transpose layouts into columns."""
        rows = list(layouts)
        if len(rows) == 1:
            return cls(*(_single(f.codec.dtype, f.code(rows[0])) for f in FIELDS.values()))
        return cls(
            **{
                name: np.fromiter((f.code(row) for row in rows), f.codec.dtype, len(rows))
                for name, f in FIELDS.items()
            }
        )

    @classmethod
    def of_columns(cls, size: int, columns: Mapping[str, NDArray[np.generic]]) -> LayoutTable:
        """Table of `size` rows from some columns; the others hold the defaults of `Layout`."""
        usual = Layout()
        return cls(
            **{
                name: np.asarray(columns[name])
                if name in columns
                else np.full(size, f.code(usual), f.codec.dtype)
                for name, f in FIELDS.items()
            }
        )

    def take(self, rows: NDArray[np.generic]) -> LayoutTable:
        """The rows picked by an index or a mask."""
        if rows.dtype == bool:
            if rows.all():
                return self
            rows = np.flatnonzero(rows)  # counted once for all columns
        return LayoutTable(*map(itemgetter(rows), COLUMNS(self)))

    def batches(self, most: int) -> list[LayoutTable]:
        """The rows in order, so many at most in each table."""
        starts = range(0, len(self), most)
        return [self.take(np.arange(s, min(s + most, len(self)))) for s in starts]

    def replaced(self, **columns: Column) -> LayoutTable:
        """The same rows with some columns replaced."""
        same = dict(zip(FIELDS, COLUMNS(self), strict=True))
        return LayoutTable(**{**same, **columns})

    @staticmethod
    def concat(tables: Iterable[LayoutTable]) -> LayoutTable:
        """All rows of all tables in order."""
        parts = list(tables)
        if len(parts) == 1:
            return parts[0]
        return LayoutTable(*map(np.concatenate, zip(*map(COLUMNS, parts), strict=True)))

    def row(self, index: int) -> Layout:
        """Read one candidate back."""
        values: dict[str, object] = {}
        for name, field in FIELDS.items():
            place(values, field.path, field.codec.value(getattr(self, name).item(index)))
        return Layout.model_validate(values)


@dataclass(frozen=True, slots=True)
class LayoutField:
    """A field of `Layout` that a column holds."""

    path: str
    """Its name; `offload.optimizer` is a field of a field."""
    codec: Codec

    def code(self, layout: Layout) -> object:
        """What the column holds for a layout."""
        return self.codec.code(_reader(self.path)(layout))


_reader = cache(attrgetter)


@lru_cache(maxsize=4096)
def _single(dtype: type, value: object) -> NDArray[Any]:
    """A column of one row; tables share it, and nobody writes to it."""
    column: NDArray[Any] = np.empty(1, dtype)
    column[0] = value
    column.flags.writeable = False
    return column


def _path(column: str) -> str:
    part, _, inner = column.partition("_")
    inside = column not in Layout.model_fields and part in Layout.model_fields
    return f"{part}.{inner}" if inside else column


def _fields() -> Mapping[str, LayoutField]:
    hints = get_type_hints(LayoutTable, include_extras=True)
    return {name: LayoutField(_path(name), hint.__metadata__[0]) for name, hint in hints.items()}


FIELDS = MappingProxyType(_fields())
"""Field of `Layout` of every column."""
COLUMNS: Callable[[LayoutTable], tuple[Any, ...]] = attrgetter(*FIELDS)
"""All columns of a table in their order."""


def place(values: dict[str, object], path: str, value: object) -> None:
    """Write the value of a field, or of a field of a field, where `Layout` takes it."""
    name, dot, inner = path.partition(".")
    if not dot:
        values[name] = value
        return
    alongside = values.setdefault(name, {})
    assert isinstance(alongside, dict)
    alongside[inner] = value


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
    return bits(modules, names)


def recomputes(table: LayoutTable, module: str) -> BoolColumn:
    """Does selective recomputation drop this module?"""
    bit = 1 << RECOMPUTE_MODULES.index(module)
    return np.asarray((table.recompute_modules & bit) != 0)


def offloads(table: LayoutTable, *modules: str) -> BoolColumn:
    """Do activations of any of these modules wait on the host?"""
    return np.asarray((table.offload_modules & module_bits(modules, OFFLOAD_MODULES)) != 0)


def moves_states(table: LayoutTable) -> BoolColumn:
    """Rows that keep states or what passes keep off the GPU, apart from `offload_modules`."""
    states = (table.offload_optimizer > 0) | (table.offload_parameters > 0)
    return np.asarray(states | (table.offload_checkpoints > 0))
