"""What layers recompute and what they offload: the last choices of a layout, as columns.

Which layouts may have their layers split freely depends on them.
"""

from collections.abc import Sequence

import numpy as np

from trainplan.costmodel.axes import POLICY_AXES
from trainplan.costmodel.columns import BoolColumn, IntColumn
from trainplan.costmodel.layout import OFFLOAD_MODULES, SCHEDULE_NAMES
from trainplan.costmodel.layouts import (
    BLOCK,
    FULL,
    SELECTIVE,
    UNIFORM,
    LayoutTable,
    module_bits,
    moves_states,
)
from trainplan.costmodel.runtimes import Offload, RuntimeTraits
from trainplan.costmodel.schedules import SCHEDULES

Modules = tuple[str, ...]

POLICY_COLUMNS = tuple(axis.column for axis in POLICY_AXES)


def policy_columns(
    recompute: Sequence[Modules], offload: Sequence[Offload], largest: int
) -> IntColumn:
    """Rows `POLICY_COLUMNS` of every policy, for stages of up to `largest` layers."""
    nothing = Offload(())
    partly = (nothing, *(Offload((), modules) for modules in recompute), *offload)
    bits = [
        (module_bits(one.recompute), module_bits(one.modules, OFFLOAD_MODULES)) for one in partly
    ]
    some = [(SELECTIVE if again else 0, again, 0, 0, away) for again, away in bits]
    layers = range(1, largest + 1)
    full = [(FULL, 0, method, n, 0) for method in (UNIFORM, BLOCK) for n in layers]
    return np.array([*some, *full], dtype=np.int64).T


def takes_longer(table: LayoutTable, one: LayoutTable) -> BoolColumn:
    """Rows that recompute and offload at least what `one` does, all else equal.

    Source: recomputing more adds to backward passes and offloading more adds copies, and neither
    takes any work away, so of equal splits no path of such a row is shorter. What follows the path
    may be where `has_longer_passes`: they hide more traffic, `StageProblem.may_hide_s` at most.
    """
    modules, number = int(one.recompute_modules[0]), int(one.recompute_num_layers[0])
    uniform = table.recompute_method == UNIFORM
    if int(one.recompute[0]) == FULL:
        whole = int(one.recompute_method[0]) == UNIFORM
        more = uniform | ((table.recompute_num_layers >= number) & (not whole))
        more = (table.recompute == FULL) & more
    elif int(one.recompute[0]) == SELECTIVE:
        more = (table.recompute == SELECTIVE) & ((table.recompute_modules & modules) == modules)
    else:
        more = np.ones(len(table), dtype=bool)
    away = int(one.offload_modules[0])
    more &= (table.offload_modules & away) == away
    return np.asarray(more & (table.offload_optimizer >= one.offload_optimizer[0]))


def has_longer_passes(table: LayoutTable, one: LayoutTable) -> BoolColumn:
    """Which rows that `takes_longer` than `one` may have other passes, and hide other traffic.

    Source: traffic hides beside passes, and those depend on what layers recompute and which of
    their activations wait on the host. A share of the optimizer on the host is moved after the
    passes, so rows that differ in it alone hide what `one` does, to the second.
    """
    other = [getattr(table, name) != getattr(one, name) for name in POLICY_COLUMNS]
    return np.asarray(np.any(other, axis=0))


def names_modules(table: LayoutTable) -> BoolColumn:
    """Rows that are layouts: what is recomputed selectively has a name.

    The policy of a class that keeps least has none where the runtime recomputes no module alone.
    """
    return np.asarray((table.recompute != SELECTIVE) | (table.recompute_modules != 0))


def allows_any_split(traits: RuntimeTraits, table: LayoutTable) -> BoolColumn:
    """Rows whose layers may be split freely, with bounds for every split."""
    return paths_bound(traits, table) & recompute_allows_any_split(traits, table)


def paths_bound(traits: RuntimeTraits, table: LayoutTable) -> BoolColumn:
    """Rows of which a path through their ops bounds every split.

    The order of the pipeline ignores durations, and its ranks do not wait for messages: the length
    of a path is the seconds of its passes and messages alone. Nothing moves beside the passes.
    """
    other = {*traits.pipeline.unsynchronised, *traits.pipeline.waits_for_messages}
    fixed = [not SCHEDULES[name].adapts and name not in other for name in SCHEDULE_NAMES]
    moved = moves_states(table) & traits.offloading.moves_overlapped
    return np.asarray((table.pp > 1) & np.array(fixed)[table.schedule] & ~moved)


def recompute_allows_any_split(traits: RuntimeTraits, table: LayoutTable) -> BoolColumn:
    """Rows whose recomputation the runtime can be told of, however their layers are split.

    Source: `Recompute.layers`; every k-th layer is as many on stages of equal length alone.
    """
    return np.asarray((traits.recompute.layers != "every_kth") | (table.recompute_method != BLOCK))
