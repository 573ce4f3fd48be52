"""The table of alternatives: finalists on the clock, in the order they are told."""

from __future__ import annotations

from trainplan.costmodel.blocks.candidates import context_of
from trainplan.costmodel.layouts import LayoutTable
from trainplan.costmodel.machine import Machine
from trainplan.costmodel.machine.uncertainty import near_tie_fraction
from trainplan.costmodel.spec import Job
from trainplan.costmodel.step import explicit
from trainplan.planner.evidence.evidence import is_inside
from trainplan.planner.plan import Candidate, SearchOptions


def candidates_of(
    job: Job, machine: Machine, options: SearchOptions, finalists: LayoutTable
) -> tuple[Candidate, ...]:
    """The answer first, then near-ties, then the others by time.

    Near-ties come by evidence, which is left out where the answer alone is asked for: those inside
    what was measured first, then by headroom.
    """
    rows = context_of(job, machine).with_table(finalists)
    estimates = explicit(rows, memory_margin=options.memory_margin)
    layouts = [finalists.row(i) for i in range(len(estimates))]
    limit = estimates[0].step_time_s * (1 + near_tie_fraction())
    ties = [e.step_time_s <= limit for e in estimates]
    inside = [None if options.only_answer else is_inside(job, layout) for layout in layouts]

    def place(i: int) -> tuple[bool, bool, bool, float]:
        headroom, step = estimates[i].memory.headroom_bytes, estimates[i].step_time_s
        return i > 0, not ties[i], ties[i] and not inside[i], -headroom if ties[i] else step

    order = sorted(range(len(estimates)), key=place)
    return tuple(
        Candidate(
            rank=rank,
            layout=layouts[i],
            estimate=estimates[i],
            near_tie=ties[i] and i > 0,
            inside_measured=inside[i],
        )
        for rank, i in enumerate(order, start=1)
    )
