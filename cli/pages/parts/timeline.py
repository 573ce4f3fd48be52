"""A pipeline on the clock as text: one row for each rank, time from left to right."""

from collections.abc import Iterator
from itertools import groupby

import numpy as np
from rich.text import Text

from trainplan.costmodel.columns import IntMatrix
from trainplan.costmodel.program import LETTERS, Op
from trainplan.costmodel.timeline import Timeline

IDLE = "."
CROWDED = (
    "Several ops share a column, which shows one of them: patterns in it are not real; --width or "
    "--trace shows all"
)
MOST_ROWS = 24
"""More ranks than that are shortened: the first and the last."""
STYLES = {
    Op.FORWARD: "blue",
    Op.BACKWARD: "green",
    Op.WEIGHT: "magenta",
    Op.WHOLE: "green",
    Op.VOCAB_FORWARD: "cyan",
    Op.VOCAB_BACKWARD: "yellow",
    Op.OFFLOAD: "red",
    Op.RELOAD: "yellow",
}
MEANINGS = {
    Op.FORWARD: "forward",
    Op.BACKWARD: "input gradient",
    Op.WEIGHT: "weight gradient",
    Op.WHOLE: "both gradients",
    Op.VOCAB_FORWARD: "output layer, forward",
    Op.VOCAB_BACKWARD: "output layer, gradients",
    Op.OFFLOAD: "copy to the host",
    Op.RELOAD: "copy back",
}


def timeline_text(timeline: Timeline, width: int) -> Text:
    """Rows, a time axis and a legend, `width` columns at most.

    Every column shows the op that runs in its middle. An op starts with its micro batch, where it
    is wide enough, and goes on with the letter of its kind.
    """
    names = _names(timeline)
    margin = max(len(name) for name in names) + 1
    columns = max(1, width - margin)
    text = Text()
    for row in _shown(len(names)):
        if row is None:
            text.append(f"{'...':<{margin}}{len(names) - MOST_ROWS} rows more\n")
            continue
        text.append(f"{names[row]:<{margin}}")
        for word, style in _row(timeline, row, columns):
            text.append(word, style=style)
        text.append("\n")
    text.append(" " * margin + _axis(timeline.makespan, columns) + "\n")
    text.append(_legend(timeline))
    if timeline.program.lengths.max() > columns:
        text.append(f"\n{CROWDED}")
    return text


def _names(timeline: Timeline) -> list[str]:
    pp = timeline.program.pp
    rows = len(timeline.program.kind)
    return [f"rank {row}" if row < pp else f"copies {row - pp}" for row in range(rows)]


def _shown(rows: int) -> list[int | None]:
    if rows <= MOST_ROWS:
        return list(range(rows))
    half = MOST_ROWS // 2
    return [*range(half), None, *range(rows - half, rows)]


def _row(timeline: Timeline, row: int, columns: int) -> Iterator[tuple[str, str]]:
    """Words of one row with their styles, idle time included."""
    for position, group in groupby(positions(timeline, row, columns).tolist()):
        size = len(list(group))
        if position < 0:
            yield IDLE * size, "dim"
        else:
            yield _word(timeline, row, position, size), STYLES[_kind(timeline, row, position)]


def positions(timeline: Timeline, row: int, columns: int) -> IntMatrix:
    """Position of the op that runs in the middle of each column; -1 where the row idles."""
    length = int(timeline.program.lengths[row])
    middle = (np.arange(columns) + 0.5) * timeline.makespan / columns
    if length == 0:
        return np.full(columns, -1)
    end = timeline.end[row, :length]
    running = np.minimum(np.searchsorted(end, middle, side="right"), length - 1)
    runs = (timeline.start[row, running] <= middle) & (middle < end[running])
    return np.where(runs, running, -1)


def _kind(timeline: Timeline, row: int, position: int) -> Op:
    return Op(int(timeline.program.kind[row, position]))


def _word(timeline: Timeline, row: int, position: int, size: int) -> str:
    """An op as wide as it lasts; in lower case where it is of every second virtual stage."""
    program = timeline.program
    kind = _kind(timeline, row, position)
    chunk = int(program.stage[row, position]) // program.pp
    letter = LETTERS[kind]
    if chunk % 2 and kind <= Op.WHOLE:
        letter = letter.lower()
    number = str(program.microbatch[row, position])
    if size > len(number):
        return number + letter * (size - len(number))
    return letter * size


def _axis(makespan: float, columns: int) -> str:
    end = f"{makespan:g}"
    return "0" + end.rjust(columns - 1) if columns > len(end) + 1 else ""


def _legend(timeline: Timeline) -> str:
    program = timeline.program
    found = [kind for kind in LETTERS if (program.kind == kind).any()]
    parts = [f"{LETTERS[kind]} {MEANINGS[kind]}" for kind in found]
    unit = "chunk of a micro batch" if program.sequence_chunks > 1 else "micro batch"
    parts.append(f"the number is the {unit}")
    if program.num_stages > program.pp:
        parts.append("lower case: every second virtual stage")
    elif program.copies > 1:
        parts.append("lower case: the other copy of the model")
    return ", ".join([*parts, f"{IDLE} idle"])
