"""The step of a plan on the clock, as text, as JSON and as lanes of a trace."""

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
from rich.text import Text

from trainplan.cli.blocks import Drawn, Part, Table, headed, number, table
from trainplan.cli.pages.parts.chrome_trace import COMPUTE, LANE, NETWORK, Extra
from trainplan.cli.pages.parts.lanes import lanes_text
from trainplan.cli.pages.parts.timeline import timeline_text
from trainplan.cli.pages.schedule import gap_text, proof_text
from trainplan.cli.words import DOT, like, percent, seconds, seconds_like
from trainplan.planner.questions import Simulation

LEGEND = "traffic: gradients and weights a rank still sends to its replicas after its last op"


def simulation_page(simulation: Simulation, width: int | None) -> Iterator[Part]:
    """The answer, the picture, every rank, and the sum."""
    scored, step = simulation.scored, simulation.step_time_s
    headline = DOT.join(
        (
            scored.kind,
            f"pipeline {seconds(scored.makespan)} of a step of {seconds(step)}",
            gap_text(scored),
        )
    )
    yield headed(headline, proof_text(scored, seconds))
    yield Drawn(partial(timeline_text, scored.timeline), width)
    if simulation.lanes:
        yield Drawn(partial(lanes_text, simulation.lanes), width)
    legend = Text(f"{LEGEND}\nthe mean rank waits {mean_wait(simulation)}")
    yield headed("Pipeline ranks", ranks_table(simulation), legend)
    yield _sum(simulation)


def mean_wait(simulation: Simulation) -> str:
    """Seconds that the mean rank waits in the passes, and their share of the step."""
    timeline, step = simulation.scored.timeline, simulation.step_time_s
    idle = timeline.bubble_fraction * timeline.makespan
    return f"{seconds_like(idle, step)}, {percent(idle / step)} of the step"


def ranks_table(simulation: Simulation) -> Table:
    """What every rank does until the last pass ends."""
    makespan = simulation.scored.makespan
    starts = simulation.scored.timeline.start[:, 0].tolist()
    of_it = number("of it", percent, only="screen")
    idle = number("idle", like(makespan), only="page")
    others = (number(head, like(makespan)) for head in ("first op", "last op"))
    traffic = number("traffic after it", like(makespan), screen="traffic")
    columns = (number("rank"), number("busy", like(makespan)), of_it, idle, *others, traffic)
    busy, ends = simulation.busy.tolist(), simulation.ends.tolist()
    each = zip(busy, starts, ends, simulation.traffic, strict=True)
    rows = (
        (rank, busy, busy / makespan if makespan else 0.0, makespan - busy, start, end, sent)
        for rank, (busy, start, end, sent) in enumerate(each)
    )
    return table("Seconds of every pipeline rank until the last pass ends", columns, rows)


def _sum(simulation: Simulation) -> Table:
    whole = simulation.step_time_s
    parts = {
        "pipeline": simulation.scored.makespan,
        "data-parallel traffic behind it": simulation.dp_comm,
        "optimizer": simulation.optimizer,
        "stragglers, data loading and other overhead": simulation.overhead,
        "step": whole,
    }
    return table("", ("The step", number("time", like(whole))), parts.items())


def step_end(simulation: Simulation) -> Sequence[Extra]:
    """Traffic of every rank behind its passes, and the optimizer when all have sent."""
    ranks = range(simulation.scored.program.pp)
    sent = zip(ranks, simulation.ends.tolist(), simulation.traffic, strict=True)
    start = max(simulation.traffic_end, float(np.max(simulation.ends)))
    updates = [Extra(r, COMPUTE, "optimizer", start, simulation.optimizer) for r in ranks]
    return [
        *(Extra(0, LANE + s.lane, s.name, s.start, s.end - s.start) for s in simulation.lanes),
        *(Extra(rank, NETWORK, "gradients and weights", end, t) for rank, end, t in sent if t),
        *(update for update in updates if update.seconds),
    ]
