"""A launch that was read and judged, as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict

from rich.console import Group, RenderableType
from rich.text import Text

from trainplan.cli.blocks.screen import Words, grid
from trainplan.cli.render.parts.differences import gain
from trainplan.cli.render.parts.headline import estimate_line, job_line
from trainplan.cli.render.plan import notes_part
from trainplan.cli.words import (
    NEVER,
    gib,
    layout_line,
    percent,
    plural,
    seconds,
    seconds_like,
)
from trainplan.costmodel.layout import OffloadSpec
from trainplan.planner.plan import Plan
from trainplan.planner.plan.layout_document import layout_json
from trainplan.planner.plan.plan import estimate_json, job_json
from trainplan.planner.questions.compare import FieldDifference
from trainplan.planner.questions.launches.check import LaunchCheck
from trainplan.planner.questions.launches.edits import WORTH, Edit
from trainplan.planner.questions.launches.lints import Lint
from trainplan.planner.runtimes import Field
from trainplan.planner.runtimes.corrected import SettingChange
from trainplan.planner.shell import Place, Problem

SCHEMA = "trainplan/check/v1"
VERDICTS = {
    "illegal": "refused",
    "ignored": "ignored",
    "unread": "not read",
    "unmodelled": "not priced",
}
"""What a table calls them."""
ORIGINS = {
    "assumed": "Assumed, since nothing says it",
    "default": "Not said, so as the runtime has it by default",
}
USUAL = "as usual"
"""A field without a value: what the price takes for the runtime anyhow."""
NOTHING: tuple[object, ...] = (None, [], False, OffloadSpec().model_dump(mode="json"))
TOLD = ("layout.sequence_parallel", "options.overlap_grad_reduce", "options.overlap_param_gather")
"""Fields that are told where they are off by default: launches often miss them."""
MOST_WORDS = 6
"""Options of an edit that a table shows."""


def check_page(found: LaunchCheck, notes: tuple[str, ...]) -> Iterator[RenderableType]:
    """The verdict, the price, what is wrong, what pays, and what was read."""
    reading = found.reading
    good = reading.legal and found.fits is not False
    yield Text(verdict(found), style="bold green" if good else "bold red")
    if reading.job is not None:
        lines = []
        if reading.layout is not None:
            lines.append(layout_line(reading.layout, reading.job.model))
        if found.estimate is not None:
            lines.append(estimate_line(found.estimate))
        yield Group(*lines, job_line(reading.job))
    if reading.problems:
        yield _problems_part(reading.problems)
    if found.lints:
        yield _lints_part(found.lints)
    yield from _edits_part(found)
    yield from _fields_part(reading.fields)
    if notes:
        yield notes_part(notes)


def verdict(found: LaunchCheck) -> str:
    """Does it run, does it fit, and what would the best edits give?"""
    reading = found.reading
    refusals = [problem for problem in reading.problems if problem.verdict == "illegal"]
    if refusals:
        first = refusals[0]
        more = f", and {plural(len(refusals) - 1, 'other problem')}" if len(refusals) > 1 else ""
        text = f"{reading.runtime} refuses it{_at(first.place)}: {first.says}{more}."
    elif found.estimate is None:
        text = f"{reading.runtime} would start it, as far as was read; it is not priced."
    elif not found.estimate.memory.fits:
        memory = found.estimate.memory
        text = (
            f"It does not fit: {gib(memory.peak_reserved_bytes)} GiB on the fullest rank of "
            f"{gib(memory.capacity_bytes)}."
        )
    else:
        text = f"It runs and fits: {seconds(found.estimate.step_time_s)} a step."
    return f"{text} {_promise(found)}".rstrip()


def _promise(found: LaunchCheck) -> str:
    if not found.edits:
        return ""
    first = found.edits[0]
    count = plural(len(first.units), "edit")
    if first.saved_s is None:
        return f"With {count} it runs, at {seconds(first.step_time_s)} a step."
    step = first.step_time_s + first.saved_s
    faster = f"{count} would make it {step / first.step_time_s:.2f} times as fast."
    return faster if found.reading.legal else f"Once it starts, {faster}"


def _at(place: Place | None) -> str:
    text = place_text(place)
    return f" ({text})" if text else ""


def place_text(place: Place | None) -> str:
    """`train.sh:12`; of the command line nothing."""
    if place is None or place.file is None:
        return ""
    name = place.file.rpartition("/")[2]
    return f"{name}:{place.line}" if place.line else name


def _problems_part(problems: Sequence[Problem]) -> RenderableType:
    columns = (Words("Problems"), Words("where"), Words("what, and what to do"))
    order = list(VERDICTS)
    ranked = sorted(problems, key=lambda one: order.index(one.verdict))
    return grid(columns, ((VERDICTS[p.verdict], place_text(p.place), p.says) for p in ranked))


def _lints_part(lints: Sequence[Lint]) -> RenderableType:
    columns = ("saves", "GiB", Words("Each alone"), Words("edit"))
    rows = (
        (
            NEVER if one.saved_s is None else seconds(one.saved_s),
            NEVER if one.freed_bytes is None else gib(-one.freed_bytes),
            one.says,
            _words(one.settings, one.fields),
        )
        for one in lints
    )
    return grid(columns, rows)


def _edits_part(found: LaunchCheck) -> Iterator[RenderableType]:
    if found.untried:
        yield Text(f"Nothing better was looked for: {found.untried}")
    elif found.optimum is not None and found.reading.layout is not None and not found.edits:
        yield Text(f"No edits save more than {percent(WORTH)} of a step.")
    if not found.edits:
        return
    step = found.edits[0].step_time_s
    columns = ("edits", "step", "", "GiB", Words("in the runtime's own words"))
    rows = (
        (
            str(len(edit.units)),
            seconds_like(edit.step_time_s, step),
            _gain(edit),
            gib(edit.peak_reserved_bytes),
            _words(edit.settings, edit.fields),
        )
        for edit in found.edits
    )
    yield Group(Text("The fewest edits that bring most of it", style="bold"), grid(columns, rows))
    if found.optimum is not None:
        yield Text(_optimum_text(found.optimum))


def _optimum_text(best: Plan) -> str:
    proof, step = best.certificate, best.best.estimate.step_time_s
    sure = "proved fastest"
    if not proof.optimal:
        sure = f"within {percent(proof.gap_fraction)} of the fastest"
    return f"`plan search` finds {seconds(step)} for this job, {sure} of its space under the model."


def _gain(edit: Edit) -> str:
    if edit.saved_s is None:
        return ""
    return gain(-edit.saved_s / (edit.step_time_s + edit.saved_s))


def _words(settings: Sequence[SettingChange], fields: Sequence[FieldDifference]) -> str:
    if settings:
        words = [_setting(one) for one in settings]
    else:
        words = [f"{one.field} {one.before} -> {one.after}" for one in fields]
    more = len(words) - MOST_WORDS
    return ", ".join(words[:MOST_WORDS]) + (f" and {more} more" if more > 0 else "")


def _setting(one: SettingChange) -> str:
    if one.after is None:
        return f"without {one.name}"
    if one.name.startswith("--"):
        return f"{one.name} {one.after}".rstrip()
    return f"{one.name}={one.after}"


def _fields_part(fields: Sequence[Field]) -> Iterator[RenderableType]:
    """What was read and where, then what nothing says."""
    stated = [one for one in fields if one.origin == "stated"]
    if stated:
        heads = (Words("Read"), Words("value"), Words("from"), Words("where"))
        rows = ((f.name, _value(f), f.written, place_text(f.place)) for f in stated)
        yield grid(heads, rows)
    for origin, head in ORIGINS.items():
        named = [
            f"{f.name.partition('.')[2]} {_value(f)}"
            for f in fields
            if f.origin == origin
            and (f.value not in NOTHING or (f.value is False and f.name in TOLD))
        ]
        if named:
            yield Group(Text(head, style="bold"), Text(", ".join(named)))


def _value(field: Field) -> str:
    if isinstance(field.value, bool):
        return "on" if field.value else "off"
    return USUAL if field.value in NOTHING else str(field.value)


def check_document(found: LaunchCheck, notes: tuple[str, ...]) -> Mapping[str, object]:
    """The public document `trainplan/check/v1`."""
    reading = found.reading
    job, layout = reading.job, reading.layout
    best = found.optimum
    return {
        "schema": SCHEMA,
        "text": verdict(found),
        "runtime": reading.runtime,
        "runtime_version": reading.runtime_version,
        "legal": reading.legal,
        "problems": [_problem_json(one) for one in reading.problems],
        "job": None if job is None else job_json(job),
        "layout": None if job is None or layout is None else layout.model_dump(mode="json"),
        "fits": found.fits,
        "estimate": None if found.estimate is None else estimate_json(found.estimate),
        "fields": [_field_json(one) for one in reading.fields],
        "lints": [_lint_json(one) for one in found.lints],
        "edits": [_edit_json(one) for one in found.edits],
        "optimum": None
        if best is None
        else {
            "layout": layout_json(best.job, best.best.layout),
            "options": best.job.options.stated(),
            "estimate": estimate_json(best.best.estimate),
            "optimal": best.certificate.optimal,
            "gap_fraction": best.certificate.gap_fraction,
        },
        "untried": found.untried,
        "provenance": {"notes": list(notes)},
    }


def _place_json(place: Place | None) -> dict[str, object]:
    return {"file": place and place.file, "line": place and place.line}


def _problem_json(one: Problem) -> Mapping[str, object]:
    text = {"cause": one.cause, "verdict": one.verdict, "says": one.says}
    return {**text, **_place_json(one.place)}


def _field_json(one: Field) -> Mapping[str, object]:
    text = {"name": one.name, "value": one.value, "origin": one.origin, "written": one.written}
    return {**text, **_place_json(one.place)}


def _lint_json(one: Lint) -> Mapping[str, object]:
    return {
        "name": one.name,
        "says": one.says,
        "saved_s": one.saved_s,
        "freed_bytes": one.freed_bytes,
        "fits": one.fits,
        "changes": [asdict(field) for field in one.fields],
        "settings": [asdict(setting) for setting in one.settings],
    }


def _edit_json(one: Edit) -> Mapping[str, object]:
    return {
        "units": list(one.units),
        "step_time_s": one.step_time_s,
        "saved_s": one.saved_s,
        "peak_reserved_bytes": one.peak_reserved_bytes,
        "changes": [asdict(field) for field in one.fields],
        "settings": [asdict(setting) for setting in one.settings],
        "layout": one.run.layout.model_dump(mode="json"),
        "options": one.run.job.options.stated(),
    }
