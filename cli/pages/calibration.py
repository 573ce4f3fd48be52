"""A calibration, and what a log holds, as text."""

import shlex
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from rich.text import Text

from trainplan.cli.blocks import Part, Table, number, section, stacked, table
from trainplan.cli.pages.plan import notes_part
from trainplan.cli.words import DOT, gib, percent, plural, seconds, seconds_like, signed
from trainplan.costmodel.calibration import refusal
from trainplan.costmodel.documents import (
    Calibration,
    CalibrationRun,
    FittedFactor,
    FittedScalar,
    SharedSpeed,
)
from trainplan.costmodel.uncertainty import kind_was_seen
from trainplan.profiler.logs import LogObservation

SHOWN_RUNS = 20
ODD_RUN, FAR_RUN = 0.15, 0.05
"""A run that the scalars leave this far off is named: one of several, and one alone."""
UNSTEADY = 0.1
"""Lines of a log that differ by more are remarked on."""


def log_line(seen: LogObservation) -> str:
    """What was taken from a log."""
    lines = f"median of {plural(seen.num_lines, 'line')} after {seen.num_warm_up} of warm-up"
    parts = [f"{seconds(seen.step_time_s)} a step, {lines}"]
    if seen.highest_s - seen.lowest_s > UNSTEADY * seen.step_time_s:
        low = seconds_like(seen.lowest_s, seen.step_time_s)
        parts.append(f"unsteady: {low} to {seconds_like(seen.highest_s, seen.step_time_s)}")
    if seen.num_warm_up == 0:
        parts.append("a single line, which may include warm-up")
    for name, peak in (
        ("allocated", seen.peak_allocated_bytes),
        ("reserved", seen.peak_reserved_bytes),
    ):
        if peak is not None:
            parts.append(f"peak {name} {gib(peak)} GiB")
    return "; ".join(parts)


def calibration_page(calibration: Calibration, path: Path | None) -> Iterator[Part]:
    """The scalars, how well they are known, and what they make of the runs."""
    yield _headline(calibration)
    yield _scalars(calibration)
    yield _runs(calibration)
    notes = tuple(_notes(calibration))
    if notes:
        yield notes_part(notes)
    yield section("Next", _next(calibration, path))


def _next(calibration: Calibration, path: Path | None) -> str:
    """What to do with it."""
    if calibration.refused:
        return (
            "leave it out: it changes nothing; measure more layouts of one model on one machine, "
            "or leave out runs that were disturbed, and calibrate again"
        )
    if path is None:
        return "add --output calibration.json"
    alongside = " with the profile's" if calibration.profile_digest else ""
    return f"add --profile {shlex.quote(str(path))}{alongside} to `plan search` and `plan estimate`"


def _headline(calibration: Calibration) -> Text:
    runs = plural(len(calibration.runs), "measured run")
    if calibration.refused:
        text = Text(f"no correction, from {runs}: {refusal(calibration)}", style="bold yellow")
    else:
        speed, whose = _nearest(calibration)
        text = Text(
            f"speed {speed.value:.3f} of the {calibration.corrected}'s{whose} "
            f"(80 %: {speed.low:.3f} to {speed.high:.3f}), from {runs}",
            style="bold green",
        )
    kind = (calibration.gpu, calibration.precision, calibration.runtime)
    text.append("\n" + DOT.join((*kind, *calibration.models)), style="not bold default")
    before, after = calibration.error_before_fraction, calibration.error_after_fraction
    errors = f"median error {percent(before)} before, {percent(after)} after"
    if calibration.error_left_out_fraction is not None:
        left_out = percent(calibration.error_left_out_fraction)
        errors += f", {left_out} for a layout predicted from the others"
    text.append("\n" + errors, style="not bold default")
    return text


def _nearest(calibration: Calibration) -> tuple[FittedFactor, str]:
    """The speed of the first model that ran, and whose it is."""
    for known in calibration.speeds:
        if known.model == calibration.models[0]:
            return known.speed, f" for {known.model}"
    return calibration.speed, ""


def _scalars(calibration: Calibration) -> Table:
    columns = ("scalar", number("value"), number("80 %"))
    whole = f"speed of whole steps, of the {calibration.corrected}'s"
    others = f"{whole}: other models" if calibration.speeds else whole
    rows = [
        *(_row(f"{whole}: {_whose(known)}", known.speed, "") for known in calibration.speeds[::-1]),
        _row(others, calibration.speed, ""),
        _row("bandwidth between nodes, of the datasheet's", calibration.inter_node_bandwidth, ""),
        _row("fixed overhead of a step", calibration.fixed_overhead_seconds, " s"),
    ]
    return table("", columns, rows)


def _whose(known: SharedSpeed) -> str:
    """Which jobs a speed is of."""
    if known.model is None or known.seq_length is None:
        return f"{known.family.replace('-of-', ' of ')} models"
    return f"{known.model}, {known.seq_length:,} tokens"


def _row(name: str, scalar: FittedScalar, unit: str) -> tuple[str, str, str]:
    if not scalar.identified:
        return name, f"{scalar.value:g}{unit}", "left alone"
    return name, f"{scalar.value:.3f}{unit}", f"{scalar.low:.3f} to {scalar.high:.3f}{unit}"


def _runs(calibration: Calibration) -> Part:
    heads = ("measured", calibration.corrected, "error", "calibrated", "error")
    shown = calibration.runs[:SHOWN_RUNS]
    rows = [
        (
            run.id,
            seconds(run.measured_step_time_s),
            seconds_like(run.before_step_time_s, run.measured_step_time_s),
            _error(run.before_step_time_s, run),
            seconds_like(run.after_step_time_s, run.measured_step_time_s),
            _error(run.after_step_time_s, run),
        )
        for run in shown
    ]
    more = len(calibration.runs) - len(shown)
    some = table("", ("run", *map(number, heads)), rows)
    return stacked(some, *([f"and {more} more"] if more else []))


def _error(predicted: float, run: CalibrationRun) -> str:
    return signed(predicted / run.measured_step_time_s - 1)


def _believed(calibration: Calibration) -> str:
    """How far the runs are followed, and what decides it."""
    gpu, precision, runtime = calibration.gpu, calibration.precision, calibration.runtime
    machine = f"{gpu} in {precision} under {runtime}"
    known = (
        f"constants were fitted on runs of {machine}, so these are believed less"
        if kind_was_seen(gpu, precision, runtime)
        else f"no constant was fitted on runs of {machine}, so these are believed more"
    )
    says = median(run.before_step_time_s / run.measured_step_time_s for run in calibration.runs)
    return (
        f"the runs alone give {says:.3f} (median); {known}, for their model most, for others least"
    )


def _notes(calibration: Calibration) -> Iterator[str]:
    if calibration.refused:
        yield (
            "no correction of some runs helps the others, so none is made; if they are far off, "
            "check that all are of one machine and one version of the runtime"
        )
        return
    yield _believed(calibration)
    network, overhead = calibration.inter_node_bandwidth, calibration.fixed_overhead_seconds
    if not network.identified:
        yield (
            "bandwidth between nodes is left alone: it takes runs of at least 3 layouts that spend "
            "different shares of their time between nodes, and must predict held-out layouts better"
        )
    if not overhead.identified:
        yield (
            "fixed overhead is left alone: it takes runs of at least 3 layouts of clearly "
            "different step times, and must predict held-out layouts better"
        )
    alone = len(calibration.runs) == 1
    why = (
        "one run is believed in part; measure another layout"
        if alone
        else "it hardly counts; was it disturbed?"
    )
    for run in calibration.runs:
        off = run.after_step_time_s / run.measured_step_time_s - 1
        if abs(off) > (FAR_RUN if alone else ODD_RUN):
            yield f"{run.id} stays off by {off * 100:+.0f} %: {why}"
