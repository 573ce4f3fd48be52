"""What unequal lengths of sequences cost, as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType

from trainplan.cli.blocks import number, stacked, table
from trainplan.cli.words import percent, seconds_like
from trainplan.planner.questions.sequence_lengths import DynamicContext, SequenceLengths


def lengths_part(found: SequenceLengths, step: float) -> RenderableType:
    """Context ranks that lengths need, then what each other way to run them takes."""
    shares = (number(head, percent) for head in ("sequences", "tokens"))
    rows = (
        (str(one.degree), one.longest, one.sequences_fraction, one.tokens_fraction)
        for one in found.degrees
    )
    needed = table("", ("Context ranks needed", number("longest"), *shares), rows)
    return stacked(needed, " ".join(_sentences(found, step)))


def _sentences(found: SequenceLengths, step: float) -> Iterator[str]:
    yield f"{percent(found.padding_fraction)} of a row is padding."
    if found.attention_wait > 1:
        yield (
            f"Attention takes {found.attention_wait:.2f} times as long as in a mean row: ranks "
            "wait for the heaviest."
        )
    if found.balanced_step_time_s is not None:
        yield (
            "Rows alike in attention work (--packing balanced) take "
            f"{_compared(found.balanced_step_time_s, step)}."
        )
    if found.dynamic and found.dynamic.step_time_s is not None:
        yield _dynamic(found.dynamic, found.dynamic.step_time_s, step)


def _dynamic(found: DynamicContext, seconds: float, step: float) -> str:
    flags = f"--hybrid-context-parallel --max-seqlen-per-dp-cp-rank {found.tokens_per_rank}"
    said = found.refused or f"Megatron-LM: {flags} --calculate-per-token-loss"
    return (
        "Each sequence on the context ranks it needs (dynamic context parallelism) would take "
        f"{_compared(seconds, step)}; {said}."
    )


def _compared(seconds: float, step: float) -> str:
    return f"{seconds_like(seconds, step)} for the same tokens, {step / seconds:.2f} times as fast"
