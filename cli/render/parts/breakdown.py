"""Where the step and the memory go, term by term."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields

from rich.text import Text

from trainplan.cli.blocks.screen import Bars, Grid, Words, bar, grid
from trainplan.cli.words import gib, percent, seconds_like
from trainplan.costmodel.step import Estimate
from trainplan.costmodel.step.results import Memory, RankMemory

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


def terms_table(estimate: Estimate, *, few: bool = False) -> Grid:
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
    columns = (Words("Where the step goes"), "time", "share", Bars(""))
    rows = (
        (says, seconds_like(value, step), percent(value / step), bar(value / largest, TERM_BAR))
        for says, value in shown
    )
    return grid(columns, rows)


def largest_cost(estimate: Estimate) -> str:
    """What takes most of the step besides the work itself."""
    costs = {name: value for name, value in asdict(estimate.terms).items() if name not in WORK}
    name = max(costs, key=lambda key: costs[key])
    return f"{LABELS[name]}, {percent(costs[name] / estimate.step_time_s)} of the step"


@dataclass(frozen=True, slots=True)
class _Row:
    """Neighbouring ranks that look alike."""

    first: RankMemory
    last: RankMemory

    @property
    def name(self) -> str:
        if self.first.rank == self.last.rank:
            return f"{self.first.rank}"
        return f"{self.first.rank}-{self.last.rank}"


def memory_table(memory: Memory) -> Grid:
    """GiB of each pipeline rank by term; neighbours that look alike share a row."""
    names = _terms(memory.pipeline_ranks)
    heads = [name.removesuffix("_bytes") for name in names]
    columns = ("rank", *heads, "GiB", Bars("of " + gib(memory.capacity_bytes)))
    rows: list[list[str | Text]] = []
    for row in _shown(_collapsed(memory.pipeline_ranks)):
        if row is None:
            rows.append(["...", *("" for _ in columns[1:])])
            continue
        total = row.first.total_bytes
        cells = [gib(getattr(row.first, name)) for name in names]
        filled = bar(total / memory.capacity_bytes, MEMORY_BAR)
        rows.append([row.name, *cells, gib(total), filled])
    return grid(columns, rows)


def _terms(ranks: tuple[RankMemory, ...]) -> list[str]:
    """Fields to print; what the allocator keeps for nothing only where it keeps some."""
    names = [field.name for field in fields(RankMemory) if field.name != "rank"]
    return [name for name in names if name != "cached_bytes" or any(r.cached_bytes for r in ranks)]


def _collapsed(ranks: tuple[RankMemory, ...]) -> list[_Row]:
    rows: list[_Row] = []
    for rank in ranks:
        if rows and _printed(rows[-1].first) == _printed(rank):
            rows[-1] = _Row(rows[-1].first, rank)
        else:
            rows.append(_Row(rank, rank))
    return rows


def _printed(rank: RankMemory) -> tuple[str, ...]:
    names = [field.name for field in fields(RankMemory) if field.name != "rank"]
    return tuple(gib(getattr(rank, name)) for name in names)


def _shown(rows: list[_Row]) -> list[_Row | None]:
    """The rows to print; None stands for those left out."""
    if len(rows) <= MOST_ROWS:
        return list(rows)
    fullest = max(range(len(rows)), key=lambda i: rows[i].first.total_bytes)
    kept = sorted({*range(ENDS), fullest, *range(len(rows) - ENDS, len(rows))})
    result: list[_Row | None] = []
    for place, number in enumerate(kept):
        if place and number != kept[place - 1] + 1:
            result.append(None)
        result.append(rows[number])
    return result
