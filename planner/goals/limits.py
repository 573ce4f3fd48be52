"""What keeps a layout that trains from a longer sequence."""

from collections.abc import Iterator

import numpy as np

from trainplan.costmodel.layouts import LayoutTable
from trainplan.costmodel.spec import LARGEST_SIZE
from trainplan.costmodel.step import price
from trainplan.planner.goals.cluster_sizes import longest_step
from trainplan.planner.goals.context import SearchContext
from trainplan.planner.space import broken_rules
from trainplan.planner.tree import SearchResult

RULES = {"kernel_index": "kernel index"}
"""Rules that a length alone breaks, as a limit is called."""
TIME_LIMIT = "the time limit of this search"
"""Longer sequences may train: the time was too short to search."""
MEASURED = "what was measured"
"""Under `--trusted`: no scored run has such a length."""
NO_LAYOUT = "no layout"
"""Where not even the shortest sequence trains."""


def limit_of(context: SearchContext, found: SearchResult | None, too_long: int) -> str:
    """What stops the layout of an answer at a length that no layout holds."""
    if context.budget.spent():
        return TIME_LIMIT
    if too_long > LARGEST_SIZE:
        return "none met"
    if found is None or found.finalists is None:
        return NO_LAYOUT
    longer = context.job.training.model_copy(update={"seq_length": too_long})
    longer_job = context.job.model_copy(update={"training": longer})
    return next(
        _limits(context.with_job(longer_job), found.finalists.take(np.array([0]))), "GPU memory"
    )


def _limits(context: SearchContext, table: LayoutTable) -> Iterator[str]:
    """All that a layout breaks; of an optimizer that may be offloaded, with all of it."""
    for rule in broken_rules(context.job, table)[0]:
        yield RULES.get(rule.name, rule.name)
    if any(
        rule.broken(context.job, table)[0] for rule in context.options.rules_of_evidence(context)
    ):
        yield MEASURED
    whole = table
    held = {choice.field for choice in context.options.fix} | set(context.held_off)
    if context.traits.offloading.optimizer_step and "offload_optimizer" not in held:
        whole = table.replaced(offload_optimizer=np.ones(1))
    memory = price(context.with_table(whole)).memory
    if memory.used[0] > context.usable_bytes:
        yield "GPU memory"
    off = memory.off_device
    if off.host_used()[0] > off.host_limit:
        yield "host memory"
    if off.drive_used()[0] > off.drive_limit:
        yield "drive space"
    if np.isfinite(longest_step(context)):
        yield "time"
