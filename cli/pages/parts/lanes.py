"""What lanes off the GPU do in a step, and what they cost."""

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType

from trainplan.cli.blocks import Part, number, stacked, table
from trainplan.cli.words import gib, percent, seconds
from trainplan.costmodel.base import SECONDS_PER_DAY
from trainplan.costmodel.copy_streams import Lane, Span
from trainplan.costmodel.step import Estimate

DAYS_PER_YEAR = 365.25
LITTLE = 0.001
"""Of a step: what saves less is not worth a number."""


def lanes_part(estimate: Estimate) -> Iterator[Part]:
    """Every lane's work, what of it the step waits for, and what twice the speed saves."""
    if not estimate.lanes:
        return
    step = estimate.step_time_s
    times = (number(head, seconds) for head in ("work", "waited for"))
    rows = (
        (use.lane, use.busy_s, use.binding_s, _saves(use.saved_if_twice_as_fast_s, step))
        for use in estimate.lanes
    )
    most = estimate.lanes[0]
    yield stacked(
        "Lanes of a step, slowest rank",
        table("", ("lane", *times, number("twice as fast saves")), rows),
        f"Bound by: {most.lane}, {percent(most.binding_s / step)} of the step.",
        *drive_life_lines(estimate),
    )


def _saves(saved: float, step: float) -> str:
    share = saved / step
    return "nothing" if share < LITTLE else f"{seconds(saved)} ({percent(share)})"


def drive_life_lines(estimate: Estimate) -> Iterator[str]:
    """How long the drives last at this rate of writing."""
    node = estimate.memory.host
    if not node.drive_written_bytes:
        return
    written = f"{gib(node.drive_written_bytes)} GiB a step and node go to the drives"
    if node.drive_life_s is None:
        yield f"{written}; how long they last is not known without host.drives.tb_written."
        return
    years = node.drive_life_s / SECONDS_PER_DAY / DAYS_PER_YEAR
    yield f"{written}: they last {years:.2g} years of training, by what their maker warrants."


def lanes_text(spans: Sequence[Span], width: int) -> RenderableType:
    """One row for each lane of the slowest rank, time from left to right: where it works."""
    end = max(span.end for span in spans)
    used = [
        lane for lane in Lane if any(span.lane is lane and span.end > span.start for span in spans)
    ]
    margin = max(len(lane.plain) for lane in used) + 1
    columns = max(1, width - margin)
    rows = []
    for lane in used:
        busy = [0.0] * columns
        for span in spans:
            if span.lane is lane:
                _add(busy, span.start / end * columns, span.end / end * columns)
        rows.append(
            f"{lane.plain:<{margin}}{''.join(SHADES[round(3 * min(1.0, b))] for b in busy)}"
        )
    return Group(f"Lanes of the slowest rank, {seconds(end)}", *rows)


SHADES = " ░▒█"
"""Of a column: idle, a third, two thirds, all of its time at work."""


def _add(busy: list[float], start: float, end: float) -> None:
    """Add a span to the columns that it covers, by the part of each."""
    for column in range(int(start), min(len(busy), int(end) + 1)):
        busy[column] += max(0.0, min(end, column + 1) - max(start, column))
