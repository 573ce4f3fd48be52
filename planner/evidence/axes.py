"""What is compared of runs and layouts: sizes, and words for what has no size."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import combinations
from math import inf, prod
from typing import Self

import numpy as np

from trainplan.costmodel import catalog
from trainplan.costmodel.base import CatalogError
from trainplan.costmodel.candidates import Context
from trainplan.costmodel.columns import BoolColumn, FloatColumn
from trainplan.costmodel.documents import Shape
from trainplan.costmodel.layout import (
    OFFLOAD_MODULES,
    RECOMPUTE_MODULES,
    SCHEDULE_NAMES,
    Layout,
)
from trainplan.costmodel.layouts import FULL, LayoutTable, module_bits
from trainplan.planner.evidence.distance import SAME_WIDTH
from trainplan.planner.evidence.shape import STATES, Setup, settings_of, shape_of

ALIKE = 1.01
"""Up to this factor sizes of jobs are equal. Source: assumed; records of one model differ by less,
in padded vocabularies and extra prediction layers."""
ACROSS = "expert parallelism across NVLink domains"
"""A word of `EXPERT_DOMAINS`."""
PARTS = {"tower": "a tower", "adapted": "weights that are not trained"}
"""Kinds of a model that are no kind of layer."""
Where = BoolColumn | bool
Marked = Iterator[tuple[str, Callable[[], Where]]]
"""Words with what finds the rows that have them."""


@dataclass(frozen=True)
class Rows:
    """Layouts of a job, to be compared with what was measured."""

    on: Setup | Context
    table: LayoutTable

    @cached_property
    def job(self) -> Shape:
        """What the job states; its layout is no matter."""
        return shape_of(self.on, Layout())

    @cached_property
    def settings(self) -> Sequence[tuple[str, Where]]:
        """Those of the runtime that are on, with the rows that notice them."""
        every = settings_of(self.on.traits, self.table)
        return [(word, where) for word, where in every if _is_on(word)]


@dataclass(frozen=True, slots=True)
class Size:
    """A number of which some runs have a largest value."""

    name: str
    columns: tuple[str, ...]
    """Fields of `Shape` and of `LayoutTable` whose product it is; of a size that the job states,
    of `Shape` alone."""
    stated: bool = False
    largest: float = inf

    def of_runs(self, shapes: Sequence[Shape]) -> Self:
        """The limit that some runs set."""
        return replace(self, largest=max(float(self._number(shape)) for shape in shapes))

    def within(self, others: Sequence[Self]) -> Self:
        """What no limit of some refuses."""
        return min(others, key=lambda one: one.largest)

    def broken(self, rows: Rows) -> BoolColumn:
        """Rows above the largest."""
        above = self._of(rows) > self.largest * (ALIKE if self.stated else 1.0)
        return np.broadcast_to(np.asarray(above), len(rows.table))

    def here(self, rows: Rows) -> tuple[float, str]:
        """The value of the first row, and how it leaves the runs."""
        value = float(np.broadcast_to(self._of(rows), len(rows.table))[0])
        return value, f"{self.name} > {_short(self.largest)} (here {_short(value)})"

    def _of(self, rows: Rows) -> FloatColumn | float:
        return self._number(rows.job if self.stated else rows.table)

    def _number(self, one: Shape | LayoutTable) -> FloatColumn | float:
        number: FloatColumn | float = prod(getattr(one, name) for name in self.columns)
        return number


@dataclass(frozen=True, slots=True)
class Words:
    """What a run has or has not."""

    name: str
    columns: tuple[str, ...]
    """Of `LayoutTable`; none: the job states it."""
    of: Callable[[Shape], Sequence[str]]
    marked: Callable[[Rows], Marked]
    """The same of layouts."""
    known: frozenset[str] = frozenset()

    @property
    def stated(self) -> bool:
        """Is it the same for all layouts of a job?"""
        return not self.columns

    def of_runs(self, shapes: Sequence[Shape]) -> Self:
        """The limit that some runs set."""
        return replace(self, known=frozenset(word for one in shapes for word in self.of(one)))

    def within(self, others: Sequence[Self]) -> Self:
        """What no limit of some refuses."""
        return replace(self, known=frozenset.intersection(*(one.known for one in others)))

    def broken(self, rows: Rows) -> BoolColumn:
        """Rows with a word that is not known."""
        none = np.zeros(len(rows.table), bool)
        new = [none, *(none | (where() != 0) for _, where in self._new(rows))]
        return np.asarray(np.any(new, axis=0))

    def here(self, rows: Rows) -> tuple[str, str]:
        """Those of the first row, and how it leaves the runs."""
        new = ", ".join(word for word, where in self._new(rows) if np.ravel(where())[0])
        return new, new

    def _new(self, rows: Rows) -> Marked:
        return ((word, where) for word, where in self.marked(rows) if word not in self.known)


Axis = Size | Words


def _short(value: float) -> str:
    """A count, or a large one in billions."""
    return f"{value / 1e9:.4g}e9" if value >= 1e9 else f"{value:,.6g}"


def _job_words(name: str, of: Callable[[Shape], Sequence[str]]) -> Words:
    """What a job states."""
    return Words(name, (), of, lambda rows: _always(of(rows.job)))


def _always(words: Iterable[str]) -> Marked:
    """Words of every row."""
    return ((word, lambda: True) for word in words)


def _recomputed(rows: Rows) -> Marked:
    yield "recomputed full", partial(np.equal, rows.table.recompute, FULL)
    yield from _modules("recomputed", RECOMPUTE_MODULES, "recompute_modules", rows)


def _modules(verb: str, names: Sequence[str], column: str, rows: Rows) -> Marked:
    """Words for the bits of a column."""
    bits = getattr(rows.table, column)
    for name in names:
        yield f"{verb} {name}", partial(np.bitwise_and, bits, module_bits([name], names))


def _is_on(word: str) -> bool:
    """Is it no setting that is left off, which is what a runtime does by default?"""
    return not word.endswith(("=false", "=none"))


def _is_state(word: str) -> bool:
    return word.startswith(STATES)


def _settings(shape: Shape) -> Sequence[str]:
    """Those of the runtime that are on in a run."""
    return [word for word in shape.settings if _is_on(word) and not _is_state(word)]


def _noticed(rows: Rows) -> Marked:
    """Settings."""
    return ((word, partial(np.asarray, where)) for word, where in rows.settings)


def _together(pairs: Sequence[tuple[str, Where]]) -> Marked:
    """Settings two by two."""
    for (one, where), (other, there) in combinations(pairs, 2):
        yield f"{one} with {other}", partial(np.logical_and, where, there)


def _across(shape: Shape) -> Sequence[str]:
    """Of a published run: on NVLink domains as the catalog has them."""
    try:
        domain = min(catalog.gpu(name).nvlink_domain for name in shape.gpu.split())
    except CatalogError:
        return ()
    return (ACROSS,) if shape.ep > 1 and shape.ep * shape.etp > domain else ()


def _crossing(rows: Rows) -> Marked:
    table, groups = rows.table, rows.on.job.cluster.groups
    domain = min(one.domain_gpus(catalog.device(one)) for one in groups)
    yield ACROSS, partial(np.greater, np.where(table.ep > 1, table.ep * table.etp, 0), domain)


SETTINGS = Words("settings", ("tp", "ep"), _settings, _noticed)
TOGETHER = Words(
    "settings together",
    ("tp", "ep"),
    lambda shape: [word for word, _ in _together([(one, True) for one in _settings(shape)])],
    lambda rows: _together(rows.settings),
)
"""Of all runs alone: no run had both."""
EXPERT_DOMAINS = Words("ep domains", ("ep", "etp"), _across, _crossing)
AXES: Sequence[Axis] = (
    *(Size(name, (name,), stated=True) for name in ("num_gpus", "parameters", "seq_length")),
    *(Size(name, (name,)) for name in ("tp", "pp", "vpp")),
    Size("pp * vpp", ("pp", "vpp")),
    *(Size(name, (name,)) for name in ("cp", "dp", "ep", "etp", "dp_replicate")),
    Size("micro_batch_size", ("micro_batch_size",)),
    Size("offload", ("offload_optimizer",)),
    _job_words("model", lambda shape: [PARTS.get(kind, f"{kind} layers") for kind in shape.kind]),
    _job_words("precision", lambda shape: (SAME_WIDTH.get(shape.precision, shape.precision),)),
    _job_words("states", lambda shape: [word for word in shape.settings if _is_state(word)]),
    SETTINGS,
    EXPERT_DOMAINS,
    Words(
        "schedule",
        ("schedule",),
        lambda shape: (f"schedule {shape.schedule}",),
        lambda rows: (
            (f"schedule {name}", partial(np.equal, rows.table.schedule, code))
            for code, name in enumerate(SCHEDULE_NAMES)
        ),
    ),
    Words(
        "zero_stage",
        ("zero_stage",),
        lambda shape: (f"ZeRO-{shape.zero_stage}",),
        lambda rows: (
            (f"ZeRO-{stage}", partial(np.equal, rows.table.zero_stage, stage)) for stage in range(4)
        ),
    ),
    Words(
        "recompute",
        ("recompute", "recompute_modules"),
        lambda shape: [f"recomputed {module}" for module in shape.recompute],
        _recomputed,
    ),
    Words(
        "copies and groups",
        ("hpz", "shard"),
        lambda shape: (),
        lambda rows: (
            (f"{name}=on", partial(np.not_equal, getattr(rows.table, name), code))
            for name, code in (("hpz", 1), ("shard", 0))
        ),
    ),
    Words(
        "offload_modules",
        ("offload_modules",),
        lambda shape: [f"offloaded {module}" for module in shape.offload_modules],
        lambda rows: _modules("offloaded", OFFLOAD_MODULES, "offload_modules", rows),
    ),
)
"""All that is compared; what has columns is chosen by a search."""
