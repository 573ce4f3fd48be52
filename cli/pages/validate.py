"""Scores of measured runs, as text."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict

from rich.text import Text

from trainplan.cli.blocks import Column, Columns, Part, Table, number, stacked, table
from trainplan.cli.words import NEVER, percent, plural, seconds, seconds_like, signed
from trainplan.costmodel import catalog
from trainplan.costmodel.uncertainty import LEVEL
from trainplan.costmodel.validate import (
    POOLED,
    Coverage,
    Errors,
    GainErrors,
    OneSteps,
    Prediction,
    Ranking,
    Scores,
    TimedRow,
    Verdicts,
    preset_of,
    worst,
)

SKIPPED = {
    "incomplete": "a size, degree or batch is not stated",
    "gpu_unknown": "the GPU is not in the catalog",
    "runtime_unknown": "the runtime is not modelled",
    "schedule_unknown": "the pipeline schedule is not modelled",
    "recompute_unknown": "it is not known what was recomputed",
    "stages_differ": "pipeline stages have degrees of their own",
    "layout_impossible": "the numbers cannot hold together",
    "other_task": "not all weights are trained, or not on the given tokens",
    "invalid_record": "the record does not follow the schema",
    "model_error": "our formulas fail on it: a bug, please report it",
}
"""Words for `costmodel.validate.cases.cases.SkipReason`."""
TITLES = {
    "source": "Step time by source",
    "gpu": "By GPU",
    "runtime": "By runtime",
    "precision": "By precision",
    "feature": "By feature",
}
EXPLAINED = (
    "Error: predicted / measured - 1. bias: its median; median, mean: of its size. The first line "
    "is the mean of the medians of the sources, those with fewer than 8 runs as one."
)
RANKED = (
    "regret: how much slower than the best measured layout the one is that the model would pick; "
    "near-ties: that layout and those that it cannot rank against it; by evidence: regret of the "
    "first of them as `plan search` lists them; all measured: of who runs them and takes the "
    "fastest."
)
SIDES = ("inside", "faster", "slower")
"""Where measured steps lie: in their interval, or on which side of it."""
LISTED = 8
"""Ids of a list that is not requested."""
TERMS = 6
"""Largest terms of a row."""


NOTHING_COMPARED = (
    "A record is compared where it states its cluster.gpu and measured.step_time_s or "
    "measured.tokens_per_s_per_gpu (or a peak memory, or fits), and is neither suspect nor "
    "`strict`: false; --all takes those too."
)


def headline_text(scores: Scores) -> str:
    """The first line."""
    found = scores.headline
    if found is None:
        return f"step time: no run could be compared (0 of {scores.num_requested} priced)"
    return (
        f"step time: {percent(found.error_fraction)} median error over "
        f"{plural(found.num_sources, 'source')} "
        f"({found.num_priced:,} of {found.num_requested:,} runs priced)"
    )


def validate_page(
    scores: Scores, predictions: Sequence[Prediction], *, calibrated: bool, worst_runs: int
) -> Iterator[Part]:
    """The headline, then every table that has rows."""
    yield Text(headline_text(scores), style="bold green")
    yield from _step_parts(scores)
    yield from _memory_parts(scores)
    if calibrated:
        yield calibrated_part(scores.one_step)
    yield from _by_name(predictions)
    if scores.skipped:
        yield skipped_table(scores.skipped)
        yield from _odd_records(predictions)
    elif not scores.rows and not scores.memory.by_kind and not scores.verdicts.labels:
        yield NOTHING_COMPARED
    if worst_runs and scores.rows:
        yield stacked("Runs that are most off", *_worst_rows(worst(scores.rows, worst_runs)))


def _step_parts(scores: Scores) -> Iterator[Part]:
    for name, groups in scores.groups.items():
        if groups and (name == "source" or any(one.n < len(scores.rows) for one in groups)):
            yield errors_table(TITLES[name], groups)
    if scores.headline:
        yield EXPLAINED
    if scores.ranking:
        yield stacked("Order of the layouts of one job", ranking_table(scores.ranking))
        yield stacked(sizes_table(scores.ranking), RANKED)
    if scores.coverage:
        alone = [one.name for one in scores.regimes] == [POOLED]
        regimes = (scores.coverage, *(() if alone else scores.regimes))
        yield coverage_table(regimes, scores.rows[0].estimate.uncertainty.level)
        held = percent(catalog.intervals().left_out)
        yield f"Of published runs whose source was left out of the fit, {held} are inside."
    if scores.gains:
        yield gains_table((scores.gains.overall, *scores.gains.kinds))


GAINS_HEAD = ("pairs", "sign right", "within 8 points", "mean miss")


def gains_table(kinds: Iterable[GainErrors]) -> Table:
    """What settings gain: of every kind of change, how often sign and size are right."""
    pairs, signs, sizes, miss = GAINS_HEAD
    columns = (number(pairs), number(signs, percent), number(sizes, percent), number(miss, percent))
    rows = (
        (one.kind, one.n, one.signs_right / one.n, one.sizes_right / one.n, one.mean_miss_fraction)
        for one in kinds
    )
    return table("", (Column("change", screen="Runs that differ in one setting"), *columns), rows)


def _memory_parts(scores: Scores) -> Iterator[Part]:
    if scores.memory.by_kind:
        yield errors_table("Peak memory by kind", scores.memory.by_kind)
        yield errors_table("Peak memory by source", scores.memory.by_source)
    if scores.verdicts.labels:
        yield verdicts_part(scores.verdicts)


ERRORS_HEAD = ("runs", "bias", "median", "mean")


def errors_table(title: str, groups: Iterable[Errors], caption: str = "") -> Table:
    """One row per group: its name, then `ERRORS_HEAD`."""
    runs, bias, median, mean = ERRORS_HEAD
    shares = (number(bias, signed), number(median, percent), number(mean, percent))
    rows = (
        (one.name, one.n, one.bias_fraction, one.median_fraction, one.mean_fraction)
        for one in groups
    )
    return table(caption, (Column("group", screen=title), number(runs), *shares), rows)


RANKED_HEAD, RANKS_HEAD = ("model", "machine", "runtime"), ("layouts", "Spearman", "regret")


def ranking_rows(ranking: Ranking) -> Iterator[tuple[str, ...]]:
    """Every group under `RANKED_HEAD` and `RANKS_HEAD`, then the means."""
    for one in ranking.groups:
        yield (
            one.model,
            f"{one.num_gpus:,} x {one.gpu}",
            one.runtime,
            str(one.num_layouts),
            f"{one.spearman:.2f}",
            percent(one.regret_fraction),
        )
    means = (f"{ranking.mean_spearman:.2f}", percent(ranking.mean_regret_fraction))
    yield ("mean", "", "", "", *means)


def ranking_table(ranking: Ranking) -> Table:
    """Every group, then the means."""
    columns: Columns = (*RANKED_HEAD, *map(number, RANKS_HEAD))
    return table("", columns, ranking_rows(ranking), spare=("runtime", "machine"))


SIZES_HEAD = ("groups", "Spearman", "regret", "near-ties", "by evidence", "all measured")


def sizes_rows(ranking: Ranking) -> Iterator[tuple[str, ...]]:
    """Means by the number of layouts: its words, then `SIZES_HEAD`."""
    for one in ranking.sizes:
        yield (
            one.layouts,
            str(one.groups),
            f"{one.mean_spearman:.2f}",
            percent(one.mean_regret_fraction),
            f"{one.mean_near_ties:.1f}",
            percent(one.mean_regret_by_evidence_fraction),
            percent(one.mean_regret_after_ties_fraction),
        )


def sizes_table(ranking: Ranking) -> Table:
    """Means by the number of layouts of a job."""
    return table("", ("Jobs by their layouts", *map(number, SIZES_HEAD)), sizes_rows(ranking))


def verdicts_part(verdicts: Verdicts) -> Part:
    """The confusion table and the names of what would run out of memory."""
    labels = f"{verdicts.answered:,} of {verdicts.labels:,} labels"
    rows = (
        ("we predict it fits", verdicts.true_fits, len(verdicts.false_fits)),
        ("we refuse it", len(verdicts.false_refusals), verdicts.true_refusals),
        ("wrong", rate(verdicts.false_refusal_fraction), rate(verdicts.false_fit_fraction)),
    )
    found = table("", (labels, number("it fits", str), number("it does not", str)), rows)
    names = [f"  {name}" for name in verdicts.false_fits]
    return stacked(found, *(["Passed, and does not fit:", *names] if names else []))


def rate(fraction: float | None) -> str:
    """A share in percent, a dash where there was nothing to count."""
    return NEVER if fraction is None else percent(fraction)


def coverage_table(groups: Sequence[Coverage], level: float = LEVEL) -> Table:
    """How many measured steps the intervals hold, and on which side the others are."""
    head = f"Measured steps and the {percent(level, 0)} interval"
    columns = (
        Column("regime", screen=head),
        *(number("runs"), *(number(side, percent) for side in SIDES)),
    )
    rows = ((one.name, one.n, *sides_of(one)) for one in groups)
    return table("Measured steps inside the interval", columns, rows)


def sides_of(one: Coverage) -> tuple[float, float, float]:
    """Shares under `SIDES`."""
    return one.inside_fraction, one.below_fraction, one.above_fraction


def calibrated_part(one_step: OneSteps | None) -> Part:
    """The error before and after one measured step."""
    if one_step is None:
        return "After one measured step: no run has a partner of another layout on its machine."
    errors = (number("before", percent), number("after", percent))
    columns = ("After one measured step of another layout", number("runs", str), *errors)
    rows = (
        (one.source, one.n, one.before_fraction, one.after_fraction) for one in one_step.sources
    )
    return table("", columns, (*rows, *one_step_means(one_step)))


def one_step_means(found: OneSteps) -> Iterator[tuple[str, ...]]:
    """Means over the sources, by what the measured run is of."""
    kinds = {
        "mean: of the same family": found,
        "mean: of the same model and length": found.same_model,
        "mean: of another family": found.other_family,
    }
    for name, one in kinds.items():
        if one:
            runs = sum(source.n for source in one.sources)
            yield name, str(runs), percent(one.before_fraction), percent(one.after_fraction)


def skipped_table(skipped: Mapping[str, int]) -> Table:
    """What was not priced."""
    columns = (number("records", screen="not priced"), *("reason", Column("in words", screen="")))
    rows = ((count, reason, SKIPPED.get(reason, "")) for reason, count in skipped.items())
    return table("Records not priced, by reason", columns, rows)


def _by_name(predictions: Iterable[Prediction]) -> Iterator[str]:
    """Whose sizes are those of a preset, because the record has none."""
    priced = [preset_of(one.run.model) for one in predictions if one.estimate]
    found = [name for name in priced if name]
    if found:
        names = ", ".join(sorted(set(found)))
        runs = plural(len(found), "run")
        yield f"Assumed: sizes of presets, for {runs} whose record has none: {names}"


def _odd_records(predictions: Iterable[Prediction]) -> Iterator[str]:
    """Which records are not priced, and why: those first that only their writer can mend."""
    skipped = [one.skipped for one in predictions if one.skipped]
    skipped.sort(key=lambda one: one.reason not in ("invalid_record", "model_error"))
    odd = [f"  {one.run.id}: {one.detail}" for one in skipped]
    if odd:
        left = [f"  and {len(odd) - LISTED} more (--json lists all)"] if len(odd) > LISTED else []
        yield "\n".join(("Records not priced", *odd[:LISTED], *left))


def _worst_rows(rows: Iterable[TimedRow]) -> Iterator[Part]:
    for row in rows:
        measured = seconds(row.measured_s)
        predicted = seconds_like(row.predicted_s, row.measured_s)
        yield f"{row.run.id} ({row.run.source_group})"
        yield f"  measured {measured}, predicted {predicted}: {signed(row.error_fraction)}"
        yield f"  {_terms(row)}"


def _terms(row: TimedRow) -> str:
    terms = sorted(asdict(row.estimate.terms).items(), key=lambda item: -abs(item[1]))
    shown = [f"{name} {seconds_like(value, row.predicted_s)}" for name, value in terms[:TERMS]]
    others = sum(value for _, value in terms[TERMS:])
    return ", ".join((*shown, f"others {seconds_like(others, row.predicted_s)}"))
