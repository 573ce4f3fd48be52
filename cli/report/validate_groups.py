"""Scores of measured runs: what is read of them, and their errors by group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trainplan.cli.render.parts.text import percent
from trainplan.cli.render.validate import signed
from trainplan.cli.report.blocks import Chart, Table
from trainplan.cli.report.charts import figure, label, layout
from trainplan.cli.report.parts import Columns, cell, number, table
from trainplan.cli.report.read import Read
from trainplan.costmodel.machine.uncertainty import LEVEL


class ValidatedRow(Read):
    """A record."""

    id: str
    source_group: str
    scored: bool
    predicted_step_time_s: float | None
    measured_step_time_s: float | None
    step_time_error_fraction: float | None
    terms: Mapping[str, float] | None
    skip_reason: str | None
    skip_detail: str | None

    @property
    def measured(self) -> float:
        """Seconds; of a scored row."""
        assert self.measured_step_time_s is not None
        return self.measured_step_time_s

    @property
    def predicted(self) -> float:
        """Likewise."""
        assert self.predicted_step_time_s is not None
        return self.predicted_step_time_s

    @property
    def error(self) -> float:
        """Predicted / measured - 1."""
        return self.predicted / self.measured - 1

    @property
    def factor(self) -> float:
        """How far off, half and double alike."""
        return max(self.predicted / self.measured, self.measured / self.predicted)


class ValidatedGroup(Read):
    """Errors of a group of rows."""

    quantity: str
    by: str
    name: str
    n: int
    bias_fraction: float
    median_fraction: float
    mean_fraction: float


class StepScore(Read):
    """Of step times."""

    num_asked: int
    num_priced: int
    num_sources: int
    mean_of_source_medians_fraction: float | None
    bias_fraction: float | None
    median_fraction: float | None


class RankingScore(Read):
    """Of the order of layouts."""

    mean_regret_fraction: float | None


class FitScore(Read):
    """Of whether it fits."""

    labels: int
    answered: int
    true_fits: int
    false_fits: int
    false_refusals: int
    true_refusals: int


class CoverageScore(Read):
    """Of intervals."""

    name: str
    n: int
    inside_fraction: float


class OverallScores(Read):
    """Of all rows."""

    step_time: StepScore
    ranking: RankingScore
    fits: FitScore
    coverage: tuple[CoverageScore, ...]
    skipped: Mapping[str, int]


class Validated(Read):
    """The document of `plan validate --json`."""

    rows: tuple[ValidatedRow, ...]
    groups: tuple[ValidatedGroup, ...]
    overall: OverallScores

    @property
    def scored(self) -> tuple[ValidatedRow, ...]:
        """Rows whose step time is scored."""
        return tuple(row for row in self.rows if row.scored)


def groups_chart(by: str, title: str, groups: Sequence[ValidatedGroup]) -> Chart:
    """The median error of each group, and its bias."""
    worst = max(groups, key=lambda one: one.median_fraction)
    best = min(groups, key=lambda one: one.median_fraction)
    names = [label(f"{one.name} ({one.n})") for one in groups]
    bars = {
        "type": "bar",
        "orientation": "h",
        "name": "median size of the error",
        "y": names,
        "x": [one.median_fraction for one in groups],
        "marker": {"color": "@blue"},
        "hovertemplate": "%{y}: %{x:.1%}<extra>median</extra>",
    }
    bias = {
        "type": "scatter",
        "mode": "markers",
        "name": "bias",
        "y": names,
        "x": [one.bias_fraction for one in groups],
        "marker": {"symbol": "diamond", "size": 9, "color": "@orange"},
        "hovertemplate": "%{y}: %{x:+.1%}<extra>bias</extra>",
    }
    return Chart(
        name=f"error-by-{by}",
        caption=f"{title}: error of the step time (runs in brackets)",
        says=(
            f"Best on {best.name} ({percent(best.median_fraction)}), worst on {worst.name} "
            f"({percent(worst.median_fraction)})."
        ),
        figure=figure(
            [bars, bias],
            layout(
                x="predicted / measured - 1",
                xaxis={"tickformat": "+.0%"},
                yaxis={"autorange": "reversed"},
            ),
        ),
        numbers=groups_table(f"Error of the step time by {by}", groups),
        height=130 + 26 * len(groups),
    )


def groups_table(caption: str, groups: Sequence[ValidatedGroup]) -> Table:
    """A row for each group."""
    columns: Columns = ("group", number("runs"), *map(number, ("bias", "median", "mean")))
    rows = [
        (
            one.name,
            cell(one.n, f"{one.n:,}"),
            cell(one.bias_fraction, signed(one.bias_fraction)),
            cell(one.median_fraction, percent(one.median_fraction)),
            cell(one.mean_fraction, percent(one.mean_fraction)),
        )
        for one in groups
    ]
    return table(caption, columns, rows)


def coverage_chart(found: Validated) -> Chart:
    """How many measured steps the intervals hold, by regime."""
    some = found.overall.coverage
    line = {"color": "@limit", "dash": "dot", "width": 2}
    goal = {
        "type": "line",
        "x0": LEVEL,
        "x1": LEVEL,
        "yref": "paper",
        "y0": 0,
        "y1": 1,
        "line": line,
    }
    level = percent(LEVEL, 0)
    return Chart(
        name="coverage",
        caption=f"Measured steps inside the {level} interval, by regime; the line is {level}",
        says=f"{percent(some[0].inside_fraction)} of {some[0].n:,} runs are inside.",
        figure=figure(
            [
                {
                    "type": "bar",
                    "orientation": "h",
                    "y": [label(f"{one.name.replace('_', ' ')} ({one.n})") for one in some],
                    "x": [one.inside_fraction for one in some],
                    "marker": {"color": "@teal"},
                    "hovertemplate": "%{y}: %{x:.1%}<extra></extra>",
                }
            ],
            layout(
                x="share inside",
                xaxis={"range": [0, 1], "tickformat": ".0%"},
                yaxis={"autorange": "reversed"},
                shapes=[goal],
            ),
        ),
        numbers=table(
            "Measured steps inside the interval",
            ("regime", number("runs"), number("inside")),
            [
                (one.name, one.n, cell(one.inside_fraction, percent(one.inside_fraction)))
                for one in some
            ],
        ),
        height=120 + 30 * len(some),
    )
