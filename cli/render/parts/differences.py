"""What tells two layouts apart, in fields, seconds and bytes, and what makes one run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rich.console import RenderableType

from trainplan.cli.blocks.screen import Bars, Grid, Words, bar, grid
from trainplan.cli.render.parts.breakdown import LABELS, SMALLEST_SHARE
from trainplan.cli.words import (
    gib,
    last_words,
    percent,
    recompute_text,
    seconds_like,
    share,
    usual_schedule,
    zero_text,
)
from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.base import GIB
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.step import Estimate
from trainplan.costmodel.step.results import Memory, NodeMemory
from trainplan.planner.questions.compare import FieldDifference, Side, TermDifference
from trainplan.planner.questions.remedies import Remedy

BAR_WIDTH = 16
LONGEST_VALUE = 34
"""Columns of a value in the table of fields."""
SAME = "same layout"
WITHOUT = {"stages": "even stages"}
"""What a layout has that does not say more."""


def change_text(layout: Layout, before: Layout, model: ModelSpec) -> str:
    """What a layout has that another has not: `tp 8, pp 2, recompute full block/4`."""
    now, then = _words(layout, model), _words(before, model)
    changed = [word for name, word in now.items() if word != then.get(name)]
    gone = [WITHOUT.get(name, f"no {name}") for name in then if name not in now]
    return ", ".join((*changed, *gone)) or SAME


def _words(layout: Layout, model: ModelSpec) -> dict[str, str]:
    names = ["tp", "pp", "vpp", "cp", "dp", *(("ep", "etp") if model.moe else ())]
    words = {name: f"{name} {getattr(layout, name)}" for name in names}
    if layout.schedule != usual_schedule(layout):
        words["schedule"] = layout.schedule
    words["mbs"] = f"mbs {layout.micro_batch_size}"
    words["zero"] = zero_text(layout)
    words["recompute"] = f"recompute {recompute_text(layout)}"
    if layout.sequence_parallel:
        words["SP"] = "SP"
    if layout.offload.optimizer:
        words["offload"] = f"offload {share(layout.offload.optimizer)}"
    return {**words, **last_words(layout)}


def fields_table(head: str, fields: Sequence[FieldDifference], before: str, after: str) -> Grid:
    """Fields that differ, side by side."""
    columns = (Words(head), Words(before), Words(after))
    return grid(columns, ((f.field, _short(f.before), _short(f.after)) for f in fields))


def _short(value: str) -> str:
    """A value on one line; `stages` can be long."""
    return value if len(value) <= LONGEST_VALUE else f"{value[: LONGEST_VALUE - 3]}..."


def differences_table(
    terms: Iterable[TermDifference], before: Estimate, after: Estimate, *, heads: tuple[str, str]
) -> Grid:
    """Seconds of every term that can be seen and their difference, largest first; the sum below."""
    step = max(before.step_time_s, after.step_time_s)
    noise = SMALLEST_SHARE * step
    rows = [row for row in terms if max(abs(row.before_s), abs(row.after_s)) >= noise]
    largest = max((abs(row.difference_s) for row in rows), default=0.0) or 1.0
    columns = (Words("Where the seconds differ"), *heads, "difference", Bars(""))
    sums = TermDifference(
        "", before.step_time_s, after.step_time_s, after.step_time_s - before.step_time_s
    )
    lines = [
        (
            LABELS[row.term] if row.term else "step",
            seconds_like(row.before_s, step),
            seconds_like(row.after_s, step),
            signed(row.difference_s, step),
            bar(abs(row.difference_s) / largest, BAR_WIDTH) if row.term else "",
        )
        for row in (*rows, sums)
    ]
    return grid(columns, lines)


def signed(value: float, whole: float) -> str:
    """Seconds with their sign."""
    return f"{'-' if value < 0 else '+'}{seconds_like(abs(value), whole)}"


def gain(fraction: float) -> str:
    """A relative change with its sign."""
    text = percent(abs(fraction))
    sign = "" if text == percent(0) else "-" if fraction < 0 else "+"
    return sign + text


def memories_table(before: Memory, after: Memory, heads: tuple[str, str]) -> Grid:
    """The fullest rank of both, by term."""
    columns = (Words("Memory of the fullest rank, GiB"), *heads, "difference")
    ranks = [max(m.pipeline_ranks, key=lambda rank: rank.total_bytes) for m in (before, after)]
    names = ("weights", "gradients", "optimizer", "activations", "transients", "overheads")
    rows = [(name, *(getattr(rank, f"{name}_bytes") for rank in ranks)) for name in names]
    rows.append(("together", *(rank.total_bytes for rank in ranks)))
    rows.append(("of", before.capacity_bytes, after.capacity_bytes))
    rows += _of_nodes(before.host, after.host)
    return grid(
        columns,
        ((name, gib(one), gib(other), f"{(other - one) / GIB:+.1f}") for name, one, other in rows),
    )


def _of_nodes(before: NodeMemory, after: NodeMemory) -> Iterator[tuple[str, float, float]]:
    """What a node keeps off its GPUs, where one of both keeps anything."""
    if before.host_bytes or after.host_bytes:
        yield "host of a node", before.host_bytes, after.host_bytes
    if before.drive_bytes or after.drive_bytes:
        yield "drives of a node", before.drive_bytes, after.drive_bytes


def remedies_part(remedies: Sequence[Remedy], layout: Layout, beside: Side) -> RenderableType:
    """Each change with its step and its memory; steps are written like that of `beside`."""
    if not remedies:
        return "Nothing that keeps its tp makes it run."
    step = beside.estimate.step_time_s
    columns = (Words("It runs with"), "step", "GiB")
    rows = (
        (
            change_text(remedy.candidate.layout, layout, beside.job.model),
            seconds_like(remedy.candidate.estimate.step_time_s, step),
            gib(remedy.candidate.estimate.memory.peak_reserved_bytes),
        )
        for remedy in remedies
    )
    return grid(columns, rows)
