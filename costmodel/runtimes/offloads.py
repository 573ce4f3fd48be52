"""What a runtime can keep off the GPU, as rules."""

import numpy as np

from trainplan.costmodel.columns import BoolColumn
from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import OFFLOAD_MODULES
from trainplan.costmodel.layouts import FIELDS, LayoutTable, Rule, module_bits, moves_states
from trainplan.costmodel.runtimes.base import RuntimeTraits


def offloads_modules(traits: RuntimeTraits) -> Rule:
    """The rule that only modules wait on the host that the runtime copies there."""
    known = module_bits(traits.offloading.modules, OFFLOAD_MODULES)

    def broken(job: Job, table: LayoutTable) -> BoolColumn:
        """A runtime copies what it has an option for."""
        return np.asarray((table.offload_modules & ~known) != 0)

    some = f"no modules but {', '.join(traits.offloading.modules)}: use some of these"
    none = "no activations: leave offload_modules out"
    return Rule(
        name="runtime_offloads_modules",
        columns=frozenset({"offload_modules"}),
        broken=broken,
        says=f"{traits.name} offloads {some if known else none}",
        source=f"{traits.name} {traits.version}",
    )


def offloads_states(traits: RuntimeTraits) -> tuple[Rule, ...]:
    """The rules that states leave the GPU as the runtime can move them."""
    can = traits.offloading
    known: dict[str, tuple[object, ...]] = {
        "offload_tier": can.tiers,
        "offload_parameters": can.parameters,
        "offload_checkpoints": can.checkpoints,
        "offload_stride": can.strides,
    }
    return (
        *(_keeps(traits, column, values) for column, values in known.items()),
        *((_moves_on_equal_nodes(traits),) if can.moves_overlapped else ()),
    )


def _moves_on_equal_nodes(traits: RuntimeTraits) -> Rule:
    """The rule that nothing moves beside the passes where node groups differ."""

    def broken(job: Job, table: LayoutTable) -> BoolColumn:
        """The lanes of one machine are priced."""
        return np.asarray(moves_states(table) & (len(job.cluster.groups) > 1))

    return Rule(
        name="states_move_on_equal_nodes",
        columns=frozenset({"offload_optimizer", "offload_parameters", "offload_checkpoints"}),
        broken=broken,
        says="copies overlapped with passes are not priced on mixed node groups: keep states on "
        "the GPUs, or plan one group",
        source="costmodel/step/offloaded.py",
    )


def _keeps(traits: RuntimeTraits, column: str, values: tuple[object, ...]) -> Rule:
    """The rule that a column holds one of some values."""
    codec, name = FIELDS[column].codec, FIELDS[column].path
    codes = np.array([codec.code(value) for value in values])

    def broken(job: Job, table: LayoutTable) -> BoolColumn:
        """A runtime moves what it has an option for."""
        return ~np.isin(getattr(table, column), codes)

    some = ", ".join(codec.text(value) for value in values)
    return Rule(
        name=f"runtime_keeps_{column.removeprefix('offload_')}",
        columns=frozenset({column}),
        broken=broken,
        says=f"{traits.name} has no {name} but {some}: use {'one' if len(values) > 1 else 'it'}",
        source=f"{traits.name} {traits.version}",
    )
