"""What the answer is best by, where that is not the step time: what was tried."""

from __future__ import annotations

from collections.abc import Iterator

from trainplan.cli.blocks import Section
from trainplan.cli.pages.parts.objective import ladder_table, sizes_table
from trainplan.planner.plan import Plan


def objective_section(plan: Plan) -> Iterator[Section]:
    """Sizes of the cluster, or lengths with ever more techniques; nothing for the step time."""
    target = plan.certificate.objective
    tried = (sizes_table(target),) if len(target.tried) > 1 else ()
    ladder = (ladder_table(target),) if target.ladder else ()
    if tried or ladder:
        yield Section("objective", "The objective", (*tried, *ladder))
