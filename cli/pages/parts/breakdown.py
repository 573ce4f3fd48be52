"""Where the step and the memory go, term by term."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from itertools import groupby

from trainplan.cli.blocks import Cell, Column, Table, number, table
from trainplan.cli.words import gib, like, percent, seconds_like
from trainplan.costmodel.step import Estimate, Memory, RankMemory

LABELS = {
    "gemm": "matrix products",
    "attention": "attention",
    "elementwise": "norms, activations and other elementwise work",
    "host": "waiting for kernel launches",
    "tp_comm": "tensor-parallel communication",
    "cp_comm": "context-parallel communication",
    "ep_comm": "expert all-to-all",
    "fsdp_comm": "gathering and reducing sharded weights",
    "recompute": "recomputation",
    "bubble": "pipeline bubble",
    "p2p": "messages between pipeline stages",
    "dp_comm": "data-parallel communication",
    "optimizer": "optimizer step",
    "offload": "optimizer and activation offload",
    "outer_comm": "syncs of islands",
    "overhead": "stragglers, data loading and other overhead",
}
"""Words for the fields of `costmodel.step.simulate.Terms`."""
WORK = ("gemm", "attention", "elementwise")
"""What every layout has to do."""
SMALLEST_SHARE = 0.0005
FEW_SHARE = 0.01
"""Of the step; a short table has what is smaller in one row, where there are some of it."""
TERM_BAR, MEMORY_BAR = 24, 16
"""Columns of a bar."""
MOST_ROWS = 12
"""More rows than that are shortened: the first, the fullest and the last."""
ENDS = 3


def terms_table(estimate: Estimate, *, few: bool = False) -> Table:
    """Exposed seconds by term, largest first; they sum to the step time.

    With `few` those below `FEW_SHARE` share a row.
    """
    step = estimate.step_time_s
    terms = sorted(asdict(estimate.terms).items(), key=lambda item: -item[1])
    shown = [(LABELS[name], value) for name, value in terms if abs(value) >= SMALLEST_SHARE * step]
    small = [value for _, value in shown if abs(value) < FEW_SHARE * step] if few else []
    if len(small) > 1:
        shown = [row for row in shown if abs(row[1]) >= FEW_SHARE * step]
        shown.append((f"{len(small)} smaller ones, each below {percent(FEW_SHARE, 0)}", sum(small)))
    largest = max(value for _, value in shown)
    columns = (
        number("time", like(step)),
        number("share", percent),
        Column("", only="screen", bar=TERM_BAR),
    )
    rows = ((says, value, value / step, value / largest) for says, value in shown)
    return table("", ("Where the step goes", *columns), rows)


def largest_cost(estimate: Estimate) -> str:
    """What takes most of the step after the work itself."""
    costs = {name: value for name, value in asdict(estimate.terms).items() if name not in WORK}
    name = max(costs, key=lambda key: costs[key])
    return f"{LABELS[name]}, {percent(costs[name] / estimate.step_time_s)} of the step"


def idle_lines(estimate: Estimate) -> Iterator[str]:
    """Whose bubble the terms have, and what the mean rank waits; nothing without a pipeline."""
    idle, step = estimate.idle, estimate.step_time_s
    if idle is None or len(estimate.memory.pipeline_ranks) == 1:
        return
    own = estimate.terms.bubble + estimate.terms.p2p
    mean = f"{seconds_like(idle.mean_s, step)}, {percent(idle.mean_s / step)}"
    yield (
        f"Idle in the pipeline: the busiest rank, {idle.busiest_rank}, of which the terms are, "
        f"waits {seconds_like(own, step)}, {percent(own / step)} of the step; the mean rank {mean}."
    )


MEMORY_TERMS = {
    "weights_bytes": "weights",
    "gradients_bytes": "gradients",
    "optimizer_bytes": "optimizer",
    "activations_bytes": "activations",
    "transients_bytes": "buffers of the passes",
    "overheads_bytes": "framework and allocator",
}
"""Words for the fields of `RankMemory`."""


def ranks_memory(ranks: Sequence[RankMemory], capacities: Sequence[float]) -> Table:
    """GiB of each pipeline rank by what takes them, of what a GPU of it has."""
    every = {**MEMORY_TERMS, "cached_bytes": "cached"}
    if not any(rank.cached_bytes for rank in ranks):
        del every["cached_bytes"]
    of, free = (number(name, gib, only="page") for name in ("of", "free"))
    columns = (
        number("pipeline rank", screen="rank"),
        *(number(word, gib, screen=name.removesuffix("_bytes")) for name, word in every.items()),
        number("together", gib, screen="GiB"),
        Column("of " + gib(capacities[0]), only="screen", bar=MEMORY_BAR),
        *(of, free),
    )
    rows = (
        (
            *(rank.rank, *(getattr(rank, name) for name in every), rank.total_bytes),
            *(rank.total_bytes / has, has, has - rank.total_bytes),
        )
        for rank, has in zip(ranks, capacities, strict=True)
    )
    return table("GiB of each pipeline rank", columns, rows)


def memory_table(memory: Memory) -> Table:
    """The same for a terminal: equal neighbours share a row, most of many go."""
    ranks = memory.pipeline_ranks
    found = ranks_memory(ranks, [memory.capacity_bytes] * len(ranks))
    return replace(found, rows=_shown(alike_joined(found.rows)))


def _shown(rows: Sequence[Sequence[Cell]]) -> list[Sequence[Cell]]:
    """The rows to print; dots are those left out."""
    if len(rows) <= MOST_ROWS:
        return list(rows)
    fullest = max(range(len(rows)), key=lambda i: rows[i][-4].value or 0.0)
    kept = sorted({*range(ENDS), fullest, *range(len(rows) - ENDS, len(rows))})
    result: list[Sequence[Cell]] = []
    for place, row in enumerate(kept):
        if place and row != kept[place - 1] + 1:
            result.append([Cell("..."), *[Cell("")] * (len(rows[0]) - 1)])
        result.append(rows[row])
    return result


def alike_joined(rows: Iterable[Sequence[Cell]]) -> list[Sequence[Cell]]:
    """Rows of ranks, equal neighbours as one: `4-7`; the first cell is the rank."""
    joined: list[Sequence[Cell]] = []
    for _, group in groupby(rows, key=lambda row: [cell.text for cell in row[1:]]):
        ranks = [*group]
        ends = dict.fromkeys((ranks[0][0].text, ranks[-1][0].text))
        joined.append((Cell("-".join(ends)), *ranks[0][1:]))
    return joined
