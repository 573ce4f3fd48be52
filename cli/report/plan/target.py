"""What the answer is best by, where that is not the step time: what was tried."""

from __future__ import annotations

from collections.abc import Iterator

from trainplan.cli.blocks.blocks import Block, Cell, Section, Table
from trainplan.cli.blocks.tables import Columns, number, table
from trainplan.cli.render.parts.objective import amount
from trainplan.planner.plan import Plan
from trainplan.planner.plan.target import Target, Tried


def objective_section(plan: Plan) -> Iterator[Section]:
    """Sizes of the cluster, or lengths with ever more techniques; nothing for the step time."""
    blocks = tuple(_blocks(plan))
    if blocks:
        yield Section("objective", "The objective", blocks)


def _blocks(plan: Plan) -> Iterator[Block]:
    target = plan.certificate.objective
    if len(target.tried) > 1:
        yield _sizes(target)
    if target.ladder:
        yield _ladder(target)


def _sizes(target: Target) -> Table:
    best = sorted(target.tried, key=lambda one: (one.bound, one.num_gpus))
    return table(
        "Sizes of the cluster that were tried, the best first",
        (number("GPUs"), number("objective")),
        [(one.num_gpus, _value(one, target.unit)) for one in best],
    )


def _value(one: Tried, unit: str) -> Cell:
    """The objective of a size, or what bounds it."""
    if one.value is not None:
        return Cell(amount(one.value, unit), one.value)
    if one.lower_bound is None:
        return Cell("no layout is an answer")
    return Cell(f"at least {amount(one.lower_bound, unit)}", one.lower_bound)


def _ladder(target: Target) -> Table:
    columns: Columns = (
        "technique, beside those before",
        number("tokens"),
        number("sequences a step"),
        "stopped by",
    )
    rows = [(one.adds, one.tokens, one.global_batch_size, one.limit) for one in target.ladder]
    return table("Longest sequence that trains", columns, rows)
