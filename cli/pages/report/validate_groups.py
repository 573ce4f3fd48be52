"""Scored runs, their errors by group, and how many lie inside their intervals."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from trainplan.cli.blocks import Chart
from trainplan.cli.documents import ValidatedGroup, ValidatedRow
from trainplan.cli.pages.figures import DOWN, bars, chart, label, line_at, scatter
from trainplan.cli.pages.validate import coverage_table, errors_table
from trainplan.cli.words import percent
from trainplan.costmodel.uncertainty import LEVEL
from trainplan.costmodel.validate import Coverage


@dataclass(frozen=True, slots=True)
class Scored:
    """A record whose step time is scored; seconds."""

    record: ValidatedRow
    measured: float
    predicted: float

    @property
    def error(self) -> float:
        """Predicted / measured - 1."""
        return self.predicted / self.measured - 1

    @property
    def factor(self) -> float:
        """How far off, half and double alike."""
        return max(self.predicted / self.measured, self.measured / self.predicted)


def scored(rows: Iterable[ValidatedRow]) -> Iterator[Scored]:
    """Those of the rows whose step time is scored."""
    for row in rows:
        if row.scored and row.measured_step_time_s and row.predicted_step_time_s:
            yield Scored(row, row.measured_step_time_s, row.predicted_step_time_s)


def groups_chart(by: str, title: str, groups: Sequence[ValidatedGroup]) -> Chart:
    """The median error of each group, and its bias."""
    worst = max(groups, key=lambda one: one.median_fraction)
    best = min(groups, key=lambda one: one.median_fraction)
    names = [label(f"{one.name} ({one.n})") for one in groups]
    hover = "%{y}: %{x:.1%}<extra>median</extra>"
    medians = [one.median_fraction for one in groups]
    sizes = bars("median size of the error", names, medians, "@blue", hover)
    bias = scatter(
        "bias",
        [one.bias_fraction for one in groups],
        names,
        "%{y}: %{x:+.1%}<extra>bias</extra>",
        marker={"symbol": "diamond", "size": 9, "color": "@orange"},
    )
    return chart(
        f"error-by-{by}",
        f"{title}: error of the step time (runs in brackets)",
        f"Best on {best.name} ({percent(best.median_fraction)}), worst on {worst.name} "
        f"({percent(worst.median_fraction)}).",
        [sizes, bias],
        errors_table("", groups, f"Error of the step time by {by}"),
        x="predicted / measured - 1",
        xaxis={"tickformat": "+.0%"},
        yaxis=DOWN,
        height=130 + 26 * len(groups),
    )


def coverage_chart(some: Sequence[Coverage]) -> Chart:
    """How many measured steps the intervals hold, by regime."""
    level = percent(LEVEL, 0)
    drawn = bars(
        "inside",
        [label(f"{one.name.replace('_', ' ')} ({one.n})") for one in some],
        [one.inside_fraction for one in some],
        "@teal",
        "%{y}: %{x:.1%}<extra></extra>",
    )
    return chart(
        "coverage",
        f"Measured steps inside the {level} interval, by regime; the line is {level}",
        f"{percent(some[0].inside_fraction)} of {some[0].n:,} runs are inside.",
        [drawn],
        coverage_table(some),
        x="share inside",
        xaxis={"range": [0, 1], "tickformat": ".0%"},
        yaxis=DOWN,
        shapes=[line_at("x", LEVEL)],
        height=120 + 30 * len(some),
    )
