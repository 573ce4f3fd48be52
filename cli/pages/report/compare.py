"""The report of `plan compare`: where the seconds and the bytes of two plans differ."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Annotated, Any

from pydantic import AfterValidator

from trainplan.cli.blocks import Block, Chart, Fact, Facts, Page, Paragraph, Section
from trainplan.cli.pages.compare import HEADS, heads_of
from trainplan.cli.pages.figures import DOWN, bars, chart, folded, scatter, series
from trainplan.cli.pages.parts.breakdown import LABELS, MEMORY_TERMS, SMALLEST_SHARE, idle_lines
from trainplan.cli.pages.parts.differences import (
    differences_table,
    fields_table,
    memories_table,
    signed,
    with_stages,
)
from trainplan.cli.pages.parts.headline import fit_line
from trainplan.cli.pages.parts.objective import proof_words
from trainplan.cli.pages.report.plan.memory import ranks_chart
from trainplan.cli.pages.report.plan.step import waterfall
from trainplan.cli.pages.report.read import LayoutValue, ModelValue, Read
from trainplan.cli.words import gib, layout_line, percent, seconds
from trainplan.costmodel.base import GIB
from trainplan.costmodel.hardware import ClusterSpec
from trainplan.costmodel.step import Estimate
from trainplan.planner.comparisons import FieldDifference, Proof, TermDifference


def _with_ranks(estimate: Estimate) -> Estimate:
    if not estimate.memory.pipeline_ranks:
        raise ValueError("memory.pipeline_ranks is empty")
    return estimate


class ComparedSide(Read):
    """One of the two plans."""

    model: ModelValue
    cluster: ClusterSpec
    runtime: str
    layout: LayoutValue
    estimate: Annotated[Estimate, AfterValidator(_with_ranks)]
    proof: Proof | None = None


class Checkpoint(Read):
    """What a checkpoint of the first needs."""

    text: str


class Compared(Read):
    """The document of `plan compare --json`."""

    verdict: str
    throughput_ratio: float
    probability_second_faster: float | None
    job: tuple[FieldDifference, ...]
    layout: tuple[FieldDifference, ...]
    terms: tuple[TermDifference, ...]
    first: ComparedSide
    second: ComparedSide
    checkpoint: Checkpoint | None = None
    """Null: the document is older than this."""

    @property
    def heads(self) -> tuple[str, str]:
        """What the plans are called: first and second, with that in which they differ."""
        return heads_of(*((one.model, one.cluster, one.runtime) for one in self.sides))

    @property
    def sides(self) -> tuple[ComparedSide, ComparedSide]:
        """Both, in their order."""
        return self.first, self.second


def memory_chart(found: Compared) -> Chart:
    """The fullest pipeline rank of both, part by part, and the capacity."""
    one, other = (side.estimate.memory for side in found.sides)
    ranks = [one.fullest, other.fullest]
    hover = "%{fullData.name}: %{x:.1f} GiB<extra>%{y}</extra>"
    parts = [
        bars(
            name,
            found.heads,
            [getattr(rank, field) / GIB for rank in ranks],
            series(place),
            hover,
            text=[gib(getattr(rank, field)) for rank in ranks],
            textposition="inside",
            textangle=0,
            insidetextanchor="middle",
        )
        for place, (field, name) in enumerate(MEMORY_TERMS.items())
    ]
    capacities = [memory.capacity_bytes for memory in (one, other)]
    line = {"width": 3, "color": "@limit"}
    limit = scatter(
        "capacity",
        [size / GIB for size in capacities],
        found.heads,
        "capacity: %{x:.1f} GiB<extra>%{y}</extra>",
        marker={"symbol": "line-ns", "size": 28, "color": "@limit", "line": line},
    )
    used = [
        f"{gib(rank.total_bytes)} of {gib(size)} GiB"
        for rank, size in zip(ranks, capacities, strict=True)
    ]
    return chart(
        "memory-of-both",
        "GiB of the fullest pipeline rank by what they hold, and the GPU's capacity",
        f"The first takes {used[0]}, the second {used[1]}.",
        [*parts, limit],
        memories_table(one, other, found.heads),
        x="GiB",
        barmode="stack",
        yaxis=DOWN,
        legend={"traceorder": "normal"},
        uniformtext={"minsize": 10, "mode": "hide"},
        height=240,
    )


def compare_page(found: Compared) -> Page:
    """The report of a comparison."""
    first, second = found.sides
    names = dict.fromkeys((first.model.name, second.model.name))
    return Page(
        title=f"{' and '.join(names)}: two plans compared",
        answer=found.verdict,
        certainty=tuple(_certainty(found)),
        facts=Facts(tuple(_facts(found))),
        sections=(
            Section("time", "Where the seconds differ", _time(found)),
            Section("steps", "Where each step goes", tuple(_steps(found))),
            Section("memory", "Memory", (memory_chart(found), *_ranks(found))),
            Section("layouts", "Layouts", _layouts(found)),
            Section("jobs", "Jobs", _jobs(found)),
        ),
    )


def _certainty(found: Compared) -> Iterator[Paragraph | Facts]:
    proofs = [
        Fact(f"{name}: proved under the cost model", proof_words(side.proof))
        for name, side in zip(found.heads, found.sides, strict=True)
    ]
    yield Facts((*proofs, _modelled(found)), wide=True)
    for name, side in zip(found.heads, found.sides, strict=True):
        if not side.estimate.memory.fits:
            text = f"The {name}: {fit_line(side.estimate.memory, side.model)}"
            yield Paragraph(text, "bad" if side.estimate.memory.fits is False else "doubtful")
    if found.checkpoint:
        yield Paragraph(found.checkpoint.text, "plain")


def _modelled(found: Compared) -> Fact:
    """How sure the cost model is which one is faster."""
    chance, name = found.probability_second_faster, "the cost model itself"
    if chance is None:
        note = "The jobs differ, so the errors of their estimates may differ, too."
        return Fact(name, "no probability is given", note, "doubtful")
    note = "Both are priced with the same numbers; what the cost model gets wrong of both cancels."
    value = f"second faster with {percent(chance, 0)} probability"
    return Fact(name, value, note, "doubtful" if 0.1 < chance < 0.9 else "plain")


def _steps(found: Compared) -> Iterator[Block]:
    longest = max(side.estimate.step_time_s for side in found.sides)
    for name, head, side in zip(HEADS, found.heads, found.sides, strict=True):
        whose = f" of the {head}"
        yield waterfall(f"step-{name}", whose, side.estimate, longest=longest, half=True)
    for name, side in zip(found.heads, found.sides, strict=True):
        yield from (Paragraph(f"{name}: {line}") for line in idle_lines(side.estimate))


def _ranks(found: Compared) -> Iterator[Block]:
    """Memory of every pipeline rank of both."""
    memories = [side.estimate.memory for side in found.sides]
    most = 1.05 * max(max(one.capacity_bytes, one.peak_reserved_bytes) for one in memories)
    for name, head, side in zip(HEADS, found.heads, found.sides, strict=True):
        says = fit_line(side.estimate.memory, side.model)
        label, whose = f"memory-{name}", f" of the {head}"
        yield ranks_chart(label, whose, side.layout, side.estimate, says, highest=most, half=True)


def _facts(found: Compared) -> Iterator[Fact]:
    for name, side in zip(found.heads, found.sides, strict=True):
        one, range_ = side.estimate, side.estimate.uncertainty
        low, high = (seconds(x) for x in (range_.step_time_low_s, range_.step_time_high_s))
        level = percent(range_.level, 0)
        yield Fact(f"step of the {name}", seconds(one.step_time_s), f"{level}: {low} to {high}")
    yield Fact("tokens/s of the second", f"{found.throughput_ratio:.2f} x", "of the first")
    both = [side.estimate.memory for side in found.sides]
    fit = all(memory.fits for memory in both)
    full = any(memory.fits is False for memory in both)
    used = " and ".join(gib(memory.peak_reserved_bytes) for memory in both)
    capacities = dict.fromkeys(gib(memory.capacity_bytes) for memory in both)
    yield Fact(
        "GiB of the fullest GPU",
        used,
        f"of {' and '.join(capacities)}",
        "bad" if full else "plain" if fit else "doubtful",
    )


def _time(found: Compared) -> Sequence[Block]:
    first, second = (side.estimate.step_time_s for side in found.sides)
    step = max(first, second)
    seen = [t for t in found.terms if abs(t.difference_s) >= SMALLEST_SHARE * step]
    rest = second - first - sum(one.difference_s for one in seen)
    parts = [(folded(LABELS.get(one.term, one.term), 24), one.difference_s) for one in seen]
    if abs(rest) >= SMALLEST_SHARE * step:
        parts.append(("all others", rest))
    return (
        chart(
            "difference",
            "From the step of the first to that of the second, seconds by term",
            _says(found.terms, step),
            [_waterfall(first, parts, second, found.heads)],
            differences_table(
                found.terms, found.first.estimate, found.second.estimate, found.heads, least=0.0
            ),
            **_seconds_axis(first, parts, second),
            yaxis=DOWN,
            showlegend=False,
            height=130 + 34 * len(parts),
        ),
    )


def _says(terms: Sequence[TermDifference], step: float) -> str:
    """The largest difference each way."""
    written = []
    for word, sign in (("saves most", -1), ("pays most", 1)):
        most = max(terms, key=lambda one: sign * one.difference_s, default=None)
        if most and sign * most.difference_s >= SMALLEST_SHARE * step:
            name, change = LABELS.get(most.term, most.term), signed(most.difference_s, step)
            written.append(f"{word} in {name} ({change})")
    return f"The second {' and '.join(written)}." if written else "No term differs."


def _waterfall(
    first: float, parts: Sequence[tuple[str, float]], second: float, heads: tuple[str, str]
) -> Mapping[str, object]:
    changes = [value for _, value in parts]
    texts = [signed(value, max(first, second)) for value in changes]
    *starts, _ = accumulate(changes, initial=first)
    colours = ["@limit" if value > 0 else "@green" for value in changes]
    return {
        "type": "bar",
        "orientation": "h",
        "y": [folded(heads[0], 24), *(name for name, _ in parts), folded(heads[1], 24)],
        "x": [first, *changes, second],
        "base": [0, *starts, 0],
        "text": [seconds(first), *texts, seconds(second)],
        "hovertemplate": "%{y}: %{text}<extra></extra>",
        "textposition": "outside",
        "cliponaxis": False,
        "marker": {"color": ["@text", *colours, "@text"]},
    }


def _seconds_axis(
    first: float, parts: Sequence[tuple[str, float]], second: float
) -> dict[str, Any]:
    """Of the waterfall: it need not start at zero."""
    ends = [*accumulate((value for _, value in parts), initial=first), second]
    low, span = min(ends), max(ends) - min(ends)
    room = 0.2 * (span or first)
    start = max(0.0, low - 0.5 * span) if span else 0.0
    title = "seconds" + (f"; the axis starts at {seconds(start)}" if start else "")
    return {"x": title, "xaxis": {"range": [start, max(ends) + room]}}


def _layouts(found: Compared) -> Sequence[Block]:
    lines = [
        Paragraph(f"{name}: {layout_line(side.layout, side.model)}")
        for name, side in zip(found.heads, found.sides, strict=True)
    ]
    if not found.layout:
        return (*lines, Paragraph("The layout is the same."))
    short = with_stages(found.layout, [side.layout for side in found.sides])
    return (*lines, fields_table("Fields of the layouts that differ", short, found.heads))


def _jobs(found: Compared) -> Sequence[Block]:
    if not found.job:
        return (Paragraph("The job is the same."),)
    return (fields_table("Fields of the jobs that differ", found.job, found.heads),)
