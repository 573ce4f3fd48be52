"""The grid of candidates: every value of every axis, as a tree of three levels.

    node      tp, cp, pp, dp, ep, etp, cp_heads, micro batch, sequence parallelism
    skeleton  node with virtual stages, a schedule that runs them, ZeRO stage and its replicas,
              and what is tiled
    layout    skeleton with a policy: what layers recompute and what is offloaded

Rules are applied as soon as the columns they read are known; a row refused early counts for all
layouts below it. The search expands nodes and skeletons only where they can still win.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import NamedTuple

import numpy as np

from trainplan.costmodel.axes import AXES, AXIS_OF_COLUMN, Axis, Held, Least, Tried, grid
from trainplan.costmodel.layouts import BoolColumn, IntColumn, LayoutTable, Rule, distinct
from trainplan.costmodel.layouts.table import FIELDS
from trainplan.costmodel.runtimes import traits_of
from trainplan.costmodel.runtimes.base import RuntimeTraits
from trainplan.costmodel.runtimes.traits import Offload
from trainplan.costmodel.schedules import SCHEDULES
from trainplan.costmodel.spec import Job
from trainplan.costmodel.spec.layout import SCHEDULE_NAMES, Schedule
from trainplan.planner.space.choices import Choice
from trainplan.planner.space.policies import POLICY_COLUMNS, num_memory_policies, policy_columns

VARIANT_DEGREES = ("tp", "cp", "pp", "ep", "etp")
"""Layouts alike in these are variants of one answer: the table of alternatives lists the best."""


class Staging(NamedTuple):
    """What makes a skeleton of a node, by the columns of a table."""

    vpp: int
    schedule: int
    """Its place in `SCHEDULE_NAMES`."""
    zero_stage: int
    dp_replicate: int
    tiled_loss: int
    tiled_mlp: int
    placement: tuple[float, ...]
    """Columns `PLACEMENT_COLUMNS`."""


PLACEMENT_COLUMNS = (
    "offload_tier",
    "offload_parameters",
    "offload_checkpoints",
    "offload_stride",
)
"""What lies where, besides how much of the optimizer; each is off in most runtimes."""


@dataclass(frozen=True)
class Space:
    """All layouts of a job, legal or not."""

    job: Job
    any_vpp: bool = False
    """Are numbers of virtual stages tried that do not divide a rank's layers?"""

    @cached_property
    def traits(self) -> RuntimeTraits:
        """The runtime the plan is for."""
        return traits_of(self.job)

    @cached_property
    def degrees(self) -> tuple[int, ...]:
        """Divisors of the world size."""
        return grid.degrees(self.job, self.traits)

    @cached_property
    def expert_degrees(self) -> tuple[int, ...]:
        """Values of ep and etp; 1 for a dense model."""
        return grid.expert_degrees(self.job, self.traits)

    @cached_property
    def ring_heads(self) -> tuple[int, ...]:
        """Values of cp_heads."""
        return grid.ring_heads(self.job, self.traits)

    @cached_property
    def micro_batches(self) -> tuple[int, ...]:
        """Values of micro_batch_size."""
        return grid.micro_batch_sizes(self.job, self.traits)

    @cached_property
    def recompute_subsets(self) -> tuple[tuple[str, ...], ...]:
        """Values of recompute_modules."""
        return grid.recompute_subsets(self.job, self.traits)

    @cached_property
    def offloads(self) -> tuple[Offload, ...]:
        """Values of offload_modules besides none, with what is recomputed beside them."""
        return grid.offloads(self.job, self.traits)

    @cached_property
    def placements(self) -> tuple[tuple[float, ...], ...]:
        """Columns `PLACEMENT_COLUMNS` of all that the runtime can move, nothing moved first."""
        axes = [AXIS_OF_COLUMN[name] for name in PLACEMENT_COLUMNS]
        return tuple(product(*(map(a.number, a.tried(self.job, self.traits)) for a in axes)))

    def virtual_stages(self, pp: int) -> tuple[int, ...]:
        """Values of vpp."""
        values = grid.any_virtual_stages if self.any_vpp else grid.virtual_stages
        return values(self.job, pp)

    def stagings(self, pp: int) -> tuple[Staging, ...]:
        """Every vpp with every schedule that runs it, and every ZeRO stage with its replicas.

        One rank has nothing to schedule: it runs 1F1B. Where the runtime makes ZeRO-2 and 3 to
        ZeRO-1 under a pipeline, they would be the same layouts again.
        """
        names: tuple[Schedule, ...] = self.traits.pipeline.schedules if pp > 1 else ("1f1b",)
        same = pp > 1 and self.traits.sharding.whole_under_pipeline
        sharded = [
            (zero_stage, replicas)
            for zero_stage in self.traits.sharding.zero_stages
            if not (same and zero_stage >= 2)
            for replicas in grid.replicas_under(self.job, self.traits, pp, zero_stage)
        ]
        return tuple(
            Staging(vpp, SCHEDULE_NAMES.index(name), zero_stage, replicas, *tiled, placement)
            for vpp in self.virtual_stages(pp)
            for name in names
            if SCHEDULES[name].least_vpp <= vpp <= SCHEDULES[name].most_vpp
            for zero_stage, replicas in sharded
            for tiled in grid.tilings(self.job, self.traits)
            for placement in self.placements
        )

    def largest_stage(self, pp: int, vpp: int) -> int:
        """Layers of the largest virtual stage: the most that block recomputation can take."""
        return grid.largest_stage(self.job, pp, vpp)

    def num_memory_policies(self, pp: int, vpp: int) -> int:
        """Combinations of recomputation and offload of one skeleton.

        The fraction of the optimizer that is offloaded is solved for, and counts as one.
        """
        largest = self.largest_stage(pp, vpp)
        return num_memory_policies(self.recompute_subsets, self.offloads, largest)

    def memory_policies(self, largest: int) -> IntColumn:
        """Columns `POLICY_COLUMNS` of every policy, for stages of up to `largest` layers."""
        return policy_columns(self.recompute_subsets, self.offloads, largest)

    @cached_property
    def degree_table(self) -> LayoutTable:
        """Every ordered split of the world size into tp, cp, pp, dp."""
        world = self.job.cluster.num_gpus
        every = np.array(np.meshgrid(*[self.degrees] * 3, indexing="ij")).reshape(3, -1)
        tp, cp, pp = every[:, world % np.prod(every, axis=0) == 0]
        columns = {"tp": tp, "cp": cp, "pp": pp, "dp": world // (tp * cp * pp)}
        return LayoutTable.of_columns(len(tp), columns)

    @cached_property
    def size(self) -> int:
        """Layouts in the whole grid."""
        return int(self.layouts_below(self.degree_table.pp).sum()) * self.node_choices

    @property
    def node_choices(self) -> int:
        """Nodes below one choice of tp, cp, pp, dp."""
        return len(self.expert_degrees) ** 2 * len(self.ring_heads) * len(self.micro_batches) * 2

    def layouts_below(self, pp: IntColumn) -> IntColumn:
        """Layouts below a node, by its pp."""
        values = {
            p: sum(self.num_memory_policies(p, staging.vpp) for staging in self.stagings(p))
            for p in set(pp.tolist())
        }
        return np.array([values[p] for p in pp.tolist()], dtype=np.int64)

    def variants(self, table: LayoutTable) -> IntColumn:
        """A number for each row, equal for variants of one answer: those with equal degrees."""
        code = np.zeros(len(table), dtype=np.int64)
        for name in VARIANT_DEGREES:
            code = code * len(self.degrees) + np.searchsorted(self.degrees, getattr(table, name))
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


NODE_COLUMNS = (
    *("tp", "cp", "pp", "dp", "ep", "etp"),
    *("cp_heads", "sequence_parallel", "micro_batch_size"),
)
STAGING_COLUMNS = (
    "vpp",
    "schedule",
    "zero_stage",
    "dp_replicate",
    "tiled_loss",
    "tiled_mlp",
    *PLACEMENT_COLUMNS,
)
SKELETON_COLUMNS = (*NODE_COLUMNS, *STAGING_COLUMNS)
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
    known, experts = 4, np.array(np.meshgrid(space.expert_degrees, space.expert_degrees))
    rows = rule_filter(rows, (), NODE_COLUMNS[:known])
    others = space.ring_heads, (0, 1), space.micro_batches
    for values in (experts.reshape(2, -1), *(np.array([one]) for one in others)):
        before, after = NODE_COLUMNS[:known], NODE_COLUMNS[: known + len(values)]
        rows, known = rule_filter(_cross(rows, after[known:], values), before, after), len(after)
    return rows


def skeletons(space: Space, rule_filter: RuleFilter, parents: LayoutTable) -> Rows:
    """Legal skeletons of some nodes: every node with every staging of its pp."""
    degrees, number = np.unique(parents.pp, return_inverse=True)
    values = [space.stagings(pp) for pp in degrees.tolist()]
    each = np.array([len(stagings) for stagings in values], dtype=np.int64)
    counts, starts = each[number], (np.cumsum(each) - each)[number]
    rows = np.repeat(np.arange(len(parents)), counts)
    place = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts - starts, counts)
    every = [
        (*staging[:-1], *staging.placement, space.num_memory_policies(pp, staging.vpp))
        for pp, stagings in zip(degrees.tolist(), values, strict=True)
        for staging in stagings
    ]
    *columns, weight = np.array(every, dtype=np.float64).reshape(-1, len(STAGING_COLUMNS) + 1).T
    staged = {
        name: column[place].astype(FIELDS[name].codec.dtype)
        for name, column in zip(STAGING_COLUMNS, columns, strict=True)
    }
    found = Rows(parents.take(rows).replaced(**staged), weight[place].astype(np.int64))
    return rule_filter(found, NODE_COLUMNS, SKELETON_COLUMNS)


def stagings_of(space: Space, skeletons: LayoutTable) -> tuple[IntColumn, BoolColumn]:
    """A number for each skeleton, equal for those that differ in what is moved alone.

    And which of them move nothing, or the least that the runtime can.
    """
    same = [name for name in SKELETON_COLUMNS if name not in PLACEMENT_COLUMNS]
    _, staging = distinct(*(getattr(skeletons, name) for name in same))
    first = zip(PLACEMENT_COLUMNS, space.placements[0], strict=True)
    unmoved = [getattr(skeletons, name) == value for name, value in first]
    return staging, np.asarray(np.all(unmoved, axis=0))


def memory_policies(space: Space, skeletons: LayoutTable) -> tuple[LayoutTable, IntColumn]:
    """Every policy of every skeleton without optimizer offload, and each row's skeleton."""
    parts, owners = [], []
    largest = -(-space.job.model.num_hidden_layers // (skeletons.pp * skeletons.vpp))
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
"""Values of an axis that are told: those nearest to the one asked for."""


def values_outside_grid(space: Space, choices: Iterable[Choice]) -> tuple[str, ...]:
    """A sentence for every `--fix` whose value no layout of the grid has, with those it tries."""
    return tuple(
        f"{choice.rule().name}: {_tried(values, choice.value)}"
        for choice in choices
        if not choice.excluded
        and not choice.anything
        and (values := _values(space, choice.field))
        and choice.value not in values
    )


def _tried(values: Mapping[float, str], wanted: float) -> str:
    """The values of an axis, those nearest to the one asked for where there are many."""
    near = sorted(values, key=lambda value: abs(value - wanted))[:MOST_VALUES]
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
