"""Run the schedules of priced layouts on a clock."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from trainplan.costmodel.candidates import Candidates, remembered
from trainplan.costmodel.columns import BoolColumn, FloatColumn, IntColumn, RowRanks, distinct
from trainplan.costmodel.layouts import stage_codes
from trainplan.costmodel.pipeline import decoder_of, recomputed_layers, stage_layers
from trainplan.costmodel.program import EQUAL, RelativeSeconds
from trainplan.costmodel.schedules import SCHEDULES
from trainplan.costmodel.step.estimate import Priced
from trainplan.costmodel.timeline import (
    StageSeconds,
    first_start_seconds,
    rank_end_seconds,
    relative_seconds,
    units_of,
)
from trainplan.costmodel.traffic import exposed_seconds


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


def simulate(priced: Priced) -> SimulatedTable:
    """Run each row's schedule, with its messages and with instant ones.

    `priced` keeps every rank separate. Rows with one program run together. Where each rank ends a
    step on its own, the step lasts as long as the longest of them, see `unsynchronised`.
    """
    table = priced.table
    first, shape = distinct(table.schedule, table.pp, table.vpp, priced.microbatches)
    with_messages, instant, dp_comm = np.zeros((3, len(table)))
    for number, one in enumerate(first.tolist()):
        rows = np.flatnonzero(shape == number)
        pp, m = int(table.pp[one]), int(priced.microbatches[one])
        run = (priced.schedule_of(one), pp, int(table.vpp[one]), m)
        passes, own_start = virtual_stage_seconds(priced, rows), priced.seconds.unsynchronised[rows]
        ends, at_once = rank_ends(run, passes, priced.seconds.p2p[rows], own_start)
        if priced.seconds.sending[rows].any():
            ends, _ = rank_ends(run, *busy_with_messages(priced, rows, passes), own_start)
        with_messages[rows] = ends.max(axis=1)
        instant[rows] = np.minimum(at_once.max(axis=1), with_messages[rows])
        traffic = priced.traffic[:pp, rows]
        dp_comm[rows] = exposed_seconds(with_messages[rows], ends.T, traffic)
    return SimulatedTable(with_messages, instant, dp_comm)


def rank_ends(
    shape: tuple[str, int, int, int], seconds: StageSeconds, p2p: FloatColumn, own_start: BoolColumn
) -> tuple[RowRanks, RowRanks]:
    """When each rank ends its last pass, with messages and with instant ones.

    All rows have one shape (schedule, pp, vpp, micro batches); those of `own_start` count from
    each rank's own first pass. `p2p` is as in `op_ends`. Source: as `rank_end_seconds`.
    """
    name, pp, vpp, microbatches = shape
    ends, at_once = np.zeros((2, len(p2p), pp))
    for relative, some in _programs(name, seconds, p2p):
        delays = np.concatenate([p2p[some], np.zeros_like(p2p[some])])
        passes = seconds.take(some).twice()
        both = rank_end_seconds(
            name, (pp, vpp), microbatches, passes, p2p=delays, relative=relative
        )
        if own_start[some].any():
            from_own = np.tile(own_start[some], 2)[:, None]
            both = both - from_own * first_start_seconds(passes, delays, pp)
        ends[some], at_once[some] = both[: len(some)], both[len(some) :]
    return ends, at_once


def busy_with_messages(
    priced: Priced, rows: IntColumn, passes: StageSeconds
) -> tuple[StageSeconds, FloatColumn]:
    """Passes with the messages in which their ranks wait, and what is left of the way between.

    The pass of a sender ends with its message and that of the receiver begins with it. Both wait
    at once, so the receiver begins that much before the pass of the sender ends. Rows whose ranks
    do not wait stay as they are.
    Source: sender and receiver both spend the message, `Pipeline.waits_for_messages`, so it is
    a part of both passes; they spend it at once, so the way between them is minus `sending`.
    """
    sending, p2p = priced.seconds.sending[rows, None], priced.seconds.p2p[rows, None]
    received = (sending > 0) * p2p
    stage = np.arange(passes.forward.shape[1])
    behind, ahead = stage > 0, stage < stage[-1]
    forward = passes.forward + behind * received + ahead * sending
    backward = passes.backward + ahead * received + behind * sending
    way = np.where(sending > 0, -sending, p2p)[:, 0]
    return StageSeconds(forward, backward, passes.weight), way


def _programs(
    schedule: str, seconds: StageSeconds, p2p: FloatColumn
) -> Iterator[tuple[RelativeSeconds, IntColumn]]:
    """Candidates that run one program: all of them, unless it adapts to relative durations."""
    if not SCHEDULES[schedule].adapts:
        yield EQUAL, np.arange(len(p2p))
        return
    mean = p2p.reshape(len(p2p), -1).mean(axis=1)
    relative = relative_seconds(seconds, mean, units_of(schedule))
    for one in dict.fromkeys(relative):
        yield one, np.flatnonzero([other == one for other in relative])


def virtual_stage_seconds(priced: Priced, rows: IntColumn) -> StageSeconds:
    """Seconds of every virtual stage; shape (row, stage).

    All rows have one `pp` and `vpp`.

    Source: blocks of a stage follow one another, so its passes are sums over kinds of the number of
    blocks times their seconds; recomputed layers repeat theirs backward.
    """
    table = priced.table if len(priced.table) == 1 else priced.table.take(rows)
    number = int(table.pp[0] * table.vpp[0])
    codes, splits = stage_codes(table)
    forward, backward, weight = np.zeros((3, len(rows), number))
    for code in range(len(splits)):
        some = np.flatnonzero(codes == code)
        if not len(some):
            continue
        alike = priced.with_table(table if len(some) == len(table) else table.take(some))
        here = slice(None) if len(some) == len(priced.table) else rows[some]
        for block, (count, more) in zip(priced.seconds.by_kind, _blocks_of(alike), strict=True):
            again = block.recompute_forward[here, None] * more
            forward[some] += block.forward[here, None] * count
            backward[some] += block.backward[here, None] * count + again
            weight[some] += block.weight[here, None] * count
    return StageSeconds(forward, backward, weight)


@remembered
def _blocks_of(candidates: Candidates) -> list[tuple[IntColumn, IntColumn]]:
    """Of each kind, the blocks of every virtual stage, and those whose forward pass is repeated.

    Rows have one split in as many stages.
    """
    table = candidates.table
    decoder = decoder_of(candidates.job, table.stages[0])
    stages = stage_layers(decoder, int(table.pp[0] * table.vpp[0]))
    repeated = recomputed_layers(decoder, stages, table)
    again = (*repeated, *np.zeros((3, 1), dtype=np.int64))
    return list(zip(stages.by_kind, again, strict=True))
