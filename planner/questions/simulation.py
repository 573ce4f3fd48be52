"""A layout's pipeline on the clock: every pass of every rank, then what ends the step."""

from dataclasses import dataclass

import numpy as np

from trainplan.costmodel.base import SpecError
from trainplan.costmodel.calibration import NOTHING, Measured, machine_for
from trainplan.costmodel.candidates import context_of
from trainplan.costmodel.columns import FloatColumn
from trainplan.costmodel.copy_streams import Span, timeline
from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.layouts import LayoutTable
from trainplan.costmodel.pipeline import in_groups
from trainplan.costmodel.program import EQUAL, Shape
from trainplan.costmodel.schedules import SCHEDULES, program_for
from trainplan.costmodel.step import (
    busy_with_messages,
    explicit,
    price,
    row_work,
    virtual_stage_seconds,
)
from trainplan.costmodel.timeline import StageSeconds, relative_seconds, units_of
from trainplan.planner.questions.estimation import check
from trainplan.planner.schedules import Scored, require_size, score


@dataclass(frozen=True, slots=True)
class Simulation:
    """One step; seconds as a run would take them."""

    scored: Scored
    """The schedule, with the seconds of every pass."""
    traffic: tuple[float, ...]
    """Of each rank: gradient reduction and parameter gather that outlast its passes."""
    optimizer: float
    """Optimizer step of all ranks, with what is offloaded."""
    step_time_s: float
    """What `plan estimate` states of the step."""
    lanes: tuple[Span, ...] = ()
    """What every lane of the slowest rank does, where something is off the GPU: seconds from the
    start of the step, before what no term explains."""
    message: float = 0.0
    """Of a message between stages: what occupies neither of them."""

    @property
    def ends(self) -> FloatColumn:
        """End of each rank's last pass."""
        rows = slice(self.scored.program.pp)
        return np.asarray(self.scored.timeline.end[rows].max(axis=1))

    @property
    def busy(self) -> FloatColumn:
        """Seconds in which each rank computes."""
        rows = slice(self.scored.program.pp)
        return np.asarray(self.scored.timeline.seconds[rows].sum(axis=1))

    @property
    def traffic_end(self) -> float:
        """When the last rank has sent: the optimizer starts."""
        return float((self.ends + np.array(self.traffic)).max())

    @property
    def dp_comm(self) -> float:
        """What the traffic adds to the makespan."""
        return max(0.0, self.traffic_end - self.scored.makespan)

    @property
    def overhead(self) -> float:
        """What no term explains."""
        explained = self.scored.makespan + self.dp_comm + self.optimizer
        return self.step_time_s - explained


def simulate(job: Job, layout: Layout, measured: Measured = NOTHING) -> Simulation:
    """Run a layout's schedule with the seconds of the estimate.

    Raises:
        SpecError: The layout breaks a rule, or its schedule has too many ops to be kept.
    """
    check(job, layout)
    machine = machine_for(job, measured)
    candidates = context_of(job, machine).with_table(LayoutTable.of([layout]))
    if in_groups(candidates.table).any():
        raise SpecError(
            "stages in several node groups have messages of different length, which no timeline "
            "draws: simulate the layout without its groups, or read the terms of `plan estimate`"
        )
    priced = price(candidates, merged=False).with_lanes_run()
    work = row_work(priced, 0)
    shape = require_size(Shape(layout.pp, layout.vpp, int(priced.microbatches[0])))
    seconds = virtual_stage_seconds(priced, np.array([0]))
    relative = relative_seconds(seconds, priced.seconds.p2p[:1], units_of(layout.schedule))[0]
    seconds, way = busy_with_messages(priced, np.array([0]), seconds)
    adapts = SCHEDULES[layout.schedule].adapts
    program = program_for(priced.schedule_of(0), shape, relative if adapts else EQUAL)
    speed = machine.speed
    passes = StageSeconds(seconds.forward / speed, seconds.backward / speed, seconds.weight / speed)
    message = float(way[0]) / speed
    return Simulation(
        scored=score(layout.schedule, program, passes, message),
        traffic=tuple((np.broadcast_to(priced.traffic, (layout.pp, 1))[:, 0] / speed).tolist()),
        optimizer=float(priced.update[0]) / speed,
        step_time_s=explicit(candidates)[0].step_time_s,
        lanes=tuple(timeline(work)) if work else (),
        message=message,
    )
