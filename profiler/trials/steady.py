"""When enough steps of a trial were seen.

The first two steps are warm-up: they compile, open communicators and allocate what stays. Of those
after them as many as wanted are timed, and half of these have to lie within 1 % of their median; a
run that does not get so steady is stopped at twice as many.
"""

from collections.abc import Mapping, Sequence

from trainplan.costmodel.documents import Outcome

WARM_UP_STEPS = 2
"""Source: assumed; the second step is the first with optimizer states and a full allocator."""
STEADY = 0.01
"""Source: assumed; the median of five such steps is known within half of it."""
MOST_TIMED = 2
"""Times as many steps as wanted."""


def steps_to_run(wanted: int) -> int:
    """Steps that a trial is exported with: the warm-up, and the most that are timed."""
    return WARM_UP_STEPS + MOST_TIMED * wanted


def timed(steps: Mapping[int, float]) -> tuple[float, ...]:
    """Seconds of the steps after the warm-up, in their order."""
    return tuple(steps[number] for number in sorted(steps))[WARM_UP_STEPS:]


def enough(times: Sequence[float], wanted: int) -> bool:
    """Are these steps enough?"""
    if len(times) < wanted:
        return False
    return len(times) >= MOST_TIMED * wanted or Outcome.spread(times) <= STEADY
