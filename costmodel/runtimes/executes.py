"""The schedules a runtime executes, as a rule."""

from __future__ import annotations

import numpy as np

from costmodel.rules import Rule
from costmodel.runtimes.base import RuntimeTraits
from costmodel.spec.job import Job
from costmodel.spec.layout import SCHEDULE_NAMES
from costmodel.table import BoolColumn, LayoutTable


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
