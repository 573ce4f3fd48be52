"""The page on pipeline schedules."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from page_parts import Lines, table

from trainplan.costmodel.program.ops import EQUAL, Op, Program, Shape
from trainplan.costmodel.schedules import SCHEDULES
from trainplan.costmodel.schedules.schedule import Schedule
from trainplan.planner.schedules.scored import TORCH_CSV, runs_on

EXAMPLE = 4, 8
"""Ranks and micro batches that every schedule runs with."""
OPTIONS = {
    "microbatch_group_size": "`--microbatch-group-size`",
    "memory_limit": "`--memory-limit`",
    "sequence_chunks": "`--sequence-chunks`",
}


def schedules_page() -> Lines:
    """Every schedule of the registry: where it runs and what it does."""
    yield from ("# Pipeline schedules", "")
    yield "Names for `plan schedule --kind`; layouts may name those that a runtime executes"
    yield "(`schedule=`). *Placement*: virtual stages lie on ranks in a loop, stage modulo pp, or"
    yield "in a V, there and back again. *Splits*: the weight gradient is separate from the input"
    yield f"gradient. *{TORCH_CSV}*: torch's pipeline runtime, with a file of"
    yield "`plan schedule --csv`."
    yield "[How to compare them](../how-to/compare-schedules.md)."
    yield ""
    head = ("name", "vpp", "placement", "needs", "splits", "options", "runs on")
    yield from table(head, (_row(name, schedule) for name, schedule in SCHEDULES.items()))


def _row(name: str, schedule: Schedule) -> Sequence[str]:
    program = _example(schedule)
    return (
        f"`{name}`",
        schedule.vpp_text().removeprefix("with vpp").lstrip("= "),
        "both ways" if program.copies > 1 else schedule.placement,
        "; ".join(rule.message for rule in schedule.rules),
        _splits(program),
        ", ".join(OPTIONS.get(option, option) for option in sorted(schedule.options)),
        ", ".join(runs_on(name, program)),
    )


def _example(schedule: Schedule) -> Program:
    pp, num_microbatches = EXAMPLE
    chunks = 2 if "sequence_chunks" in schedule.options else 1
    shape = Shape(pp, schedule.least_vpp, num_microbatches, sequence_chunks=chunks)
    return schedule.program(shape, EQUAL)


def _splits(program: Program) -> str:
    whole = int(np.sum(program.kind == Op.WHOLE))
    split = int(np.sum(program.kind == Op.WEIGHT))
    return "some" if whole and split else "yes" if split else "no"
