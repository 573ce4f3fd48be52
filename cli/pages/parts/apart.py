"""A tower on GPUs of its own: the split, both steps, and what one machine for both would take."""

from __future__ import annotations

from collections.abc import Iterator

from trainplan.cli.blocks import Part, number, stacked, table
from trainplan.cli.words import gib, percent, plural, seconds, seconds_like
from trainplan.planner.plan import Apart


def apart_part(apart: Apart) -> Iterator[Part]:
    """The step of the whole first; the layout of the page is that of the decoder."""
    yield stacked(apart_text(apart), unified_text(apart), proof_text(apart))
    columns = (number("GPUs of the tower", str), number("bound", seconds), number("step", seconds))
    rows = ((one.tower_gpus, one.lower_bound_s, one.step_time_s) for one in apart.splits)
    yield table("", columns, rows)


def apart_text(apart: Apart) -> str:
    """The split and both steps."""
    return (
        f"Tower apart: {seconds(apart.step_time_s)} a step. The layout above is the decoder's, on "
        f"{plural(apart.decoder_gpus, 'GPU')} ({seconds(apart.decoder_step_s)}); "
        f"the tower runs on {plural(apart.tower_gpus, 'GPU')} ({seconds(apart.tower_step_s)}, tp "
        f"{apart.tower_tp} dp {apart.tower_dp}, {plural(apart.samples_at_once, 'sample')} at once, "
        f"keeps {apart.keeps}, {gib(apart.tower_used_bytes)} GiB). Handing embeddings over exposes "
        f"{seconds_like(apart.exposed_s, apart.step_time_s)}."
    )


def unified_text(apart: Apart) -> str:
    """What the tower on the first stage of all GPUs would take."""
    other = apart.unified_step_s
    if other is None:
        return "Unified, on the first stage of all GPUs, nothing fits."
    change = apart.step_time_s / other - 1
    words = "less" if change < 0 else "more"
    return (
        f"Unified, on the first stage of all GPUs, a step takes {seconds(other)}: apart takes "
        f"{percent(abs(change))} {words}."
    )


def proof_text(apart: Apart) -> str:
    """What is proved of other splits."""
    gap = 1 - apart.lower_bound_s / apart.step_time_s
    searched = sum(one.step_time_s is not None for one in apart.splits)
    tried = (
        f"{searched} of {plural(len(apart.splits), 'split')} searched, a bound excludes the rest"
    )
    if gap <= 0:
        return f"Proved: no other split is faster; {tried}."
    return f"Proved: no split is more than {percent(gap)} faster; {tried}."
