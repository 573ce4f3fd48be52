"""What a runtime executes, as rules: schedules, stages that are not all alike, offload."""

from __future__ import annotations

import numpy as np

from costmodel.rules import Rule
from costmodel.runtimes.base import RuntimeTraits
from costmodel.spec.job import Job
from costmodel.spec.layout import OFFLOAD_MODULES, SCHEDULE_NAMES
from costmodel.table import BoolColumn, LayoutTable, evenly, module_bits, stage_codes


def executes_schedule(traits: RuntimeTraits) -> Rule:
    """The rule that a layout's schedule is one of the runtime's."""
    executed = np.array([name in traits.schedules for name in SCHEDULE_NAMES])

    def broken(job: Job, table: LayoutTable) -> BoolColumn:
        """A runtime executes what it implements."""
        return ~executed[table.schedule]

    return Rule(
        name="runtime_executes_schedule",
        columns=frozenset({"schedule"}),
        broken=broken,
        says=f"{traits.name} executes no schedule but {', '.join(traits.schedules)}: use one; "
        "`plan schedule --kind NAME` says who executes another",
        source=f"{traits.name} {traits.version}",
    )


def executes_stages(traits: RuntimeTraits) -> tuple[Rule, ...]:
    """The rules that layers are split, and recomputed, as the runtime can be told to."""

    def split_by_itself(job: Job, table: LayoutTable) -> BoolColumn:
        """A runtime without an option splits layers its own way."""
        return ~evenly(table)

    def alike(job: Job, table: LayoutTable) -> BoolColumn:
        """A runtime with one number recomputes as many layers in every stage."""
        codes, splits = stage_codes(table)
        own = [any(stage.recompute_num_layers is not None for stage in s or ()) for s in splits]
        return np.array(own)[codes]

    source, stages = f"{traits.name} {traits.version}", frozenset({"stages"})
    says = f"{traits.name} splits layers evenly: leave stages out"
    split = Rule(EVEN_SPLIT, stages, split_by_itself, says, source)
    says = f"{traits.name} recomputes as many layers in every stage: give stages no own number"
    equal = Rule(EQUAL_RECOMPUTE, stages, alike, says, source)
    return (
        *(() if traits.splits_freely else (split,)),
        *(() if traits.recomputes_by_stage else (equal,)),
    )


def offloads_modules(traits: RuntimeTraits) -> Rule:
    """The rule that only modules wait on the host that the runtime copies there."""
    known = module_bits(traits.offload_modules, OFFLOAD_MODULES)

    def broken(job: Job, table: LayoutTable) -> BoolColumn:
        """A runtime copies what it has an option for."""
        return np.asarray((table.offload_modules & ~known) != 0)

    some = f"no modules but {', '.join(traits.offload_modules)}: use some of these"
    none = "no activations: leave offload_modules out"
    return Rule(
        name="runtime_offloads_modules",
        columns=frozenset({"offload_modules"}),
        broken=broken,
        says=f"{traits.name} offloads {some if known else none}",
        source=f"{traits.name} {traits.version}",
    )


EVEN_SPLIT = "runtime_splits_evenly"
EQUAL_RECOMPUTE = "runtime_recomputes_alike"
