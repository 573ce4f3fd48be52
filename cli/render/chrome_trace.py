"""A pipeline on the clock as a trace for chrome://tracing and ui.perfetto.dev.

Source: Trace Event Format, Google, 2016: complete events (X), flow events (s, f), metadata (M),
times in microseconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from costmodel.errors import SpecError
from costmodel.schedules.dependencies import LETTERS, NOTHING, sources
from costmodel.schedules.program import Op, Program
from costmodel.timeline import Timeline

MICRO = 1e6
MOST_OPS = 300_000
"""Larger traces take hundreds of megabytes, more than the viewers open."""
COMPUTE, COPIES, NETWORK = 0, 1, 2
LANES = {COMPUTE: "compute", COPIES: "copies", NETWORK: "data parallel"}
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
INSIDE = 0.999
"""Part of an op after which its message starts: an arrow belongs to the op that is running."""

Event = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Extra:
    """Something a rank does beside its passes."""

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
    lines = ",\n".join(_line(event) for event in [*_names(timeline.program, extras), *events])
    return f'{{"displayTimeUnit": "ms", "traceEvents": [\n{lines}\n]}}\n'


def _when(event: Event) -> float:
    when = event["ts"]
    assert isinstance(when, float)
    return when


def _line(event: Event) -> str:
    return json.dumps(event, allow_nan=False)


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
    start, end = np.round(timeline.start * MICRO, 6), np.round(timeline.end * MICRO, 6)
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


def _chunk(program: Program, microbatch: int) -> dict[str, int]:
    chunks = program.sequence_chunks
    return {"sequence_chunk": microbatch % chunks} if chunks > 1 else {}


def _messages(timeline: Timeline) -> Iterator[Event]:
    """Every message between ranks as an arrow from the op that makes it to the op that needs it."""
    program = timeline.program
    positions = program.kind.shape[1]
    start, end = timeline.start * MICRO, timeline.end * MICRO
    source = sources(program)[0]
    number = 0
    for row, position in np.argwhere(source != NOTHING).tolist():
        from_row, from_position = divmod(int(source[row, position]), positions)
        if from_row % program.pp == row % program.pp:
            continue
        began, ended = start[from_row, from_position], end[from_row, from_position]
        kind = Op(int(program.kind[row, position]))
        number += 1
        arrow = {
            "name": "activation" if kind == Op.FORWARD else "gradient",
            "cat": "message",
            "id": number,
        }
        yield {
            **arrow,
            "ph": "s",
            "ts": float(began + INSIDE * (ended - began)),
            "pid": from_row % program.pp,
            "tid": from_row // program.pp,
        }
        yield {
            **arrow,
            "ph": "f",
            "bp": "e",
            "ts": float(start[row, position]),
            "pid": row % program.pp,
            "tid": row // program.pp,
        }


def _extra(extra: Extra) -> Event:
    return {
        "name": extra.name,
        "cat": "step end",
        "ph": "X",
        "ts": extra.start * MICRO,
        "dur": extra.seconds * MICRO,
        "pid": extra.rank,
        "tid": extra.lane,
    }
