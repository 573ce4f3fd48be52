"""The report of `plan validate`: predictions against measured runs, by source."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass

from trainplan.cli.blocks import (
    Block,
    Cell,
    Chart,
    Columns,
    Fact,
    Facts,
    Folded,
    Page,
    Paragraph,
    Row,
    Section,
    Table,
    number,
    table,
)
from trainplan.cli.documents import ValidatedGroup, ValidateDocument, ValidatedRow
from trainplan.cli.pages.figures import DOWN, bars, chart, label, line_at, log_axis, scatter, series
from trainplan.cli.pages.validate import (
    EXPLAINED,
    coverage_table,
    errors_table,
    signed,
    skipped_table,
)
from trainplan.cli.words import percent, plural, seconds, seconds_like
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
        """How far off, half and double the same."""
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


WORST = 25
"""Rows that are most off."""
GROUPS = {"source": "Source", "gpu": "GPU", "runtime": "Runtime"}
"""Groupings that are drawn; the others are tables."""


def validate_page(found: ValidateDocument) -> Page:
    """The report of predictions against measured runs."""
    step = found.overall.step_time
    mean = step.mean_of_source_medians_fraction
    answer = (
        "No step time could be compared."
        if mean is None
        else f"Step time: {percent(mean)} median error over {plural(step.num_sources, 'source')}."
    )
    return Page(
        title="Predicted against measured",
        answer=answer,
        certainty=tuple(_certainty(found)),
        facts=Facts(tuple(_facts(found))),
        sections=tuple(_sections(found)),
    )


def _sections(found: ValidateDocument) -> Iterator[Section]:
    rows = tuple(scored(found.rows))
    if rows:
        yield Section("runs", "Predicted against measured", (_scatter(rows),))
        yield Section("errors", "Error by source, GPU and runtime", tuple(_groups(found)))
    if found.overall.coverage:
        yield Section(
            "intervals", "Do the intervals hold?", (coverage_chart(found.overall.coverage),)
        )
    if rows:
        yield Section("worst", "Rows that are most off", (_worst(rows),))
    memory = [one for one in found.groups if one.quantity == "peak_memory"]
    if memory or found.overall.fits.labels:
        yield Section("memory", "Memory", tuple(_memory(found)))
    if found.overall.skipped:
        yield Section("skipped", "Not priced", tuple(_skipped(found)))


def _certainty(found: ValidateDocument) -> Iterator[Paragraph]:
    step = found.overall.step_time
    yield Paragraph(
        f"{step.num_priced:,} of {plural(step.num_asked, 'run')} with a measured step were priced.",
        "good" if step.num_priced == step.num_asked else "plain",
    )
    yield Paragraph(EXPLAINED)


def _facts(found: ValidateDocument) -> Iterator[Fact]:
    step = found.overall.step_time
    if step.median_fraction is not None and step.bias_fraction is not None:
        yield Fact("median error of a run", percent(step.median_fraction), "size, all runs equal")
        yield Fact("bias", signed(step.bias_fraction), "median of predicted / measured - 1")
    if found.overall.coverage:
        every = found.overall.coverage[0]
        yield Fact("inside the interval", percent(every.inside_fraction), plural(every.n, "run"))
    ranking = found.overall.ranking
    if ranking.mean_regret_fraction is not None:
        yield Fact(
            "regret",
            percent(ranking.mean_regret_fraction),
            "the layout we would choose over the fastest measured",
        )
    fits = found.overall.fits
    if fits.answered:
        wrong = fits.false_fits + fits.false_refusals
        yield Fact("does it fit: wrong", f"{wrong} of {fits.answered}")


def _scatter(rows: Sequence[Scored]) -> Chart:
    sources = list(dict.fromkeys(one.record.source_group for one in rows))
    both = [x for row in rows for x in (row.measured, row.predicted)]
    low, high = min(both) / 1.3, max(both) * 1.3
    line = {"mode": "lines", "line": {"color": "@quiet", "dash": "dot"}}
    equal = scatter("predicted = measured", [low, high], [low, high], "", **line)
    near = sum(abs(row.error) <= 0.1 for row in rows)
    axis = log_axis(both, "{:,g}".format)
    return chart(
        "predicted-against-measured",
        "Seconds of a step, predicted against measured, by source; both axes logarithmic",
        f"{near} of {plural(len(rows), 'run')} are within 10 %.",
        [equal, *(_source(rows, name, place) for place, name in enumerate(sources))],
        _rows_table("Runs", rows),
        x="measured, s",
        y="predicted, s",
        xaxis=axis,
        yaxis=axis,
        height=560,
    )


def _source(rows: Sequence[Scored], name: str, place: int) -> dict[str, object]:
    some = [row for row in rows if row.record.source_group == name]
    symbols = ("circle", "square", "diamond", "triangle-up")
    symbol = symbols[place // 9 % len(symbols)]
    return scatter(
        label(name),
        [row.measured for row in some],
        [row.predicted for row in some],
        "%{text}<br>%{x:.4g} s measured, %{y:.4g} s predicted<extra></extra>",
        text=[f"{label(row.record.id)}: {signed(row.error)}" for row in some],
        marker={"size": 7, "opacity": 0.75, "color": series(place), "symbol": symbol},
    )


def _groups(found: ValidateDocument) -> Iterator[Block]:
    shown = [one for one in found.groups if one.quantity == "step_time"]
    for by, title in GROUPS.items():
        some = [one for one in shown if one.by == by]
        if some:
            yield groups_chart(by, title, some)
    others = dict.fromkeys(one.by for one in shown if one.by not in GROUPS)
    for by in others:
        some = [one for one in shown if one.by == by]
        yield Folded(f"By {by}", (errors_table("", some, f"Error of the step time by {by}"),))


def _worst(rows: Sequence[Scored]) -> Table:
    some = sorted(rows, key=lambda row: -row.factor)[:WORST]
    return _rows_table(f"The {len(some)} runs that are most off, half counted as double", some)


def _rows_table(caption: str, rows: Sequence[Scored]) -> Table:
    columns: Columns = (
        "run",
        "source",
        number("measured", seconds),
        number("predicted"),
        number("error", signed, "predicted / measured - 1"),
        "largest terms",
    )
    return table(caption, columns, [_row(row) for row in rows])


def _row(row: Scored) -> Row:
    every = asdict(row.record.terms) if row.record.terms else {}
    terms = sorted(every.items(), key=lambda item: -abs(item[1]))[:3]
    written = (f"{name} {seconds_like(value, row.predicted)}" for name, value in terms)
    return (
        row.record.id,
        row.record.source_group,
        row.measured,
        Cell(seconds_like(row.predicted, row.measured), row.predicted),
        row.error,
        ", ".join(written),
    )


def _memory(found: ValidateDocument) -> Iterator[Block]:
    for by in ("kind", "source and kind"):
        some = [one for one in found.groups if one.quantity == "peak_memory" and one.by == by]
        if some:
            yield errors_table("", some, f"Error of the peak memory by {by}")
    fits = found.overall.fits
    if fits.labels:
        yield table(
            f"Does it fit? {fits.answered:,} of {plural(fits.labels, 'label')} answered",
            ("verdict", number("it fitted"), number("it did not")),
            (
                ("it fits", fits.true_fits, fits.false_fits),
                ("it does not", fits.false_refusals, fits.true_refusals),
            ),
        )


def _skipped(found: ValidateDocument) -> Iterator[Block]:
    yield skipped_table(found.overall.skipped)
    odd = [row for row in found.rows if row.skip_reason]
    each = [(row.id, row.skip_reason, row.skip_detail) for row in odd]
    yield Folded(
        f"All {len(odd)} of them", (table("Records not priced", ("run", "reason", "why"), each),)
    )
