"""What `plan tune` prints while it runs, and its result."""

import shlex
from collections.abc import Iterator, Sequence
from functools import partial
from math import inf
from pathlib import Path

from rich.text import Text

from trainplan.cli.blocks import Column, Columns, Part, Row, Table, number, section, stacked, table
from trainplan.cli.words import DOT, gib, layout_line, percent, plural, seconds
from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.job import Job
from trainplan.planner.tuning import (
    NOISY,
    Best,
    Event,
    Finished,
    Forecast,
    Learned,
    ScalarRange,
    Started,
    TrialEnded,
    TrialStarted,
    Tried,
)
from trainplan.profiler.host import NOISE

LEVEL = "80 %"
"""Of all intervals, as `planner.tuning.events` has them."""
ENDINGS = {
    "measured": "measured",
    "out_of_memory": "out of memory",
    "crash": "crashed",
    "hang": "hung",
    "not_a_number": "no number",
    "lost_node": "node lost",
}


def progress_line(job: Job, event: Event) -> str:
    """One line for who watches; empty where nothing is worth one."""
    match event:
        case Started():
            known = f", {plural(event.earlier_trials, 'trial')} of before" * bool(
                event.earlier_trials
            )
            return f"{plural(event.contenders, 'layout')} may be the fastest{known}"
        case TrialStarted():
            return f"trial {event.number}: {short(job, event.forecast)}\n  {event.why}"
        case TrialEnded():
            outcome = event.outcome
            if outcome.step_time_s:
                return f"  {seconds(outcome.step_time_s)} a step, {event.teaches}"
            return f"  {ENDINGS[outcome.ending]}: {outcome.reason}; {event.teaches}"
        case Learned():
            return (
                f"  something untried is faster with {percent(event.probability_faster_remains, 0)}"
            )
        case _:
            return ""


def short(job: Job, forecast: Forecast) -> str:
    """A layout and what is expected of it."""
    low, high = seconds(forecast.step_time_low_s), seconds(forecast.step_time_high_s)
    return f"{layout_line(forecast.layout, job.model)}, expected {low} to {high}"


def finished_page(found: Finished, job: Job, folder: Path, *, exported: bool) -> Iterator[Part]:
    """The fastest measured, why it ended, the trials, what remains possible, what was learnt."""
    yield _headline(job, found)
    yield trials_table(job.model, found)
    if found.remains.likeliest:
        title = f"Untried, likeliest to be faster by {percent(found.remains.worth_fraction, 0)}"
        yield stacked(Text(title), untried_table(job.model, found.remains.likeliest))
    yield scalars_table(found.scalars)
    use = f"add --profile {shlex.quote(str(folder / 'calibration.json'))} to `plan search`"
    export = f"plan export {shlex.quote(str(folder / 'plan.json'))} --output-dir launch"
    yield section("Next", *([export] if exported else []), *([use] if found.calibration else []))


def _headline(job: Job, found: Finished) -> Text:
    best = found.best
    if best is None:
        text = Text(f"No trial of {len(found.trials)} was measured.", style="bold red")
    else:
        text = Text(layout_line(best.layout, job.model), style="bold green")
        text.append("\n" + _best_line(best, found), style="not bold default")
    for line in (f"{found.says[:1].upper()}{found.says[1:]}.", *noise_lines(found)):
        text.append(f"\n{line}", style="not bold default")
    return text


def noise_lines(found: Finished) -> Iterator[str]:
    """What is printed of a machine whose trials differ."""
    if found.noise_fraction > NOISY and found.best:
        times = {one.number: one.outcome.step_time_s or inf for one in found.trials}
        first = min(times, key=times.__getitem__)
        shorter = first not in (found.best.number, *found.best.repeats)
        yield (
            f"{NOISE} a trial run again differs by {percent(found.noise_fraction, 0)}, which all "
            f"probabilities count{f'; trial {first} was shorter, likely by noise' * shorter}. Give "
            "more --trials, or tune when others are done."
        )


def _best_line(best: Best, found: Finished) -> str:
    every = " and ".join(map(str, (best.number, *best.repeats)))
    numbered = f"trials {every}" if best.repeats else f"trial {every}"
    parts = [
        f"{seconds(best.measured_step_time_s)} a step measured in {numbered} of "
        f"{len(found.trials)}",
        f"{seconds(best.planned_step_time_s)} planned",
    ]
    if best.peak_reserved_bytes:
        parts.append(f"{gib(best.peak_reserved_bytes)} GiB")
    return DOT.join(parts)


def trials_table(model: ModelSpec, found: Finished) -> Table:
    """Trials in order; a terminal writes no reasons: `progress_line` had them."""
    columns = (
        number("#"),
        number("measured", seconds),
        number("planned", seconds, "what the model predicted before any trial"),
        Column("ending", only="screen"),
        Column("ending", only="page"),
        "layout",
        Column("why it was tried", only="page"),
    )
    numbers = [one.number for one in found.trials]
    rows = (_trial_row(model, one) for one in found.trials)
    return table("Trials", columns, rows, numbers.index(found.best.number) if found.best else None)


def _trial_row(model: ModelSpec, one: Tried) -> Row:
    ending, reason = ENDINGS[one.outcome.ending], one.outcome.reason
    return (
        *(one.number, one.outcome.step_time_s or None, one.planned_step_time_s),
        *(ending, ending + (f": {reason}" if reason else "")),
        *(layout_line(one.layout, model), one.why),
    )


def untried_table(model: ModelSpec, likeliest: Sequence[Forecast]) -> Table:
    """Layouts that may be faster, with the step that is expected of each."""
    whole = partial(percent, digits=0)
    steps = (number(head, seconds, only="page") for head in ("expected", "low", "high"))
    columns: Columns = (
        number("faster", whole, "probability that it is faster by what is worth a trial"),
        number(f"{LEVEL} expected", only="screen"),
        *steps,
        number("fits", whole, "probability that it runs and fits"),
        "layout",
    )
    rows = (
        (
            one.probability_faster or 0.0,
            f"{seconds(one.step_time_low_s)} to {seconds(one.step_time_high_s)}",
            *(one.step_time_s, one.step_time_low_s, one.step_time_high_s),
            one.probability_fits,
            layout_line(one.layout, model),
        )
        for one in likeliest
    )
    return table(f"Untried layouts that are likeliest faster; {LEVEL} intervals", columns, rows)


def scalars_table(scalars: Sequence[ScalarRange]) -> Table:
    """What trials show of the machine, each scalar with its interval."""
    columns = (
        Column("scalar", screen="machine, of what was planned for"),
        number("value", "{:.3g}".format, only="screen"),
        number("value", only="page"),
        number(LEVEL, only="screen"),
        *(number(head, only="page") for head in ("low", "high")),
        number("identified"),
    )
    rows = (
        (
            *(
                one.meaning,
                one.value,
                one.value,
                f"{one.low:.3g} to {one.high:.3g}",
                one.low,
                one.high,
            ),
            "yes" if one.told_apart else "no",
        )
        for one in scalars
    )
    return table(f"What is believed of the machine; {LEVEL} intervals", columns, rows)
