"""Run the schedules of priced layouts on a clock."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from costmodel.data_parallel import exposed_seconds
from costmodel.estimate import Priced
from costmodel.schedules import SCHEDULES
from costmodel.schedules.program import EQUAL, RelativeSeconds
from costmodel.spec.job import Job
from costmodel.spec.layout import SCHEDULE_NAMES
from costmodel.stages import decoder_of, layers_again, stage_layers
from costmodel.steady import rank_end_seconds, relative_seconds, units_of
from costmodel.table import FloatColumn, IntColumn, distinct
from costmodel.timeline import StageSeconds, first_start_seconds


@dataclass(frozen=True, slots=True)
class Makespans:
    """Simulated seconds of the pipelined part of one step."""

    with_messages: float
    instant: float
    """As if messages between stages took no time."""
    dp_comm: float
    """What gradient and parameter traffic adds to the first."""


@dataclass(frozen=True, slots=True)
class SimulatedTable:
    """`Makespans` of many layouts."""

    with_messages: FloatColumn
    instant: FloatColumn
    dp_comm: FloatColumn

    def row(self, index: int) -> Makespans:
        """One of them."""
        return Makespans(
            float(self.with_messages[index]), float(self.instant[index]), float(self.dp_comm[index])
        )


def simulate(job: Job, priced: Priced) -> SimulatedTable:
    """Run each row's schedule, with its messages and with instant ones.

    `priced` keeps every rank apart. Rows with one program run together. Where each rank ends a
    step on its own, the step lasts as long as the longest of them, see `ends_apart`.
    """
    table = priced.table
    first, shape = distinct(table.schedule, table.pp, table.vpp, priced.microbatches)
    with_messages, instant, dp_comm = np.zeros((3, len(table)))
    for number, one in enumerate(first.tolist()):
        alike = np.flatnonzero(shape == number)
        pp, name = int(table.pp[one]), SCHEDULE_NAMES[table.schedule[one]]
        seconds, p2p = virtual_stage_seconds(job, priced, alike), priced.seconds.p2p[alike]
        for relative, some in _programs(name, seconds, p2p):
            rows, delays = alike[some], np.concatenate([p2p[some], np.zeros(len(some))])
            passes = seconds.take(some).twice()
            both = rank_end_seconds(
                name,
                (pp, int(table.vpp[one])),
                int(priced.microbatches[one]),
                passes,
                p2p=delays,
                relative=relative,
            )
            if priced.seconds.apart[rows].any():
                apart = np.tile(priced.seconds.apart[rows], 2)[:, None]
                both = both - apart * first_start_seconds(passes, delays, pp)
            ends = both[: len(rows)]
            with_messages[rows] = ends.max(axis=1)
            instant[rows] = np.minimum(both[len(rows) :].max(axis=1), with_messages[rows])
            traffic = priced.traffic[:pp, rows]
            dp_comm[rows] = exposed_seconds(with_messages[rows], ends.T, traffic)
    return SimulatedTable(with_messages, instant, dp_comm)


def _programs(
    schedule: str, seconds: StageSeconds, p2p: FloatColumn
) -> Iterator[tuple[RelativeSeconds, IntColumn]]:
    """Candidates that run one program: all of them, unless it adapts to relative durations."""
    if not SCHEDULES[schedule].adapts:
        yield EQUAL, np.arange(len(p2p))
        return
    relative = relative_seconds(seconds, p2p, units_of(schedule))
    for one in dict.fromkeys(relative):
        yield one, np.flatnonzero([other == one for other in relative])


def virtual_stage_seconds(job: Job, priced: Priced, rows: IntColumn) -> StageSeconds:
    """Seconds of every virtual stage; shape (row, stage).

    All rows have one `pp`, `vpp` and schedule. Source: derived; sums of blocks.
    """
    table, decoder = priced.table.take(rows), decoder_of(job)
    stages = stage_layers(decoder, int(table.pp[0] * table.vpp[0]))
    seconds = priced.seconds
    forward, backward, weight = np.zeros((3, len(rows), len(stages.dense)))
    for block, count in zip(seconds.by_kind, stages.by_kind, strict=True):
        forward += block.forward[rows][:, None] * count
        backward += block.backward[rows][:, None] * count
        weight += block.weight[rows][:, None] * count
    repeated = layers_again(decoder, stages, table)
    for block, again in zip((seconds.dense, seconds.moe), repeated, strict=True):
        backward += block.again[rows][:, None] * again
    return StageSeconds(forward, backward, weight)
