"""How two layouts differ, in fields, seconds and bytes, and what makes one run."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from trainplan.cli.blocks import Column, Table, number, table
from trainplan.cli.pages.parts.breakdown import LABELS, MEMORY_TERMS, SMALLEST_SHARE
from trainplan.cli.words import (
    gib,
    last_words,
    like,
    percent,
    recompute_text,
    seconds_like,
    share,
    usual_schedule,
    zero_text,
)
from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.base import GIB
from trainplan.costmodel.layout import Layout, stages_text
from trainplan.costmodel.step import Estimate, Memory
from trainplan.planner.comparisons import FieldDifference, Remedy, Side, TermDifference

BAR_WIDTH = 16
SAME = "same layout"
WITHOUT = {"stages": "even stages"}
"""What a layout has that states no more."""


RELEASE_MOVES = 0.08
"""Of a step, by which a change of release moves one recipe in the mean, at least.

Source: pairs of published runs of one recipe under two releases, such as NVIDIA/Megatron-LM#5728
and NVIDIA-NeMo/Megatron-Bridge#5028, `examples/accuracy/twins.jsonl`: 3 to 49 %.
"""


def release_line(gains: Iterable[float]) -> Iterator[str]:
    """What a release does to a step, where a gain is no larger."""
    if any(0 < abs(gain) < RELEASE_MOVES for gain in gains):
        yield (
            f"Gains below {percent(RELEASE_MOVES, 0)}: another release of the software moves the "
            "same recipe by 8 to 10 % in the mean, and by up to 49 %."
        )


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


def fields_table(
    caption: str,
    fields: Sequence[FieldDifference],
    heads: tuple[str, str],
    *,
    screen: str = "field",
    cut: int | None = None,
) -> Table:
    """Fields that differ, side by side; `cut` shortens values to so many characters."""
    columns = (Column("field", screen=screen), *heads)
    rows = ((one.field, _short(one.before, cut), _short(one.after, cut)) for one in fields)
    return table(caption, columns, rows)


def with_stages(
    fields: Iterable[FieldDifference], layouts: Sequence[Layout]
) -> tuple[FieldDifference, ...]:
    """The fields of two layouts, their stages as `--layout` takes them."""
    texts = [stages_text(one.stages) if one.stages else "even" for one in layouts]
    return tuple(
        replace(one, before=texts[0], after=texts[1]) if one.field == "stages" else one
        for one in fields
    )


def _short(value: str, cut: int | None) -> str:
    """A value on one line; `stages` can be long."""
    return value if cut is None or len(value) <= cut else f"{value[: cut - 3]}..."


def differences_table(
    terms: Iterable[TermDifference],
    before: Estimate,
    after: Estimate,
    heads: tuple[str, str],
    *,
    least: float = SMALLEST_SHARE,
) -> Table:
    """Seconds of every term and their difference; the sum below.

    Terms of less than `least` of the step are left out.
    """
    first, second = before.step_time_s, after.step_time_s
    step = max(first, second)
    seen = [row for row in terms if max(abs(row.before_s), abs(row.after_s)) >= least * step]
    largest = max((abs(row.difference_s) for row in seen), default=0.0) or 1.0
    columns = (
        Column("term", screen="Where the seconds differ"),
        *(number(head, like(step)) for head in heads),
        number("difference", lambda value: signed(value, step)),
        Column("", only="screen", bar=BAR_WIDTH),
    )
    rows = [
        (
            *(LABELS.get(row.term, row.term), row.before_s, row.after_s),
            *(row.difference_s, abs(row.difference_s) / largest),
        )
        for row in seen
    ]
    whole = ("step", first, second, second - first, "")
    return table("Seconds by term", columns, (*rows, whole), len(rows))


def signed(value: float, whole: float) -> str:
    """Seconds with their sign."""
    return f"{'-' if value < 0 else '+'}{seconds_like(abs(value), whole)}"


def gain(fraction: float) -> str:
    """A relative change with its sign."""
    text = percent(abs(fraction))
    sign = "" if text == percent(0) else "-" if fraction < 0 else "+"
    return sign + text


def memories_table(before: Memory, after: Memory, heads: tuple[str, str]) -> Table:
    """The fullest rank of both, by term; of a node what it keeps off its GPUs, where it does."""
    one, other = before.fullest, after.fullest
    rows = [
        (word, name.removesuffix("_bytes"), getattr(one, name), getattr(other, name))
        for name, word in MEMORY_TERMS.items()
    ]
    rows.append(("together", "together", one.total_bytes, other.total_bytes))
    rows.append(("capacity", "of", before.capacity_bytes, after.capacity_bytes))
    for name, field in (("host", "host_bytes"), ("drives", "drive_bytes")):
        both = (getattr(before.host, field), getattr(after.host, field))
        if any(both):
            rows.append((*[f"{name} of a node"] * 2, *both))
    columns = (
        Column("part", only="page"),
        Column("Memory of the fullest rank, GiB", only="screen"),
        *(number(head, gib) for head in heads),
        number("difference", "{:+.1f}".format),
    )
    changed = ((*row, (row[3] - row[2]) / GIB) for row in rows)
    return table("GiB of the fullest pipeline rank", columns, changed, len(MEMORY_TERMS))


def remedies_part(
    remedies: Sequence[Remedy], layout: Layout, alongside: Side, *, searched: bool
) -> Table | str:
    """Each change with its step and its memory; steps are written like that of `beside`."""
    if not remedies:
        unknown = (
            "Whether anything that keeps its tp makes it run is not known: the time was too short."
        )
        return "Nothing that keeps its tp makes it run." if searched else unknown
    step = alongside.estimate.step_time_s
    rows = (
        (
            remedy.option or change_text(remedy.candidate.layout, layout, alongside.job.model),
            remedy.candidate.estimate.step_time_s,
            remedy.candidate.estimate.memory.peak_reserved_bytes,
        )
        for remedy in remedies
    )
    return table("", ("It runs with", number("step", like(step)), number("GiB", gib)), rows)
