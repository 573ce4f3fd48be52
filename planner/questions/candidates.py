"""The table of alternatives: finalists on the clock, in the order they are told."""

from trainplan.costmodel.candidates import Context
from trainplan.costmodel.layouts import LayoutTable
from trainplan.costmodel.step import explicit
from trainplan.costmodel.uncertainty import is_near_tie, place_of_tie
from trainplan.planner.evidence import stays_inside
from trainplan.planner.plan import Candidate, SearchOptions


def candidates_of(
    on: Context, options: SearchOptions, finalists: LayoutTable
) -> tuple[Candidate, ...]:
    """The answer first, then near-ties, then the others by time.

    Near-ties come as `place_of_tie` says; what was measured is left out where the answer alone is
    asked for.
    """
    estimates = explicit(on.with_table(finalists), memory_margin=options.memory_margin)
    layouts = [finalists.row(i) for i in range(len(estimates))]
    best, seconds = layouts[0], [estimate.step_time_s for estimate in estimates]
    ties = [is_near_tie(layouts[i], seconds[i], best, seconds[0]) for i in range(len(layouts))]
    inside = [None if options.only_answer else stays_inside(on, layout) for layout in layouts]

    def place(i: int) -> tuple[bool, bool, bool, float]:
        rest = place_of_tie(inside[i], seconds[i]) if ties[i] else (False, seconds[i])
        return i > 0, not ties[i], *rest

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
