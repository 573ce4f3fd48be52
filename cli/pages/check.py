"""A launch that was read and checked, as text and as JSON."""

from collections.abc import Iterator, Sequence

from rich.text import Text

from trainplan.cli.blocks import Part, Table, headed, number, stacked, table
from trainplan.cli.documents import CheckDocument
from trainplan.cli.pages.parts.breakdown import MEMORY_TERMS
from trainplan.cli.pages.parts.differences import gain, release_line
from trainplan.cli.pages.parts.headline import (
    estimate_line,
    fit_line,
    goodput_line,
    job_line,
    tightest_text,
)
from trainplan.cli.pages.plan import notes_part
from trainplan.cli.terminal import escaped
from trainplan.cli.words import gib, layout_line, like, percent, seconds, setting_words
from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.layout import OffloadSpec, StageSpec, stages_text
from trainplan.costmodel.run_costs import stretch_of
from trainplan.costmodel.step import Memory
from trainplan.planner.comparisons import FieldDifference
from trainplan.planner.goals import part_text
from trainplan.planner.launch_checks import WORTH, Edit, LaunchCheck, LaunchSaves, Lint
from trainplan.planner.plan import Plan
from trainplan.planner.runtimes import Field, SettingChange
from trainplan.planner.shell import Place, Problem

VERDICTS = {
    "illegal": "refused",
    "ignored": "ignored",
    "unread": "not read",
    "unmodelled": "not priced",
}
"""What a table calls them."""
ORIGINS = {
    "assumed": "Assumed, since nothing states it",
    "default": "Not stated: the runtime's default",
}
USUAL = "as usual"
"""A field without a value: what the price takes for the runtime anyhow."""
NOTHING: tuple[object, ...] = (None, [], False, OffloadSpec().model_dump(mode="json"))
STATED = ("layout.sequence_parallel", "options.overlap_grad_reduce", "options.overlap_param_gather")
"""Fields that are printed where they are off by default: launches often miss them."""


def check_page(found: LaunchCheck, notes: tuple[str, ...]) -> Iterator[Part]:
    """The verdict, the price, what is wrong, what pays, and what was read."""
    reading = found.reading
    bad = reading.legal is False or found.fits is False
    edge = found.estimate is not None and found.estimate.memory.is_doubtful
    style = "bold red" if bad else "bold green" if found.fits and not edge else "bold yellow"
    yield Text(escaped(CheckDocument.sentence(found)), style=style)
    if reading.job is not None:
        lines = [*_assumed_gpu(reading.fields)]
        if reading.layout is not None:
            lines.append(layout_line(reading.layout, reading.job.model))
        if found.estimate is not None:
            lines.append(estimate_line(found.estimate, reading.job))
            lines.append(_memory_line(found.estimate.memory, reading.job.model))
        lines += _part_lines(found)
        if found.saves is not None:
            lines.append(_saves_line(found.saves))
        yield stacked(*lines, job_line(reading.job))
    if reading.problems:
        yield _problems_part(reading.problems)
    if found.lints:
        yield _lints_part(found.lints)
    yield from _edits_part(found)
    needs = (*(one.notes for one in found.lints), *(one.notes for one in found.edits))
    if needed := dict.fromkeys(text for some in needs for text in some):
        yield headed("What these edits need", Text("\n".join(needed)))
    if found.estimate is not None:
        saved = [*(one.saved_s for one in found.lints), *(one.saved_s for one in found.edits)]
        yield from release_line((one or 0.0) / found.estimate.step_time_s for one in saved)
    yield from _fields_part(reading.fields)
    if notes:
        yield notes_part(notes)


def _assumed_gpu(fields: Sequence[Field]) -> Iterator[str]:
    """That the GPU is an assumption."""
    for one in fields:
        if one.name == "cluster.gpu" and one.origin == "assumed":
            yield f"The GPU is assumed, {one.value}: --cluster states it"


def _memory_line(memory: Memory, model: ModelSpec) -> str:
    """How sure it fits, or what fills the rank that lacks most."""
    rank = memory.fullest
    if (
        memory.fits is False
        and memory.host.host_fits
        and memory.host.drive_fits
        and rank.total_bytes > memory.capacity_bytes
    ):
        sizes = {word: getattr(rank, name) for name, word in MEMORY_TERMS.items()}
        largest = sorted(sizes, key=lambda word: -sizes[word])
        filled = ", ".join(f"{word} {gib(sizes[word])}" for word in largest)
        return f"{tightest_text(memory).capitalize()}, GiB: {filled}"
    return fit_line(memory, model)


def _saves_line(found: LaunchSaves) -> str:
    """Of the launch's own saves, or of the best where those are not read or none."""
    line = goodput_line(found.goodput or found.best)
    if found.goodput is None:
        return (
            "the launch saves nothing, so a failure undoes the whole run; "
            f"with a save every {found.best_steps:,} steps: {line}"
        )
    if found.steps is None:
        return (
            f"{line}; how often the launch saves was not read: {found.best_steps:,} steps is best"
        )
    return f"{line}; {found.steps:,} steps as the launch has them, {found.best_steps:,} are best"


def _problems_part(problems: Sequence[Problem]) -> Table:
    order = list(VERDICTS)
    ranked = sorted(problems, key=lambda one: order.index(one.verdict))
    rows = ((VERDICTS[p.verdict], _where(p.place), escaped(p.says)) for p in ranked)
    return table("", ("Problems", "where", "what, and what to do"), rows)


def _lints_part(lints: Sequence[Lint]) -> Table:
    columns = (number("saves", seconds), number("GiB", gib), "Each alone", "edit")
    rows = (
        (
            one.saved_s,
            None if one.freed_bytes is None else -one.freed_bytes,
            one.says,
            _words(one.settings, one.fields),
        )
        for one in lints
    )
    return table("", columns, rows)


def _edits_part(found: LaunchCheck) -> Iterator[Part]:
    if found.untried:
        yield Text(f"Nothing better was looked for: {found.untried}")
    elif found.optimum is not None and found.reading.layout is not None and not found.edits:
        yield Text(f"No edits save more than {percent(WORTH)} of a step.")
    if found.cut_off:
        yield Text(found.cut_off)
    if not found.edits:
        return
    step = found.edits[0].step_time_s
    sizes = (number("step", like(step)), number(""), number("GiB", gib))
    columns = (number("edits"), *sizes, "in the runtime's own words")
    rows = (
        (
            edit.count,
            edit.step_time_s,
            _gain(edit),
            edit.peak_reserved_bytes,
            _words(edit.settings, edit.fields),
        )
        for edit in found.edits
    )
    cures = found.edits[0].saved_s is None
    head = (
        "The fewest edits that make it run" if cures else "The fewest edits that bring most of it"
    )
    yield headed(head, table("", columns, rows))
    if found.optimum is not None:
        fastest = min(edit.step_time_s for edit in found.edits)
        yield Text(optimum_text(found.optimum, fastest))


def _part_lines(found: LaunchCheck) -> Iterator[str]:
    """That fewer nodes than those of the launch are faster."""
    best, own = found.optimum, found.estimate
    job = found.reading.job
    if best is None or job is None or best.job.cluster == job.cluster:
        return
    step = best.best.estimate.step_time_s
    if own is None or step * stretch_of(best.job) < own.step_time_s * stretch_of(job):
        yield part_text(job, best.job, step)


def optimum_text(best: Plan, edited_s: float) -> str:
    """What a search finds, or the edits where they are faster."""
    proof, step = best.certificate, best.best.estimate.step_time_s
    if edited_s < step:
        bound = seconds(proof.lower_bound_s)
        return (
            f"The edits are the fastest known for this job, {seconds(edited_s)} a step; of what "
            f"`plan search` tries none takes less than {bound}."
        )
    sure = "proved fastest"
    if not proof.optimal:
        sure = f"within {percent(proof.gap_fraction)} of the fastest"
    return f"`plan search` finds {seconds(step)} for this job, {sure} of its space under the model."


def _gain(edit: Edit) -> str:
    if edit.saved_s is None:
        return ""
    return gain(-edit.saved_s / (edit.step_time_s + edit.saved_s))


def _words(settings: Sequence[SettingChange], fields: Sequence[FieldDifference]) -> str:
    changed = (f"{one.field} {one.before} -> {one.after}" for one in fields)
    narrow = any(one.field == "options.state_precision" for one in fields)
    return (setting_words(settings) or ", ".join(changed)) + " (changes the training)" * narrow


def _where(place: Place | None) -> str:
    return escaped(place.text if place else "")


def _fields_part(fields: Sequence[Field]) -> Iterator[Part]:
    """What was read and where, then what nothing states."""
    stated = [one for one in fields if one.origin == "stated"]
    if stated:
        rows = ((f.name, _value(f), escaped(f.written), _where(f.place)) for f in stated)
        yield table("", ("Read", "value", "from", "where"), rows)
    for origin, head in ORIGINS.items():
        named = [
            f"{f.name.partition('.')[2]} {_value(f)}"
            for f in fields
            if f.origin == origin
            and (f.value not in NOTHING or (f.value is False and f.name in STATED))
        ]
        if named:
            yield headed(head, Text(", ".join(named)))


def _value(field: Field) -> str:
    if field.name == "layout.stages" and isinstance(field.value, list):
        return stages_text([StageSpec.model_validate(one) for one in field.value]) or USUAL
    return _text(field.value)


def _text(value: object) -> str:
    """Of a document, what it has."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if value in NOTHING:
        return USUAL
    if isinstance(value, dict):
        return ", ".join(f"{name} {_text(one)}" for name, one in value.items() if one)
    return str(value)
