"""A trial: a layout that is really run for a few steps, and how that ended."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat

from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.spec import Spec

Ending = Literal["measured", "out_of_memory", "crash", "hang", "not_a_number", "lost_node"]
"""How a trial ends. A lost node says nothing of the layout; all others do."""


class Trial(Spec):
    """What is run."""

    number: int = Field(ge=1)
    job: Job
    layout: Layout
    why: str
    """One line: what this trial can change."""


class Outcome(Spec):
    """How a trial ended; times are there only when it is `measured`."""

    ending: Ending
    """`measured`, `out_of_memory`, `crash`, `hang`, `not_a_number` or `lost_node`."""
    reason: str = ""
    """One line for people; empty when it was measured."""
    step_time_s: PositiveFloat | None = None
    """Median of the steps after the warm-up."""
    lowest_s: PositiveFloat | None = None
    """Shortest step of those timed."""
    highest_s: PositiveFloat | None = None
    """Longest step of those timed."""
    steps: NonNegativeInt = 0
    """Steps that were timed."""
    peak_reserved_bytes: NonNegativeFloat | None = None
    """Device memory of the fullest rank that reports it; null: the run does not say."""
    seconds: NonNegativeFloat = 0.0
    """From the start of the launch to its end."""
    log: str | None = None
    """File that has what the processes said; of a tuning run, below its folder."""
