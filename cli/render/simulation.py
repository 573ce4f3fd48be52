"""The step of a plan on the clock, as text, as JSON and as lanes of a trace."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
from rich.console import Group, RenderableType
from rich.text import Text

from trainplan.cli.blocks.screen import Drawn, Words, grid
from trainplan.cli.render.parts.chrome_trace import COMPUTE, LANE, NETWORK, Extra
from trainplan.cli.render.parts.lanes import lanes_text
from trainplan.cli.render.parts.timeline import timeline_text
from trainplan.cli.render.schedule import gap_text, proof_text
from trainplan.cli.terminal.text import DOT
from trainplan.cli.words import percent, seconds, seconds_like
from trainplan.planner.questions.simulate import Simulation

LEGEND = (
    "traffic: gradients and weights a rank still sends to its replicas after its last op\n"
    "bubble: what the mean rank idles; that of a plan is what its busiest rank waits"
)


def simulation_page(simulation: Simulation, width: int | None) -> Iterator[RenderableType]:
    """The answer, the picture, every rank, and the sum."""
    scored = simulation.scored
    headline = DOT.join(
        (
            scored.kind,
            f"pipeline {seconds(scored.makespan)} of a step of {seconds(simulation.step_time_s)}",
            f"bubble {percent(scored.timeline.bubble_fraction)}",
            gap_text(scored),
        )
    )
    yield Group(Text(headline, style="bold"), proof_text(scored, seconds))
    yield Drawn(partial(timeline_text, scored.timeline), width)
    if simulation.lanes:
        yield Drawn(partial(lanes_text, simulation.lanes), width)
    yield _ranks(simulation)
    yield _sum(simulation)


def _ranks(simulation: Simulation) -> RenderableType:
    makespan = simulation.scored.makespan
    starts = simulation.scored.timeline.start[:, 0]
    columns = ("rank", "busy", "of it", "first op", "last op", "traffic")
    rows = (
        (
            f"{rank}",
            seconds_like(busy, makespan),
            percent(busy / makespan if makespan else 0.0),
            seconds_like(float(starts[rank]), makespan),
            seconds_like(end, makespan),
            seconds_like(traffic, makespan),
        )
        for rank, (busy, end, traffic) in enumerate(
            zip(simulation.busy.tolist(), simulation.ends.tolist(), simulation.traffic, strict=True)
        )
    )
    return Group(Text("Pipeline ranks", style="bold"), grid(columns, rows), Text(LEGEND))


def _sum(simulation: Simulation) -> RenderableType:
    whole = simulation.step_time_s
    parts = {
        "pipeline": simulation.scored.makespan,
        "data-parallel traffic behind it": simulation.dp_comm,
        "optimizer": simulation.optimizer,
        "stragglers, data loading and other overhead": simulation.overhead,
        "step": whole,
    }
    columns = (Words("The step"), "time")
    return grid(columns, ((name, seconds_like(value, whole)) for name, value in parts.items()))


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
