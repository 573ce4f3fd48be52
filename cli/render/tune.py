"""What `plan tune` says while it runs, and its result."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

from rich.console import Group, RenderableType
from rich.text import Text

from trainplan.cli.blocks.screen import Words, grid
from trainplan.cli.terminal.output import section
from trainplan.cli.terminal.text import DOT
from trainplan.cli.words import (
    gib,
    layout_line,
    percent,
    plural,
    seconds,
)
from trainplan.costmodel.job import Job
from trainplan.planner.tuning.events import (
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


def finished_page(
    job: Job, found: Finished, folder: Path, *, exported: bool
) -> Iterator[RenderableType]:
    """The fastest measured, why it ended, the trials, what remains possible, what was learnt."""
    yield _headline(job, found)
    yield _trials(job, found.trials)
    yield from _remaining(job, found)
    yield _machine(found.scalars)
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
    text.append(f"\n{found.says[:1].upper()}{found.says[1:]}.", style="not bold default")
    return text


def _best_line(best: Best, found: Finished) -> str:
    parts = [
        f"{seconds(best.measured_step_time_s)} a step measured in trial {best.number} of "
        f"{len(found.trials)}",
        f"{seconds(best.planned_step_time_s)} planned",
    ]
    if best.peak_reserved_bytes:
        parts.append(f"{gib(best.peak_reserved_bytes)} GiB")
    return DOT.join(parts)


def _trials(job: Job, trials: tuple[Tried, ...]) -> RenderableType:
    rows = [
        (
            str(one.number),
            seconds(one.outcome.step_time_s) if one.outcome.step_time_s else "-",
            seconds(one.planned_step_time_s),
            ENDINGS[one.outcome.ending],
            layout_line(one.layout, job.model),
        )
        for one in trials
    ]
    return grid(("#", "measured", "planned", Words("ending"), Words("layout")), rows)


def _remaining(job: Job, found: Finished) -> Iterator[RenderableType]:
    if not found.remains.likeliest:
        return
    rows = [
        (
            percent(one.probability_faster or 0.0, 0),
            f"{seconds(one.step_time_low_s)} to {seconds(one.step_time_high_s)}",
            percent(one.probability_fits, 0),
            layout_line(one.layout, job.model),
        )
        for one in found.remains.likeliest
    ]
    title = f"Untried, likeliest to be faster by {percent(found.remains.worth_fraction, 0)}"
    yield Group(Text(title), grid(("faster", "80 % expected", "fits", Words("layout")), rows))


def _machine(scalars: tuple[ScalarRange, ...]) -> RenderableType:
    rows = [
        (
            one.meaning,
            f"{one.value:.3g}",
            f"{one.low:.3g} to {one.high:.3g}",
            "yes" if one.told_apart else "no",
        )
        for one in scalars
    ]
    heads = (Words("machine, of what was planned for"), "value", "80 %", "told apart")
    return grid(heads, rows)
