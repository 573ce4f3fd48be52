"""What cannot fit, said before it is priced: nodes by their states, policies by their class.

A node's ranks hold the whole model between them, so the fullest holds at least the mean, however
its layers are staged. Policies come in three classes, each with one that keeps least activations
and one that takes least time; a class is priced one by one only where both let it win.
"""

from collections.abc import Callable, Sequence

import numpy as np

from trainplan.costmodel.axes import AXIS_OF_COLUMN
from trainplan.costmodel.candidates import Context
from trainplan.costmodel.columns import BoolColumn, FloatColumn, IntColumn, distinct
from trainplan.costmodel.layout import OFFLOAD_MODULES, PARAMETER_TIERS
from trainplan.costmodel.layouts import (
    BLOCK,
    FULL,
    SELECTIVE,
    UNIFORM,
    LayoutTable,
    Rule,
    legal_rows,
    module_bits,
)
from trainplan.costmodel.memory import (
    RESERVE_FACTOR,
    layer_backward_bytes,
    least_memory_stages,
    mean_rank_params,
    mean_state_bytes,
    workspace_bytes,
)
from trainplan.costmodel.step import Priced
from trainplan.planner.policies import (
    POLICY_COLUMNS,
    Fractions,
    fractions_of,
    largest_fraction,
    with_most_offload,
)
from trainplan.planner.space import (
    FIRST_KNOWN,
    MEMORY,
    NODE_COLUMNS,
    SKELETON_COLUMNS,
    Rows,
    RuleFilter,
    Space,
    memory_policies,
)

DEGREES = NODE_COLUMNS[:6]
"""What decides how much of the model a rank holds."""
KNOWN_COLUMNS = FIRST_KNOWN.union(SKELETON_COLUMNS)
OFFLOAD_COLUMNS = KNOWN_COLUMNS | {"offload_optimizer"}


class MemoryFilter(RuleFilter):
    """A sieve that refuses what needs more than a rank may use before it is priced."""

    def __init__(self, space: Space, rules: Sequence[Rule], limit: float) -> None:
        super().__init__(space.job, rules)
        self.space, self.limit = space, limit

    def __call__(self, rows: Rows, before: Sequence[str], known: Sequence[str]) -> Rows:
        """As any sieve; the memory is asked when the degrees are known, and the ZeRO stage."""
        rows = super().__call__(rows, before, known)
        if tuple(known) not in (DEGREES, SKELETON_COLUMNS) or not len(rows):
            return rows
        least = states_bytes if tuple(known) == DEGREES else skeleton_bytes
        over = least(self.space, self.rules, rows.table) > self.limit
        self.refused[MEMORY] += int(rows.weight[over].sum())
        return rows.take(~over)


def states_bytes(space: Space, rules: Sequence[Rule], table: LayoutTable) -> FloatColumn:
    """Device memory of the fullest rank at least, by the states alone, however they are staged.

    Source: derived; the mean over ranks under the ZeRO stage of least memory, with all
    that may be offloaded. 0 where all are forbidden, which is for the rules to say.
    """
    cuts = (table, _cut_most(table)) if on_request(space) else (table,)
    least = np.min([_least_states(space, rules, one) for one in cuts], axis=0)
    used = least * RESERVE_FACTOR + _outside_bytes(space.context)
    return np.where(np.isfinite(least), used, 0.0)


def on_request(space: Space) -> bool:
    """Are matrices cut beyond tensor parallelism tried?"""
    return any(len(space.values(AXIS_OF_COLUMN[name])) > 1 for name in ("gtp", "egtp"))


def _cut_most(table: LayoutTable) -> LayoutTable:
    """With matrices over all ranks that share them, which no layout of these degrees exceeds."""
    experts = table.tp * table.cp * table.dp // np.maximum(1, table.ep * table.etp)
    return table.replaced(gtp=table.dp, egtp=np.maximum(1, experts))


def _least_states(space: Space, rules: Sequence[Rule], table: LayoutTable) -> FloatColumn:
    """Bytes under the ZeRO stage of least; infinite where all are forbidden."""
    on, traits = space.context, space.traits
    held = mean_rank_params(on.with_table(table))
    most = fractions_of(traits, ())[-1].most
    most_moved = max(PARAMETER_TIERS.index(one) for one in traits.offloading.parameters)
    known = FIRST_KNOWN.union(DEGREES, ["zero_stage"])
    each = []
    for stage in traits.sharding.zero_stages:
        columns = {
            "zero_stage": stage,
            "offload_optimizer": most,
            "offload_parameters": most_moved,
            **least_memory_stages(on),
        }
        rows = table.replaced(**{name: np.full(len(table), x) for name, x in columns.items()})
        legal = legal_rows(on.job, [rule for rule in rules if rule.columns <= known], rows)
        each.append(np.where(legal, mean_state_bytes(on.with_table(rows), held), np.inf))
    return np.asarray(np.min(each, axis=0))


def skeleton_bytes(space: Space, rules: Sequence[Rule], table: LayoutTable) -> FloatColumn:
    """As `states_bytes`, of skeletons, with what one layer needs while it runs backward.

    Source: as `MemoryTable.least_used`: states with the largest share offloaded and no activations;
    what a layer needs while it runs backward is there under every policy.
    """
    on, job = space.context, space.job
    table = table.replaced(offload_optimizer=most_offload(space, rules, table))
    rows = on.with_table(table)
    tokens = table.micro_batch_size * job.training.seq_length / table.cp
    moment = layer_backward_bytes(rows, tokens) + workspace_bytes(job, on.traits)
    least = mean_state_bytes(rows, mean_rank_params(rows)) + moment
    return np.asarray(least * RESERVE_FACTOR + _outside_bytes(on))


def most_offload(space: Space, rules: Sequence[Rule], table: LayoutTable) -> FloatColumn:
    """Largest offload fraction each skeleton may use under some recomputation.

    Rules on recomputation are not asked: a policy refused later leaves a bound lower, but valid.
    """
    needed = [rule for rule in rules if "offload_optimizer" in rule.columns <= OFFLOAD_COLUMNS]
    return largest_fraction(space.context, needed, table, fractions_of(space.traits, needed))


def _outside_bytes(on: Context) -> float:
    """Of the runtime or as measured, whichever is less."""
    usual, measured = on.traits.footprint.outside_bytes, on.machine.outside_bytes
    return usual if measured is None else min(usual, measured)


POLICY_CLASSES = ((SELECTIVE, 0), (FULL, UNIFORM), (FULL, BLOCK))
"""Recomputation and its method; the first with no recomputation at all. Where activations may be
offloaded, the first is there again with some on the host."""


def class_extremes(space: Space, skeletons: LayoutTable) -> tuple[LayoutTable, LayoutTable]:
    """For each class the policies that take least time, and those that keep least; class by class.

    Of the first class nothing is recomputed by the one, and by the other every module that may be.
    Seconds of the one and bytes of the other bound every policy between, so both have to win.
    """
    layers = space.largest_stages(skeletons)
    every = module_bits(module for subset in space.recompute_subsets for module in subset)
    min_memory = [_recomputed(skeletons, SELECTIVE, modules=every)]
    for kind, method in POLICY_CLASSES[1:]:
        one = _recomputed(skeletons, kind, method=method)
        min_memory.append(one.replaced(recompute_num_layers=layers))
    if space.offloads:
        min_memory.append(_most_offloaded(space, skeletons))
    table = LayoutTable.concat(min_memory)
    return time_minimal(table), table


def time_minimal(min_memory: LayoutTable) -> LayoutTable:
    """Of classes that are given by what keeps least, what takes least time."""
    full = min_memory.recompute == FULL
    none = np.zeros(len(min_memory), dtype=np.int64)
    return min_memory.replaced(
        recompute=np.where(full, FULL, none),
        recompute_modules=none,
        recompute_num_layers=full.astype(np.int64),
        offload_modules=none,
    )


def _most_offloaded(space: Space, skeletons: LayoutTable) -> LayoutTable:
    """What keeps least of all that offload some activations."""
    away = module_bits({m for one in space.offloads for m in one.modules}, OFFLOAD_MODULES)
    again = module_bits({m for one in space.offloads for m in one.recompute})
    modules = np.full(len(skeletons), away)
    return _recomputed(skeletons, SELECTIVE, modules=again).replaced(offload_modules=modules)


def policies_of(space: Space, skeletons: LayoutTable) -> tuple[LayoutTable, IntColumn]:
    """Every policy of some classes of skeletons, or of skeletons, and the row each belongs to."""
    if not len(skeletons):
        return skeletons, np.zeros(0, dtype=np.int64)
    table, owner = memory_policies(space, skeletons)
    wanted, own = _class_of(skeletons)[owner], _class_of(table)
    keep = np.flatnonzero((skeletons.recompute[owner] == 0) | (wanted == own))
    return table.take(keep), owner[keep]


def classes_with_policies(
    space: Space,
    min_memory: LayoutTable,
    rules: Sequence[Rule],
    allowed: Callable[[LayoutTable], BoolColumn],
) -> BoolColumn:
    """Which classes, given by what keeps least, have a policy that is allowed and breaks no rule.

    Rules that read what is offloaded of the optimizer are not asked. Classes that no rule tells
    apart are asked once.
    """
    relevant = [one for one in rules if not one.columns.isdisjoint(POLICY_COLUMNS)]
    relevant = [one for one in relevant if "offload_optimizer" not in one.columns]
    read = frozenset(POLICY_COLUMNS).union(*(one.columns for one in relevant)) - {"stages"}
    layers = space.largest_stages(min_memory)
    first, kind = distinct(*(getattr(min_memory, name) for name in sorted(read)), layers)
    table, owner = policies_of(space, min_memory.take(first))
    legal = allowed(table) & legal_rows(space.job, relevant, table)
    found = np.zeros(len(first), dtype=bool)
    found[owner[legal]] = True
    return np.asarray(found[kind])


def least_memory_layout(
    space: Space,
    price: Callable[[LayoutTable], Priced],
    allowed: Callable[[LayoutTable], BoolColumn],
    ranges: Sequence[Fractions],
    skeletons: LayoutTable,
) -> tuple[float, LayoutTable] | None:
    """Bytes and policy of the layout of least memory; none where no policy is allowed."""
    table = memory_policies(space, skeletons)[0] if len(skeletons) else skeletons
    every = with_most_offload(table, ranges)
    legal = every.take(allowed(every))
    if not len(legal):
        return None
    used = price(legal).memory.used
    row = int(np.argmin(used))
    return float(used[row]), legal.take(np.array([row]))


def _class_of(table: LayoutTable) -> IntColumn:
    """Number of the class of a policy: selective or none, uniform, block, something offloaded."""
    full = table.recompute == FULL
    recomputed = np.where(full, np.where(table.recompute_method == UNIFORM, 1, 2), 0)
    return np.where(table.offload_modules != 0, len(POLICY_CLASSES), recomputed)


def _recomputed(table: LayoutTable, kind: int, *, modules: int = 0, method: int = 0) -> LayoutTable:
    """The rows under one policy."""
    size = len(table)
    return table.replaced(
        recompute=np.full(size, kind),
        recompute_modules=np.full(size, modules),
        recompute_method=np.full(size, method),
    )
