"""Where the step goes: from the FLOPs at the GPUs' peak to the whole, bar by bar."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from trainplan.cli.blocks import Block, Chart, Paragraph, Section, number, table
from trainplan.cli.pages.figures import DOWN, chart, folded, scatter
from trainplan.cli.pages.parts.breakdown import LABELS, idle_lines, largest_cost
from trainplan.cli.words import like, percent, seconds, seconds_like
from trainplan.costmodel.step import Estimate

PRODUCTS = ("gemm", "attention")
"""Terms whose FLOPs the model counts."""
KINDS = {
    "@blue": ("gemm", "attention"),
    "@teal": ("elementwise", "host"),
    "@orange": ("tp_comm",),
    "@brown": ("cp_comm",),
    "@pink": ("ep_comm",),
    "@violet": ("fsdp_comm", "dp_comm", "outer_comm"),
    "@olive": ("recompute", "offload"),
    "@green": ("optimizer",),
    "@grey": ("bubble", "p2p"),
    "@grid": ("overhead",),
}
"""Colours of terms, in every chart of a step: FLOPs of the model, kernels beyond them, four kinds
of communication, memory saved by time, update, waiting in the pipeline, what no term explains."""
COLOUR_OF = {term: colour for colour, terms in KINDS.items() for term in terms}
IDEAL = "the model's FLOPs at the GPUs' peak"
BELOW_PEAK = "products and attention below that peak"
HINTS = {
    IDEAL: "MFU times the step: FLOPs of the model over the peak of all GPUs",
    BELOW_PEAK: "efficiency of the kernels, and what the busiest rank has more than the mean",
}
BAR, ENDS = 34, 70
"""Pixels of a bar, and of what is above and below all bars."""


@dataclass(frozen=True, slots=True)
class Part:
    """A bar: from where to where."""

    name: str
    seconds: float
    start: float
    colour: str

    @property
    def end(self) -> float:
        """The right end of its bar."""
        return max(self.start, self.start + self.seconds)


def parts_of(estimate: Estimate) -> tuple[Part, ...]:
    """Parts of the step in order; they sum to it exactly as the terms do.

    Source: MFU is the model's FLOPs over step, GPUs and their peak, so times the step it is the
    time of those FLOPs at that peak.
    """
    terms = asdict(estimate.terms)
    ideal = estimate.mfu * estimate.step_time_s
    below = sum(terms[name] for name in PRODUCTS) - ideal
    rows = [(IDEAL, ideal, "@blue"), (BELOW_PEAK, below, "@teal")]
    rows += [
        (LABELS[name], value, COLOUR_OF[name])
        for name, value in terms.items()
        if name not in PRODUCTS and value
    ]
    parts, start = [], 0.0
    for name, value, colour in rows:
        parts.append(Part(name, value, start, colour))
        start += value
    return tuple(parts)


def step_section(estimate: Estimate, measured_s: float | None = None) -> Section:
    """The waterfall; `measured_s` is the step of a run of this layout."""
    blocks: tuple[Block, ...] = (
        waterfall("waterfall", "", estimate, measured_s),
        *map(Paragraph, idle_lines(estimate)),
        Paragraph(
            "Communication counts what nothing hides. The terms are of the cost model: proofs are "
            "about it, and the interval of the step shows how far measured runs were from it."
        ),
    )
    return Section("step", "Where the step goes", blocks)


def waterfall(
    name: str,
    whose: str,
    estimate: Estimate,
    measured_s: float | None = None,
    *,
    longest: float = 0.0,
    half: bool = False,
) -> Chart:
    """The bars of a step on an axis of `longest` seconds at least, `whose` plan they are of."""
    step = estimate.step_time_s
    parts = [*parts_of(estimate), Part("predicted step", step, 0.0, "@text")]
    if measured_s is not None:
        parts.append(Part("what the model missed", measured_s - step, step, "@limit"))
        parts.append(Part("measured step", measured_s, 0.0, "@text"))
    longest = max(longest, *(part.end for part in parts))
    columns = ("part", number("seconds", like(step)), number("share", percent))
    rows = ((_named(part.name), part.seconds, part.seconds / step) for part in parts)
    words = (_words(parts, step, longest, side) for side in SIDES)
    return chart(
        name,
        f"Seconds of one step{whose}{_of_rank(estimate)}, each bar where the last ends",
        _says(estimate, measured_s),
        [_bars(parts), *words],
        table("Parts of the step; they add up to it", columns, rows),
        x="seconds",
        xaxis={"range": [0, longest * 1.02]},
        yaxis={**DOWN, "gridcolor": "rgba(0,0,0,0)"},
        bargap=0.25,
        height=ENDS + BAR * len(parts),
        half=half,
    )


def _of_rank(estimate: Estimate) -> str:
    """Whose seconds the bars are."""
    if len(estimate.memory.pipeline_ranks) == 1:
        return ""
    named = f", {estimate.idle.busiest_rank}" if estimate.idle else ""
    return f" on the busiest pipeline rank{named}"


def _says(estimate: Estimate, measured_s: float | None) -> str:
    share = percent(estimate.mfu)
    text = (
        f"{share} of the step are FLOPs of the model at full speed. The largest cost after "
        f"the work itself is {largest_cost(estimate)}."
    )
    if measured_s is None:
        return text
    off = measured_s / estimate.step_time_s - 1
    return f"{text} Measured: {seconds(measured_s)}, {off * 100:+.1f} % from the prediction."


def _bars(parts: Sequence[Part]) -> Mapping[str, object]:
    return {
        "type": "bar",
        "orientation": "h",
        "y": [folded(part.name, 24) for part in parts],
        "x": [part.seconds for part in parts],
        "base": [part.start for part in parts],
        "marker": {"color": [part.colour for part in parts]},
        "hovertemplate": "%{y}<br>%{x:.4g} s<extra></extra>",
        "showlegend": False,
    }


SIDES = ("right", "left", "inside")
"""Where the words of a bar are: where there is room."""


def _words(parts: Sequence[Part], step: float, longest: float, side: str) -> dict[str, object]:
    """Seconds and share of the bars whose words are on one side."""
    chosen = [part for part in parts if _side(part, longest) == side]
    return scatter(
        "",
        [part.start if side == "left" else part.end for part in chosen],
        [folded(part.name, 24) for part in chosen],
        "",
        mode="text",
        text=[f" {seconds_like(p.seconds, step)} · {_share(p, step)} " for p in chosen],
        textposition="middle right" if side == "right" else "middle left",
        textfont={"color": "@background" if side == "inside" else "@text", "size": 11},
        showlegend=False,
        cliponaxis=False,
    )


def _share(part: Part, step: float) -> str:
    """In percent, short."""
    share = part.seconds / step
    return percent(share, 0 if abs(share) >= 0.1 else 1)


def _side(part: Part, longest: float) -> str:
    """Right of a bar that ends early, left of one that starts late, else inside."""
    if part.end < 0.55 * longest:
        return "right"
    return "left" if part.start > 0.4 * longest else "inside"


def _named(name: str) -> str:
    return f"{name} ({HINTS[name]})" if name in HINTS else name
