"""What the answer is best by, where that is not the step time: what was tried."""

from __future__ import annotations

from collections.abc import Iterator

from trainplan.cli.render.parts.objective import amount
from trainplan.cli.report.blocks import Block, Cell, Column, Section, Table
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
    return Table(
        "Sizes of the cluster that were tried, the best first",
        (Column("GPUs", numeric=True), Column("objective", numeric=True)),
        tuple((Cell(f"{one.num_gpus:,}", one.num_gpus), _value(one, target.unit)) for one in best),
    )


def _value(one: Tried, unit: str) -> Cell:
    """The objective of a size, or what bounds it."""
    if one.value is not None:
        return Cell(amount(one.value, unit), one.value)
    if one.lower_bound is None:
        return Cell("no layout is an answer")
    return Cell(f"at least {amount(one.lower_bound, unit)}", one.lower_bound)


def _ladder(target: Target) -> Table:
    columns = (
        Column("technique, beside those before"),
        Column("tokens", numeric=True),
        Column("sequences a step", numeric=True),
        Column("stopped by"),
    )
    rows = (
        (
            Cell(rung.adds),
            Cell(f"{rung.tokens:,}", rung.tokens),
            Cell(f"{rung.global_batch_size:,}", rung.global_batch_size),
            Cell(rung.limit),
        )
        for rung in target.ladder
    )
    return Table("Longest sequence that trains", columns, tuple(rows))
