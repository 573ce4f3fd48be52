"""The grid of candidates: every value of every axis, as a tree of three levels.

    node      degrees, micro batch and what else `NODE_AXES` names
    skeleton  node with virtual stages, a schedule that runs them, and all other axes that are tried
    layout    skeleton with a policy: what layers recompute and what is offloaded

The columns of each level are those of the axes: one that is declared as tried is tried. Rules are
applied as soon as the columns they read are known; a row refused early counts for all layouts below
it. The search expands nodes and skeletons only where they can still win.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from math import prod
from typing import cast

import numpy as np

from trainplan.costmodel.axes import (
    AXES,
    AXIS_OF_COLUMN,
    NODE_AXES,
    STAGED_AXES,
    Axis,
    Held,
    Least,
    Tried,
    any_virtual_stages,
    degrees,
    micro_batch_sizes,
    offloads,
    recompute_subsets,
    virtual_stages,
)
from trainplan.costmodel.candidates import Context
from trainplan.costmodel.columns import BoolColumn, IntColumn, distinct
from trainplan.costmodel.job import Job
from trainplan.costmodel.layouts import LayoutTable, Rule
from trainplan.costmodel.runtimes import Offload, RuntimeTraits
from trainplan.planner.policies import POLICY_COLUMNS, policy_columns
from trainplan.planner.space.choices import Choice

VARIANT_DEGREES = ("tp", "cp", "pp", "ep", "etp")
"""Layouts equal in these are variants of one answer: the table of alternatives lists the best."""
NUM_DEGREES = 4
"""tp, cp, pp and dp, the first `NODE_AXES`: their product is the world size."""
NODE_COLUMNS = tuple(axis.column for axis in NODE_AXES)
STAGING_COLUMNS = tuple(axis.column for axis in STAGED_AXES)
SKELETON_COLUMNS = (*NODE_COLUMNS, *STAGING_COLUMNS)
MOVED_AXES = tuple(
    axis for axis in STAGED_AXES if isinstance(axis.search, Tried) and axis.search.costs_time
)
"""What lies where, but for how much of the optimizer; each is off in most runtimes."""


@dataclass(frozen=True)
class Space:
    """All layouts of a job, legal or not."""

    context: Context
    any_vpp: bool = False
    """Are numbers of virtual stages tried that do not divide a rank's layers?"""
    _stagings: dict[int, LayoutTable] = field(default_factory=dict, repr=False, compare=False)

    @property
    def job(self) -> Job:
        """The job."""
        return self.context.job

    @property
    def traits(self) -> RuntimeTraits:
        """The runtime the plan is for."""
        return self.context.traits

    def values(self, axis: Axis) -> tuple[object, ...]:
        """Those of an axis that are tried with any of the others."""
        return axis.tried(self.job, self.traits)

    @cached_property
    def micro_batches(self) -> tuple[int, ...]:
        """Values of micro_batch_size."""
        return micro_batch_sizes(self.job, self.traits)

    @cached_property
    def recompute_subsets(self) -> tuple[tuple[str, ...], ...]:
        """Values of recompute_modules."""
        return recompute_subsets(self.job, self.traits)

    @cached_property
    def offloads(self) -> tuple[Offload, ...]:
        """Values of offload_modules but none, with what is recomputed next to them."""
        return offloads(self.job, self.traits)

    @property
    def moves_nothing(self) -> bool:
        """Is there one value alone of `MOVED_AXES`?"""
        return all(len(self.values(axis)) == 1 for axis in MOVED_AXES)

    def virtual_stages(self, pp: int) -> tuple[int, ...]:
        """Values of vpp."""
        values = any_virtual_stages if self.any_vpp else virtual_stages
        return values(self.job, pp)

    def stagings(self, pp: int) -> LayoutTable:
        """Columns `STAGING_COLUMNS` of every skeleton of a node with so many stages."""
        if pp not in self._stagings:
            known: list[dict[str, object]] = [{"pp": pp}]
            for axis in STAGED_AXES:
                name, under = axis.column, self._under(axis)
                known = [{**one, name: value} for one in known for value in under(one)]
            columns = {"pp": np.full(len(known), pp)}
            for axis in STAGED_AXES:
                name, codec = axis.column, axis.codec
                columns[name] = np.array([codec.code(one[name]) for one in known], codec.dtype)
            self._stagings[pp] = LayoutTable.of_columns(len(known), columns)
        return self._stagings[pp]

    def _under(self, axis: Axis) -> Callable[[Mapping[str, object]], tuple[object, ...]]:
        """Values of an axis for those of the columns before it."""
        if axis.column == "vpp":
            return lambda known: self.virtual_stages(cast("int", known["pp"]))
        assert isinstance(axis.search, Tried)
        if under := axis.search.under:
            return partial(under, self.job, self.traits)
        values = self.values(axis)
        return lambda known: values

    def num_memory_policies(self, table: LayoutTable) -> IntColumn:
        """Combinations of recomputation and offload of each skeleton.

        The fraction of the optimizer that is offloaded is solved for, and counts as one.
        """
        kinds = 1 + len(self.recompute_subsets) + len(self.offloads)
        return kinds + 2 * self.largest_stages(table)

    def largest_stages(self, table: LayoutTable) -> IntColumn:
        """Layers of the largest virtual stage of each row: the most that it can recompute."""
        return -(-self.job.model.num_hidden_layers // (table.pp * table.vpp))

    def memory_policies(self, largest: int) -> IntColumn:
        """Columns `POLICY_COLUMNS` of every policy, for stages of up to `largest` layers."""
        return policy_columns(self.recompute_subsets, self.offloads, largest)

    @cached_property
    def degree_table(self) -> LayoutTable:
        """Every ordered split of the world size into tp, cp, pp, dp."""
        world, sizes = self.job.cluster.num_gpus, self._degrees
        every = np.array(np.meshgrid(*[sizes] * 3, indexing="ij")).reshape(3, -1)
        tp, cp, pp = every[:, world % np.prod(every, axis=0) == 0]
        columns = {"tp": tp, "cp": cp, "pp": pp, "dp": world // (tp * cp * pp)}
        return LayoutTable.of_columns(len(tp), columns)

    @cached_property
    def _degrees(self) -> tuple[int, ...]:
        return degrees(self.job, self.traits)

    @cached_property
    def size(self) -> int:
        """Layouts in the whole grid."""
        return int(self.layouts_below(self.degree_table.pp).sum()) * self.node_choices

    @property
    def node_choices(self) -> int:
        """Nodes below one choice of tp, cp, pp, dp."""
        return prod(len(self.values(axis)) for axis in NODE_AXES[NUM_DEGREES:])

    def layouts_below(self, pp: IntColumn) -> IntColumn:
        """Layouts below a node, by its pp."""
        values = {p: self.num_memory_policies(self.stagings(p)).sum() for p in set(pp.tolist())}
        return np.array([values[p] for p in pp.tolist()], dtype=np.int64)

    def variants(self, table: LayoutTable) -> IntColumn:
        """A number for each row, equal for variants of one answer: those with equal degrees."""
        code = np.zeros(len(table), dtype=np.int64)
        for name in VARIANT_DEGREES:
            code = code * len(self._degrees) + np.searchsorted(self._degrees, getattr(table, name))
        return code

    def axis_values(self) -> dict[str, list[int | float | str]]:
        """Values of every axis that is tried or solved for, for the certificate."""
        return {
            axis.name: self._listed(axis) for axis in AXES if isinstance(axis.search, Tried | Least)
        }

    def _listed(self, axis: Axis) -> list[int | float | str]:
        step = axis.search.step(self.traits) if isinstance(axis.search, Least) else None
        if step:
            return [f"0 to 1 in steps of {step:g}"]
        values = axis.tried(self.job, self.traits)
        return [axis.codec.listed(value) for value in values if value is not None]


FIRST_KNOWN = frozenset(axis.column for axis in AXES if isinstance(axis.search, Held))
"""Columns that no level adds: a rule may read them with those of any level."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of one level of the tree, with the number of layouts below each."""

    table: LayoutTable
    weight: IntColumn

    def __len__(self) -> int:
        return len(self.table)

    def take(self, rows: IntColumn | BoolColumn) -> Rows:
        """The rows picked by an index or a mask."""
        return Rows(self.table.take(rows), self.weight[rows])


class RuleFilter:
    """Applies rules and counts the layouts each refused: the only state of an enumeration."""

    def __init__(self, job: Job, rules: Sequence[Rule]) -> None:
        self.job = job
        self.rules = tuple(rules)
        self.refused: Counter[str] = Counter()

    def __call__(self, rows: Rows, before: Sequence[str], known: Sequence[str]) -> Rows:
        """Drop rows that break a rule that became decidable when `before` grew to `known`.

        A row that breaks several rules counts for the first of them.
        """
        old, new = FIRST_KNOWN.union(before), FIRST_KNOWN.union(known)
        keep: BoolColumn = np.ones(len(rows), dtype=bool)
        for rule in self.rules:
            if rule.columns <= new and not (before and rule.columns <= old):
                broken = rule.broken(self.job, rows.table) & keep
                if broken.any():
                    self.refused[rule.name] += int(rows.weight[broken].sum())
                    keep &= ~broken
        return rows.take(keep)


def nodes(space: Space, rule_filter: RuleFilter) -> Rows:
    """Legal nodes of the whole grid."""
    table = space.degree_table
    rows = Rows(table, space.layouts_below(table.pp) * space.node_choices)
    rows, known = rule_filter(rows, (), NODE_COLUMNS[:NUM_DEGREES]), NUM_DEGREES
    for count in (2, *[1] * (len(NODE_COLUMNS) - NUM_DEGREES - 2)):  # ep and etp together
        before, after = NODE_COLUMNS[:known], NODE_COLUMNS[: known + count]
        codes = [[a.number(v) for v in space.values(a)] for a in NODE_AXES[known : known + count]]
        values = np.array(np.meshgrid(*codes)).reshape(count, -1)
        rows, known = rule_filter(_cross(rows, after[known:], values), before, after), len(after)
    return rows


def skeletons(space: Space, rule_filter: RuleFilter, parents: LayoutTable) -> Rows:
    """Legal skeletons of some nodes: every node with every staging of its pp."""
    degrees, number = np.unique(parents.pp, return_inverse=True)
    every = [space.stagings(pp) for pp in degrees.tolist()] or [parents]
    each = np.array([len(stagings) for stagings in every], dtype=np.int64)
    counts, starts = each[number], (np.cumsum(each) - each)[number]
    rows = np.repeat(np.arange(len(parents)), counts)
    place = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts - starts, counts)
    staged = LayoutTable.concat(every).take(place)
    columns = {name: getattr(staged, name) for name in STAGING_COLUMNS}
    found = Rows(parents.take(rows).replaced(**columns), space.num_memory_policies(staged))
    return rule_filter(found, NODE_COLUMNS, SKELETON_COLUMNS)


def stagings_of(space: Space, skeletons: LayoutTable) -> tuple[IntColumn, BoolColumn]:
    """A number for each skeleton, equal for those that differ in what is moved alone.

    And which of them move nothing, or the least that the runtime can.
    """
    moved = [axis.column for axis in MOVED_AXES]
    same = [name for name in SKELETON_COLUMNS if name not in moved]
    _, staging = distinct(*(getattr(skeletons, name) for name in same))
    first = ((one.column, one.number(space.values(one)[0])) for one in MOVED_AXES)
    unmoved = [getattr(skeletons, name) == value for name, value in first]
    return staging, np.asarray(np.all(unmoved, axis=0))


def memory_policies(space: Space, skeletons: LayoutTable) -> tuple[LayoutTable, IntColumn]:
    """Every policy of every skeleton without optimizer offload, and each row's skeleton."""
    parts, owners = [], []
    largest = space.largest_stages(skeletons)
    for layers in np.unique(largest).tolist():
        rows = np.flatnonzero(largest == layers)
        columns = space.memory_policies(layers)
        count = columns.shape[1]
        owner = np.repeat(rows, count)
        values = np.tile(columns, len(rows))
        parts.append(
            skeletons.take(owner).replaced(**dict(zip(POLICY_COLUMNS, values, strict=True)))
        )
        owners.append(owner)
    return LayoutTable.concat(parts), np.concatenate(owners)


def _cross(rows: Rows, names: tuple[str, ...], values: IntColumn) -> Rows:
    """Every row with every value; a row's weight is shared among its copies."""
    count = values.shape[1]
    parent = np.repeat(np.arange(len(rows)), count)
    pick = np.tile(np.arange(count), len(rows))
    columns = {name: values[i][pick] for i, name in enumerate(names)}
    return Rows(rows.table.take(parent).replaced(**columns), rows.weight[parent] // count)


MOST_VALUES = 12
"""Values of an axis that are printed: those nearest to the one given."""


def values_outside_grid(space: Space, choices: Iterable[Choice]) -> tuple[str, ...]:
    """A sentence for every `--fix` whose value no layout of the grid has, with those it tries."""
    return tuple(
        f"{choice.rule().name}: {_tried(space, choice, values)}"
        for choice in choices
        if not choice.excluded
        and not choice.anything
        and (values := _values(space, choice.field))
        and choice.value not in values
    )


def _tried(space: Space, choice: Choice, values: Mapping[float, str]) -> str:
    """The values of an axis, those nearest to the one given where there are many."""
    if choice.field == "shard" and not space.traits.sharding.by_state:
        return f"{space.traits.name} has the groups of zero_stage and dp_replicate alone"
    near = sorted(values, key=lambda value: abs(value - choice.value))[:MOST_VALUES]
    some = "" if len(near) == len(values) else "among others "
    listed = ", ".join(values[value] for value in sorted(near))
    return f"the search tries {some}{listed}{' only' if len(values) == 1 else ''}"


def _values(space: Space, column: str) -> Mapping[float, str]:
    """Values of an axis in the grid, as columns of a table write them, with their names.

    None where the search solves for them.
    """
    axis = AXIS_OF_COLUMN[column]
    values = axis.tried(space.job, space.traits)
    return {axis.number(value): axis.codec.text(value) for value in values}
