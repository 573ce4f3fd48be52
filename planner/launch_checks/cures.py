"""The smallest sets of edits that make a layout run: of its axes, and of settings of its runtime.

An edit is an axis or an option with another value; what a runtime takes from others is none. A move
is the edits that mean nothing alone, such as full recomputation with its method. Sets of moves are
tried by their number of edits, the smallest first, until some run: all of them, or where they are
more than `MOST_SETS` those that grow from the sets which come nearest to fitting.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from trainplan.costmodel.base import PlanError
from trainplan.costmodel.columns import BoolColumn, FloatColumn, IntColumn, IntMatrix, distinct
from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import SCHEDULE_NAMES, Layout
from trainplan.costmodel.layouts import FIELDS, LayoutTable, legal_rows
from trainplan.costmodel.step import explicit, price
from trainplan.planner.cases import Case, with_usual_chance
from trainplan.planner.comparisons import single_changes
from trainplan.planner.launch_checks.changed import STATES, Priced, Run, with_options
from trainplan.planner.policies import fractions_of, with_fraction, with_least_of
from trainplan.planner.runtimes import EXPORTERS, launch_rules, why_unable
from trainplan.planner.space import rules_of_job

MOST_EDITS = 8
"""Of a set that is looked for."""
MOST_SETS = 100_000
"""Of one number of edits that are priced. Source: assumed; about a second."""
MOST_CURES = 2
"""Of one number of edits that are listed."""
WORTH_MORE = 0.05
"""A share of a step that one edit more has to save."""
MOST_SIMULATED, MOST_ALIKE, MOST_WRITTEN = 24, 3, 400
"""Sets whose schedules are run, of those that change the same, and that are written for it."""
KERNELS = {"cross_entropy": ("jit", "fused"), "attention": (), "liger": ("0.6",)}
"""Options that no search varies and whose kernels differ in memory, with values that take less."""
FORMATS = ("gradient_dtype", "moment_dtype", STATES)
"""Options that change what is computed."""
NO_CURE = f"No set of up to {MOST_EDITS} edits that was tried makes it run."
OFFLOADED = "offload_optimizer"
PLAIN = tuple(map(SCHEDULE_NAMES.index, ("1f1b", "interleaved")))
"""Schedules that a runtime takes from the number of virtual stages."""


class Cures(NamedTuple):
    """Of the fewest edits, the fastest first, then one with an edit more that is much faster."""

    found: tuple[Priced, ...]
    cut_off: str
    """Which sets were not all tried; empty: no smaller one runs."""


@dataclass(frozen=True, slots=True)
class _Move:
    """Codes of columns, or an option with its value and the columns that come with it."""

    columns: Mapping[str, object]
    options: Mapping[str, object]

    @property
    def edits(self) -> tuple[str, ...]:
        options = tuple(f"options.{name}" for name in self.options)
        return options or tuple(FIELDS[name].path for name in self.columns)


@dataclass(frozen=True, slots=True)
class _Level:
    """Sets of one number of edits, those that come nearest to fitting first."""

    sets: IntMatrix
    """Places of moves, each row in order; -1 where there is none."""
    table: LayoutTable
    fits: BoolColumn
    seconds: FloatColumn


def cures(case: Case, layout: Layout) -> Cures:
    """The fewest edits with which a layout runs: it is legal, fits, and its exporter writes it."""
    search, cut_off = _Search(with_usual_chance(case), layout), ""
    levels = [search.priced(np.full((1, 1), -1))]
    found: tuple[Priced, ...] = ()
    for edits in range(1, MOST_EDITS + 1):
        sets, whole = search.grown(levels)
        if not whole and not cut_off and not found:
            cut_off = f"Not all sets of {edits} edits and more were tried: fewer may do."
        levels.append(search.priced(sets))
        best = search.best(levels[-1])
        if found:
            step = min(one.step_time_s for one in found) * (1 - WORTH_MORE)
            faster = (one for one in best if one.step_time_s < step)
            return Cures((*found, *islice(faster, 1)), cut_off)
        found = best
    return Cures(found, cut_off if found else NO_CURE)


@dataclass(frozen=True)
class _Search:
    case: Case
    layout: Layout

    @cached_property
    def own(self) -> dict[str, object]:
        """Codes of the columns of the layout."""
        return {name: field.code(self.layout) for name, field in FIELDS.items()}

    @cached_property
    def moves(self) -> Sequence[_Move]:
        found = dict.fromkeys(self._columns())
        axes = [_Move(dict(columns), {}) for columns in found if columns]
        fused = self.case.context.traits.tiling.fused_loss
        chosen = (
            _Move(
                {"tiled_loss": value is not None} if fused and name == "liger" else {},
                {name: value},
            )
            for name, value in self._options()
        )
        return (*axes, *chosen)

    @cached_property
    def bits(self) -> IntMatrix:
        """Of each move what it changes; the last place, which is -1, stands for none."""
        names = list(dict.fromkeys(name for one in self.moves for name in one.edits))
        each = [sum(1 << names.index(name) for name in one.edits) for one in self.moves]
        return np.array([*each, 0], dtype=np.int64)

    @cached_property
    def exports(self) -> bool:
        """Has the layout as it is launch files?"""
        return _is_written(self.case.job, self.layout)

    def _columns(self) -> Iterator[tuple[tuple[str, object], ...]]:
        """What the layouts one change away have."""
        for one in single_changes(self.case.context, self.layout):
            codes = {name: field.code(one) for name, field in FIELDS.items() if name != "dp"}
            new = {name: code for name, code in codes.items() if code != self.own[name]}
            if len(new) > 1:  # it follows from the others
                new.pop("schedule", None)
            yield tuple(new.items())
        if self.case.context.traits.offloading.optimizer_step is not None:
            yield ((OFFLOADED, 1.0),)

    def _options(self) -> Iterator[tuple[str, object]]:
        """Values of options with which the job has a price, and launch files."""
        job, settings = self.case.job, self.case.context.traits.settings
        values: dict[str, dict[object, None]] = {}
        for one in settings:
            if one.refused(with_options(job, {one.name: one.value})) is None:
                values.setdefault(one.name, {None: None})[one.value] = None
        for name, kernels in KERNELS.items():
            values.setdefault(name, {None: None}).update(dict.fromkeys(kernels))
        for name, some in values.items():
            for value in some:
                other = value != getattr(job.options, name)
                if other and why_unable(with_options(job, {name: value})) is None:
                    yield name, value
        narrow = "bf16" in self.case.context.traits.state_precisions
        if narrow and why_unable(with_options(job, {STATES: "bf16"})) is None:
            yield STATES, "bf16"

    def grown(self, levels: Sequence[_Level]) -> tuple[IntMatrix, bool]:
        """Sets of one edit more than the last of some levels; are these all?"""
        weights = np.array([len(one.edits) for one in self.moves], dtype=np.int64)
        found, whole = [np.empty((0, len(levels)), dtype=np.int64)], True
        for weight in range(1, len(levels) + 1):
            more = np.flatnonzero(weights == weight)
            few = levels[-weight].sets[: MOST_SETS // max(1, len(more))]
            whole = whole and (len(few) == len(levels[-weight].sets) or not len(more))
            held = np.bitwise_or.reduce(self.bits[few], axis=1)
            rows, places = np.nonzero((held[:, None] & self.bits[more]) == 0)
            both = np.full((len(rows), len(levels)), -1, dtype=np.int64)
            both[:, : few.shape[1]] = few[rows]
            both[:, -1] = more[places]
            found.append(np.sort(both, axis=1))
        sets = np.concatenate(found)
        rows, _ = distinct(*(sets + 1).T)
        return sets[rows], whole

    def priced(self, sets: IntMatrix) -> _Level:
        """Sets with their layouts; those that are illegal take infinite memory."""
        table, possible = self._table(sets)
        used, seconds = np.full((2, len(sets)), np.inf)
        fits, share = np.zeros(len(sets), dtype=bool), table.offload_optimizer.copy()
        settings = np.where([*(bool(one.options) for one in self.moves), False], 1, 0)[sets]
        held = np.where(settings, sets, -1)
        some, group = distinct(*(held + 1).T)
        for number, places in enumerate(held[some]):
            case = replace(self.case, job=self._job(places))
            rows = np.flatnonzero(possible & (group == number))
            try:
                on = case.context
            except PlanError:
                continue
            rows = rows[self._legal(case.job, table.take(rows))]
            if not len(rows):
                continue
            whole = table.take(rows)
            least = whole.replaced(offload_optimizer=_least_offload(case, whole))
            apt = self._legal(case.job, least)
            share[rows] = np.where(apt, least.offload_optimizer, whole.offload_optimizer)
            prices = price(on.with_table(whole.replaced(offload_optimizer=share[rows])))
            used[rows], seconds[rows] = prices.memory.used, prices.step_seconds
            fits[rows] = prices.memory.fits(_limit(case))
        order = np.argsort(used, kind="stable")
        done = table.replaced(offload_optimizer=share).take(order)
        return _Level(sets[order], done, fits[order], seconds[order])

    def _legal(self, job: Job, table: LayoutTable) -> BoolColumn:
        """Rows that run, and have launch files where the layout as it is has."""
        legal = legal_rows(job, rules_of_job(job), table)
        if self.exports:  # its rules take legal layouts
            legal[legal] = legal_rows(job, launch_rules(job), table.take(legal))
        return legal

    def _table(self, sets: IntMatrix) -> tuple[LayoutTable, BoolColumn]:
        """The layouts of some sets, and which of them fill the GPUs."""
        columns: dict[str, NDArray[Any]] = {}
        for name, field in FIELDS.items():
            columns[name] = np.empty(len(sets), field.codec.dtype)
            columns[name].fill(self.own[name])
        width = sets.shape[1]  # of which a move fills one place at most
        for place, move in enumerate(self.moves):
            rows = np.flatnonzero(sets == place) // width
            for name, code in move.columns.items():
                columns[name][rows] = code
        interleaved = np.where(columns["vpp"] > 1, PLAIN[1], PLAIN[0])
        plain = np.isin(columns["schedule"], PLAIN)
        columns["schedule"] = np.where(plain, interleaved, columns["schedule"])
        each = columns["tp"] * columns["cp"] * columns["pp"]
        dp, rest = np.divmod(self.case.job.cluster.num_gpus, each)
        columns["dp"] = np.maximum(dp, 1)
        return LayoutTable(**columns), (rest == 0) & (dp > 0) & (dp % columns["dp_replicate"] == 0)

    def best(self, level: _Level) -> tuple[Priced, ...]:
        """The fastest that run, each of other edits; those that keep number formats first.

        One that stores states in bf16 is listed beside them.
        """
        fits, seconds = np.flatnonzero(level.fits).tolist(), level.seconds.tolist()
        rows = sorted(fits, key=lambda row: self._order(level.sets[row], seconds[row]))
        alike, found = Counter[tuple[str, ...]](), []
        for row in rows[:MOST_WRITTEN]:
            edits = tuple(sorted(name for one in self._of(level.sets[row]) for name in one.edits))
            if alike[edits] < MOST_ALIKE and (one := self._run(level, row, edits)):
                alike[edits] += 1
                found.append((self._order(level.sets[row], one.step_time_s), one))
            if len(found) == MOST_SIMULATED:
                break
        first: dict[tuple[str, ...], Priced] = {}
        for _, one in sorted(found, key=lambda pair: pair[0]):
            first.setdefault(one.units, one)
        listed = tuple(first.values())
        narrow = (one for one in listed[MOST_CURES:] if f"options.{STATES}" in one.units)
        return (*listed[:MOST_CURES], *islice(narrow, 1))

    def _order(self, places: IntColumn, seconds: float) -> tuple[int, float]:
        names = (name for one in self._of(places) for name in one.options)
        return sum(name in FORMATS for name in names), seconds

    def _run(self, level: _Level, row: int, edits: tuple[str, ...]) -> Priced | None:
        """The layout of a row on the clock; null where it does not run after all."""
        case = replace(self.case, job=self._job(level.sets[row]))
        try:
            layout = level.table.row(row)
        except ValidationError:  # such values never go together, whatever the job
            return None
        if self.exports and not _is_written(case.job, layout):
            return None
        on = case.context.with_table(LayoutTable.of([layout]))
        (priced,) = explicit(on, memory_margin=case.margin)
        used = priced.memory.peak_reserved_bytes
        run = Run(case.job, layout)
        return Priced(edits, run, priced.step_time_s, used) if priced.memory.fits else None

    def _of(self, places: IntColumn) -> list[_Move]:
        return [self.moves[place] for place in places if place >= 0]

    def _job(self, places: IntColumn) -> Job:
        options = [option for one in self._of(places) for option in one.options.items()]
        return with_options(self.case.job, dict(options))


def _limit(case: Case) -> float:
    return case.context.machine.memory_bytes * (1 - case.margin)


def _least_offload(case: Case, table: LayoutTable) -> FloatColumn:
    """Of rows that offload the whole optimizer the least share with which they fit."""
    share, rows = table.offload_optimizer.copy(), np.flatnonzero(table.offload_optimizer == 1)
    if len(rows):
        none = with_fraction(table.take(rows), 0.0)
        memory = price(case.context.with_table(none)).memory
        most = fractions_of(case.context.traits, ())[-1]
        share[rows] = with_least_of(none, memory, _limit(case), most).offload_optimizer
    return share


def _is_written(job: Job, layout: Layout) -> bool:
    """Has the layout launch files, where its runtime has any?"""
    try:
        return job.runtime not in EXPORTERS or bool(EXPORTERS[job.runtime](job, layout))
    except PlanError:
        return False
