"""A pipeline on the clock as a trace for chrome://tracing and ui.perfetto.dev.

Source: Trace Event Format, Google, 2016: complete events (X), flow events (s, f), metadata (M),
times in microseconds.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from trainplan.costmodel.base import SpecError
from trainplan.costmodel.columns import FloatMatrix
from trainplan.costmodel.copy_streams import Lane
from trainplan.costmodel.program import LETTERS, NOTHING, Op, Program, sources
from trainplan.costmodel.timeline import Timeline

MICRO = 1e6
MOST_OPS = 300_000
"""Larger traces take hundreds of megabytes, more than the viewers open."""
COMPUTE, COPIES, NETWORK, LANE = 0, 1, 2, 3
"""Threads of a rank; from `LANE` on those of `costmodel.copy_streams`, in their order."""
LANES = {COMPUTE: "compute", COPIES: "copies", NETWORK: "data parallel"}
LANES |= {LANE + lane: f"slowest rank: {lane.plain}" for lane in Lane}
CATEGORIES = {
    Op.FORWARD: "forward",
    Op.BACKWARD: "input gradient",
    Op.WEIGHT: "weight gradient",
    Op.WHOLE: "backward",
    Op.VOCAB_FORWARD: "output layer",
    Op.VOCAB_BACKWARD: "output layer",
    Op.OFFLOAD: "copy",
    Op.RELOAD: "copy",
}
DIGITS = 6
"""Of a microsecond: an arrow and the op it touches have the same time, and so have two ops that
follow one another."""
NANOSECOND = 1e-3
"""In microseconds; viewers count whole ones."""
INSIDE = 0.999
"""Part of an op after which its message starts: an arrow belongs to the op that is running."""

Event = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Extra:
    """Something a rank does that is no pass."""

    rank: int
    lane: int
    name: str
    start: float
    """Seconds, like the timeline's."""
    seconds: float


def trace_text(timeline: Timeline, extras: Sequence[Extra] = ()) -> str:
    """The trace, one event a line, in the order of time.

    Raises:
        SpecError: The timeline has too many ops to look at.
    """
    count = int(timeline.program.lengths.sum())
    if count > MOST_OPS:
        raise SpecError(
            f"--trace: {count:,} ops are more than the {MOST_OPS:,} that viewers open: lower "
            "num_microbatches"
        )
    events = [*_ops(timeline), *_messages(timeline), *(_extra(extra) for extra in extras)]
    events.sort(key=_when)
    every = (*_names(timeline.program, extras), *events)
    lines = ",\n".join(json.dumps(event, allow_nan=False) for event in every)
    return f'{{"displayTimeUnit": "ms", "traceEvents": [\n{lines}\n]}}\n'


def _when(event: Event) -> float:
    when = event["ts"]
    assert isinstance(when, float)
    return when


def _names(program: Program, extras: Sequence[Extra]) -> Iterator[Event]:
    lanes = {COMPUTE, *([COPIES] if program.copy_lanes else []), *(extra.lane for extra in extras)}
    for rank in range(program.pp):
        process = {"name": "process_name", "ph": "M", "pid": rank}
        yield {**process, "args": {"name": f"pipeline rank {rank}"}}
        yield {**process, "name": "process_sort_index", "args": {"sort_index": rank}}
        for lane in sorted(lanes):
            thread = {"name": "thread_name", "ph": "M", "pid": rank, "tid": lane}
            yield {**thread, "args": {"name": LANES[lane]}}


def _ops(timeline: Timeline) -> Iterator[Event]:
    """Every op as a complete event."""
    program = timeline.program
    start, end = _micros(timeline.start), _micros(timeline.end)
    for row, position in np.argwhere(program.kind != Op.NONE).tolist():
        kind, microbatch = Op(int(program.kind[row, position])), program.microbatch[row, position]
        lane, rank = divmod(row, program.pp)
        yield {
            "name": f"{LETTERS[kind]} {microbatch}",
            "cat": CATEGORIES[kind],
            "ph": "X",
            "ts": float(start[row, position]),
            "dur": float(end[row, position] - start[row, position]),
            "pid": rank,
            "tid": lane,
            "args": {
                "stage": int(program.stage[row, position]),
                "microbatch": int(microbatch) // program.sequence_chunks,
                **_chunk(program, int(microbatch)),
            },
        }


def _micros(seconds: FloatMatrix) -> FloatMatrix:
    """Microseconds, all rounded the same."""
    return np.round(seconds * MICRO, DIGITS)


def _chunk(program: Program, microbatch: int) -> dict[str, int]:
    chunks = program.sequence_chunks
    return {"sequence_chunk": microbatch % chunks} if chunks > 1 else {}


def _messages(timeline: Timeline) -> Iterator[Event]:
    """Every message between ranks as an arrow from the op that makes it to the op that needs it.

    An op that takes no time has no slice to touch, and no arrow.
    """
    program = timeline.program
    start, end = _micros(timeline.start), _micros(timeline.end)
    seen = (end - start >= NANOSECOND).ravel()
    source = sources(program)[0]
    arrives = (source != NOTHING) & seen[source] & seen.reshape(source.shape)
    number = 0
    for row, position in np.argwhere(arrives).tolist():
        sender, place = divmod(int(source[row, position]), source.shape[1])
        if sender % program.pp == row % program.pp:
            continue
        number += 1
        named = {"name": _message(program, row, position), "cat": "message", "id": number}
        leaves = _leaves(float(start[sender, place]), float(end[sender, place]))
        yield {**named, "ph": "s", "ts": leaves, **_lane(program, sender)}
        arrival = float(start[row, position])
        yield {**named, "ph": "f", "bp": "e", "ts": arrival, **_lane(program, row)}


def _message(program: Program, row: int, position: int) -> str:
    forward = program.kind[row, position] in (Op.FORWARD, Op.VOCAB_FORWARD)
    return "activation" if forward else "gradient"


def _lane(program: Program, row: int) -> dict[str, int]:
    return {"pid": row % program.pp, "tid": row // program.pp}


def _leaves(began: float, ended: float) -> float:
    """Time shortly before the end of an op, and early enough for viewers that cut nanoseconds off.

    Source: derived; the start and the length of an op lose one nanosecond each.
    """
    late = min(began + INSIDE * (ended - began), ended - 2 * NANOSECOND)
    return max(began, round(late, DIGITS))


def _extra(extra: Extra) -> Event:
    start, end = _micros(np.array([extra.start, extra.start + extra.seconds])).tolist()
    return {
        "name": extra.name,
        "cat": "step end",
        "ph": "X",
        "ts": start,
        "dur": end - start,
        "pid": extra.rank,
        "tid": extra.lane,
    }
