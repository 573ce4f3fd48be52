"""The pictures of docs/accuracy.md: predicted against measured steps, errors by source and by kind.

Each SVG holds its own numbers as text (`Description`), so that a check needs no drawing library and
no library's version matters. Ink follows the reader's light or dark scheme.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from trainplan.costmodel import catalog
from trainplan.costmodel.validate.residuals import kind_of
from trainplan.costmodel.validate.steps import TimedRow

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FOLDER = Path(__file__).parents[1] / "assets"
INK, PAPER = "#010203", "none"
"""A colour that nothing else has, for what follows the scheme."""
SCHEMES = (
    "<style>svg { color: #24292f } @media (prefers-color-scheme: dark) { svg { color: #d7dee6 } }"
    "</style>"
)
COLOURS = ("#3b82c4", "#d97706", "#2a9d6f", "#a463c9")
"""Distinct for colour-blind readers, at least 3 : 1 on white and on the dark page of the site."""
FIFTH = "#d6457a"
MARKERS = ("o", "s", "^", "D")
WIDTH = 560
"""Of a picture, in points: its letters are still read on a phone."""
STYLE: Mapping[str, Any] = {
    "svg.hashsalt": "accuracy",
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 13,
    "axes.spines.top": False,
    "axes.spines.right": False,
    **dict.fromkeys(
        ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), INK
    ),
    **dict.fromkeys(("figure.facecolor", "axes.facecolor"), PAPER),
}
GENERATIONS = ("ampere", "hopper", "blackwell")
OTHERS = "older and other"
TENTH = 0.1
LEAST, MOST = 0.5, 2.0
"""Ratios at the edges of the pictures; what is beyond them is drawn there."""
BINS = 28
DIGITS = re.compile(r"(\.\d\d)\d{4}\b")
"""Places of a drawing beyond hundredths of a point."""

Series = Sequence[tuple[str, Sequence[Sequence[float]]]]
"""Name -> points, or numbers in tuples of one."""


@dataclass(frozen=True, slots=True)
class Picture:
    """One file below docs/assets."""

    name: str
    series: Series
    height: int
    draw: Callable[[Axes, Series], None]

    @property
    def path(self) -> Path:
        """Where it lies."""
        return FOLDER / f"{self.name}.svg"

    @property
    def numbers(self) -> str:
        """What it shows, as text."""
        return "; ".join(
            f"{name}: " + ", ".join(" ".join(f"{value:.3g}" for value in one) for one in points)
            for name, points in self.series
        )

    def stated(self) -> str:
        """The numbers of the file; empty where there is none."""
        text = self.path.read_text(encoding="utf-8") if self.path.exists() else ""
        found = re.search(r"<dc:description>(.*?)</dc:description>", text, re.DOTALL)
        return found[1] if found else ""


def pictures(rows: Sequence[TimedRow]) -> tuple[Picture, ...]:
    """All of them."""
    sources = _grouped(rows, lambda row: row.run.source_group, _ratio)
    return (
        Picture("accuracy-steps", _by_generation(rows), 430, _steps),
        Picture("accuracy-sources", sources, 60 + 30 * len(sources), _sources),
        Picture("accuracy-kinds", _grouped(rows, kind_of, _ratio), 330, _kinds),
    )


def _ratio(row: TimedRow) -> tuple[float, ...]:
    return (row.predicted_s / row.measured_s,)


def _grouped(
    rows: Sequence[TimedRow],
    name_of: Callable[[TimedRow], str],
    point: Callable[[TimedRow], tuple[float, ...]],
) -> Series:
    """Points by group, the largest group first."""
    groups: dict[str, list[tuple[float, ...]]] = {}
    for row in rows:
        groups.setdefault(name_of(row), []).append(point(row))
    return sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))


def _by_generation(rows: Sequence[TimedRow]) -> Series:
    groups = _grouped(rows, _generation, lambda row: (row.measured_s, row.predicted_s))
    order = (*GENERATIONS, OTHERS)
    return sorted(groups, key=lambda item: order.index(item[0]))


def _generation(row: TimedRow) -> str:
    [first, *_] = row.job.cluster.groups
    found = catalog.gpu(first.gpu).architecture
    return found if found in GENERATIONS else OTHERS


def complaints(rows: Sequence[TimedRow], agree: Callable[[str, str], bool]) -> Iterator[str]:
    """Pictures that show other numbers than the model's."""
    for one in pictures(rows):
        if not agree(one.stated(), one.numbers):
            yield f"docs/assets/{one.path.name} is out of date: run `make accuracy`"


def write(rows: Sequence[TimedRow]) -> None:
    """Draw all of them; needs matplotlib."""
    import matplotlib as mpl  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    for one in pictures(rows):
        with mpl.rc_context(dict(STYLE)):
            figure = Figure(figsize=(WIDTH / 72, one.height / 72), layout="constrained")
            one.draw(figure.subplots(), one.series)
            out = StringIO()
            about = {"Date": None, "Creator": None, "Description": one.numbers}
            figure.savefig(out, format="svg", metadata=about)
        text = DIGITS.sub(r"\1", out.getvalue().replace(INK, "currentColor"))
        head, start, rest = text.partition("<defs>")
        one.path.write_text(f"{head}{SCHEMES}\n {start}{rest}", encoding="utf-8")


def _steps(axes: Axes, series: Series) -> None:
    for (name, points), colour, marker in zip(series, COLOURS, MARKERS, strict=True):
        measured, predicted = zip(*points, strict=True)
        label = f"{name}, {len(points)} runs"
        look = {"s": 16, "marker": marker, "color": colour, "alpha": 0.85, "linewidths": 0}
        axes.scatter(measured, predicted, label=label, **look)
    ends = [f(value for _, points in series for one in points for value in one) for f in (min, max)]
    axes.plot(ends, ends, color=INK, linewidth=1)
    for factor in (1 - TENTH, 1 + TENTH):
        axes.plot(ends, [factor * end for end in ends], color=INK, linewidth=0.5, linestyle=":")
    axes.set(xscale="log", yscale="log", xlabel="measured step, s", ylabel="predicted step, s")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.legend(frameon=False, loc="upper left")


def _sources(axes: Axes, series: Series) -> None:
    for place, (_, points) in enumerate(series):
        ratios = [_shown(one[0]) for one in points]
        spread = [place + 0.24 * math.sin(2.4 * number) for number in range(len(ratios))]
        axes.scatter(ratios, spread, s=10, color=COLOURS[0], alpha=0.8, linewidths=0)
        axes.plot([median(ratios)] * 2, [place - 0.38, place + 0.38], color=INK, linewidth=2)
    names = [f"{name} ({len(points)})" for name, points in series]
    axes.set_yticks(range(len(series)), names)
    axes.invert_yaxis()
    _ratios_along_x(axes)


def _kinds(axes: Axes, series: Series) -> None:
    width = math.log(MOST / LEAST) / BINS
    edges = [LEAST * math.exp(width * number) for number in range(BINS + 1)]
    for (name, points), colour in zip(series, (*COLOURS, FIFTH), strict=False):
        label = f"{name.replace('_', ' ')}, {len(points)} runs"
        weights = [100 / len(points)] * len(points)
        look = {"histtype": "step", "color": colour, "linewidth": 2, "label": label}
        axes.hist([_shown(one[0]) for one in points], edges, weights=weights, **look)
    axes.set_ylabel("% of its runs")
    axes.legend(frameon=False, loc="upper left")
    _ratios_along_x(axes)


def _ratios_along_x(axes: Axes) -> None:
    axes.axvspan(1 - TENTH, 1 + TENTH, color=INK, alpha=0.1, linewidth=0)
    axes.axvline(1, color=INK, linewidth=1)
    axes.set(xscale="log", xlabel="predicted / measured", xlim=(LEAST / 1.04, MOST * 1.04))
    axes.set_xticks([0.5, 0.7, 0.9, 1, 1.1, 1.4, 2], ["0.5", "0.7", "0.9", "1", "1.1", "1.4", "2"])
    axes.set_xticks([], minor=True)


def _shown(ratio: float) -> float:
    return min(max(ratio, LEAST), MOST)


def picture_text() -> str:
    """The pictures as the page has them."""
    return """\
![Predicted against measured step times of all runs on logarithmic axes: most points lie within \
ten per cent of the diagonal, from a tenth of a second to minutes](assets/accuracy-steps.svg)

Every run; the dotted lines are 10 % off.

![Predicted over measured step time of every run, one row of dots for each source, with the median \
of each](assets/accuracy-sources.svg)

One dot a run, the bar is the median of a source, the band 10 %. What is off by more than a factor \
of two is drawn at the edge.

![Histogram of predicted over measured step time by kind of run: with graphs, of a mixture of \
experts, with FSDP, launch-bound, dense](assets/accuracy-kinds.svg)

The same by kind of run, the first that fits: with CUDA *graphs*, of a *mixture of experts*, with
*FSDP*, *launch-bound* (waiting for the host for more than 5 % of the step), *dense*."""
