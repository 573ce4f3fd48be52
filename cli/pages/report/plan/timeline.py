"""The pipeline on the clock: what every rank computes, sends and copies, to be zoomed into."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from trainplan.cli.blocks import Block, Folded, Paragraph, Section, Table, number, table
from trainplan.cli.pages.report.plan.bars import Bars, bars_chart, lanes_chart
from trainplan.cli.pages.simulation import mean_wait, ranks_table
from trainplan.cli.words import like, otherwise_text, seconds
from trainplan.costmodel.base import SpecError
from trainplan.costmodel.calibration import Measured
from trainplan.costmodel.columns import IntMatrix
from trainplan.costmodel.layouts import num_microbatches
from trainplan.costmodel.program import NOTHING, Op, sources
from trainplan.planner.documents import changed_values, estimate_json
from trainplan.planner.plan import Plan
from trainplan.planner.questions import Simulation, estimate, simulate

MOST_SIMULATED = 400_000
"""Ops of a schedule that a report still runs. Source: measured; about 10 us an op."""
MOST_BARS = 4_000
"""Ops that are drawn in one chart. Source: measured; headless Chromium draws them in 0.3 s."""
SEEN_IN_PART = "A part is seen at first: drag, or press a button, for the rest."
LEGIBLE = 200
"""Ops of a rank that are seen at first, a few pixels each."""
MOST_RANKS = 16
"""Ranks of which single ops are drawn, where not all ops are."""
KINDS: tuple[tuple[str, str, tuple[Op, ...]], ...] = (
    ("forward", "@blue", (Op.FORWARD,)),
    ("backward", "@teal", (Op.WHOLE,)),
    ("input gradient", "@teal", (Op.BACKWARD,)),
    ("weight gradient", "@brown", (Op.WEIGHT,)),
    ("output layer", "@pink", (Op.VOCAB_FORWARD, Op.VOCAB_BACKWARD)),
    ("copies of activations", "@olive", (Op.OFFLOAD, Op.RELOAD)),
)
"""Name, colour and ops of what is drawn."""
ALL, DRAWN = "All of the step: ", "All passes are drawn."
COMPUTE, SENDS, COPIES = (-0.14, 0.6), (0.26, 0.16), (0.41, 0.12)
"""Lanes of a rank: middle against the rank's, and height, in rows."""


@dataclass(frozen=True, slots=True)
class Window:
    """What is drawn: ranks, and from when to when."""

    name: str
    title: str
    says: str
    ranks: tuple[int, ...]
    begin: float
    end: float

    def has(self, start: float, length: float) -> bool:
        """Is any of it seen?"""
        return length > 0 and start < self.end and start + length > self.begin


def timeline_section(plan: Plan, measured: Measured, name: str) -> Section:
    """The chart, or why there is none; `name` is the file of the plan."""
    blocks = tuple(_blocks(plan, measured, name))
    return Section("timeline", "The pipeline on the clock", blocks)


def _blocks(plan: Plan, measured: Measured, name: str) -> Iterator[Block]:
    layout = plan.best.layout
    ops = 2 * layout.pp * layout.vpp * num_microbatches(plan.job, layout)
    if ops > MOST_SIMULATED:
        yield Paragraph(f"{ops:,} passes are too many for a page: `plan simulate` runs them.")
        return
    try:
        simulation = simulate(plan.job, layout, measured)
    except SpecError as error:
        yield Paragraph(f"Not drawn: {error}.", "doubtful")
        return
    now = estimate(plan.job, layout, measured, memory_margin=plan.memory_margin)
    if changed := changed_values(estimate_json(plan.best.estimate), now):
        yield Paragraph(f"{otherwise_text(name, changed)}.", "doubtful")
    yield from _charts(simulation)
    yield Folded("Seconds of every pipeline rank", (ranks_table(simulation),))
    if simulation.lanes:
        yield lanes_chart(simulation.lanes)


def windows(simulation: Simulation) -> tuple[Window, ...]:
    """All of it, or of some ranks the beginning and the end, where all is too much."""
    timeline, step = simulation.scored.timeline, simulation.step_time_s
    pp = timeline.program.pp
    every = tuple(range(pp))
    if int(timeline.program.lengths.sum()) <= MOST_BARS:
        return (Window("pipeline", ALL, DRAWN, every, 0.0, step),)
    some = tuple(np.unique(np.linspace(0, pp - 1, min(pp, MOST_RANKS)).astype(int)).tolist())
    used = timeline.program.kind[list(some)] != Op.NONE
    says = "" if some == every else f"{len(some)} of {pp} ranks are drawn."
    if used.sum() <= MOST_BARS:
        return (Window("pipeline", ALL, says, some, 0.0, step),)
    half = MOST_BARS // 2
    first = float(np.sort(timeline.start[list(some)][used])[half])
    last = float(np.sort(timeline.end[list(some)][used])[-half])
    until, since = f"Drawn until {seconds(first)}. ", f"Drawn from {seconds(last)}. "
    return (
        Window("pipeline-begin", "The beginning: ", f"{until}{says}".strip(), some, 0.0, first),
        Window("pipeline-end", "The end: ", f"{since}{says}".strip(), some, last, step),
    )


def _charts(simulation: Simulation) -> Iterator[Block]:
    found = windows(simulation)
    yield Paragraph(_says(simulation))
    for window in found:
        bars = [one for one in _bars(simulation, window) if one.length]
        seen = _first_seen(simulation, window)
        part = "" if seen == (window.begin, window.end) else SEEN_IN_PART
        yield bars_chart(
            window.name,
            f"{window.title}each pipeline rank, in seconds from the start of the step",
            f"{window.says} {part}".strip(),
            bars,
            _sums_table(bars, window, simulation.step_time_s),
            rows={row + COMPUTE[0]: f"rank {rank}" for row, rank in enumerate(window.ranks)},
            whole=(window.begin, window.end),
            first_seen=seen,
            height=150 + 36 * len(window.ranks),
        )
    if len(found) > 1:
        yield Paragraph("Between the two the pattern goes on; `plan simulate --trace` has it all.")


def _first_seen(simulation: Simulation, window: Window) -> tuple[float, float]:
    """So much of a window that ops are distinct: from its begin, or up to the step's end."""
    timeline = simulation.scored.timeline
    begin, end = window.begin, window.end
    for rank in window.ranks:
        number = int(timeline.program.lengths[rank])
        if window.begin == 0 and number > LEGIBLE:
            end = min(end, float(timeline.end[rank, LEGIBLE]))
        elif number > LEGIBLE:
            begin = max(begin, float(timeline.start[rank, number - LEGIBLE]))
    return begin, end


def _says(simulation: Simulation) -> str:
    timeline = simulation.scored.timeline
    return (
        f"Schedule {simulation.scored.kind}, micro batches of a replica: "
        f"{timeline.program.num_microbatches:,}. The passes take "
        f"{seconds(simulation.scored.makespan)} of a step of {seconds(simulation.step_time_s)}; "
        f"the mean rank waits {mean_wait(simulation)}. Communication within a pass, such as of "
        "tensor ranks, is part of the pass."
    )


def _bars(simulation: Simulation, window: Window) -> Iterator[Bars]:
    """Ops of every kind, messages, and what ends the step."""
    row_of = {rank: row for row, rank in enumerate(window.ranks)}
    for name, colour, kinds in KINDS:
        lane = COPIES if Op.OFFLOAD in kinds else COMPUTE
        bars = Bars(name, colour, lane[1])
        for rank, start, length, text in _ops(simulation, window, kinds):
            if rank in row_of:
                bars.add(row_of[rank] + lane[0], start, length, text)
        yield bars
    yield _messages(simulation, window, row_of)
    yield from _end(simulation, window, row_of)


def _ops(
    simulation: Simulation, window: Window, kinds: tuple[Op, ...]
) -> Iterator[tuple[int, float, float, str]]:
    """Rank, start, seconds and words of every op that is seen."""
    timeline = simulation.scored.timeline
    program = timeline.program
    chosen = np.isin(program.kind, kinds)
    chosen &= (timeline.end > window.begin) & (timeline.start < window.end)
    for row, place in np.argwhere(chosen).tolist():
        start, end = float(timeline.start[row, place]), float(timeline.end[row, place])
        what = f"micro batch {program.microbatch[row, place]}, stage {program.stage[row, place]}"
        yield row % program.pp, start, end - start, what


def _messages(simulation: Simulation, window: Window, row_of: dict[int, int]) -> Bars:
    """From the end of the op that makes a message until it arrives."""
    timeline, length = simulation.scored.timeline, simulation.message
    program = timeline.program
    bars = Bars("message to another stage", "@grey", SENDS[1])
    if not length or program.pp == 1:
        return bars
    source = sources(program)[0]
    for row, place in _crossing(source, program.pp):
        sender, position = divmod(int(source[row, place]), source.shape[1])
        rank, start = sender % program.pp, float(timeline.end[sender, position])
        if rank in row_of and window.has(start, length):
            bars.add(
                row_of[rank] + SENDS[0], start, length, f"rank {rank} to rank {row % program.pp}"
            )
    return bars


def _crossing(source: IntMatrix, pp: int) -> list[list[int]]:
    """Ops whose input comes from another rank."""
    rows = np.arange(len(source))[:, None] % pp
    from_rank = (source // source.shape[1]) % pp
    found: list[list[int]] = np.argwhere((source != NOTHING) & (from_rank != rows)).tolist()
    return found


def _end(simulation: Simulation, window: Window, row_of: dict[int, int]) -> Iterator[Bars]:
    """Gradients and weights to the replicas, the update, and what no term explains."""
    sent = Bars("gradients and weights to replicas", "@violet", SENDS[1])
    update, rest = Bars("update", "@green", COMPUTE[1]), Bars("overhead", "@grid", COMPUTE[1])
    begin = max(simulation.traffic_end, simulation.scored.makespan)
    for rank, row in row_of.items():
        end, traffic = float(simulation.ends[rank]), simulation.traffic[rank]
        if window.has(end, traffic):
            sent.add(row + SENDS[0], end, traffic, f"rank {rank}")
        for bars, start, length in (
            (update, begin, simulation.optimizer),
            (rest, begin + simulation.optimizer, simulation.overhead),
        ):
            if window.has(start, length):
                bars.add(row + COMPUTE[0], start, length, f"rank {rank}")
    yield from (sent, update, rest)


def _sums_table(bars: Sequence[Bars], window: Window, step: float) -> Table:
    """Seconds of what is drawn, by rank and kind."""
    rows = ((rank, *(one.seconds_on(row) for one in bars)) for row, rank in enumerate(window.ranks))
    columns = (number("rank"), *(number(one.name, like(step)) for one in bars))
    return table("Seconds of what is drawn", columns, rows)
