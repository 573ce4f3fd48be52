"""The table of alternatives."""

from collections.abc import Callable, Iterator, Mapping

from trainplan.cli.blocks import Cell, Column, Row, Table, number, table
from trainplan.cli.words import (
    NEVER,
    SHORT_MODULES,
    SHORT_OFFLOADED,
    gib,
    layout_line,
    like,
    offloaded_text,
    percent,
    recompute_text,
    share,
    small_percent,
    usual_schedule,
)
from trainplan.costmodel.axes import AXES, AXIS_OF_COLUMN, Axis
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.uncertainty import near_tie_range
from trainplan.planner.plan import FREE, Candidate, Plan


def _any(claim: Callable[[Layout], bool]) -> Callable[[Plan], bool]:
    return lambda plan: any(claim(candidate.layout) for candidate in plan.candidates)


def _always(plan: Plan) -> bool:
    return True


def _experts(plan: Plan) -> bool:
    return plan.job.model.moe is not None


def _used(axis: Axis) -> Callable[[Plan], bool]:
    return _any(lambda layout: not axis.is_off(layout))


_FIRST: Mapping[str, Callable[[Plan], bool]] = {
    "tp": _always,
    "pp": _always,
    "vpp": _always,
    "cp": _always,
    "dp": _always,
    "ep": _experts,
    "etp": _experts,
    "schedule": _any(lambda layout: layout.schedule != usual_schedule(layout)),
    "micro_batch_size": _always,
    "sequence_parallel": _any(lambda layout: layout.tp > 1 and not layout.sequence_parallel),
    "zero_stage": _always,
}
_SEPARATE = frozenset(
    {
        "recompute",
        "recompute_modules",
        "recompute_method",
        "recompute_num_layers",
        "offload_modules",
        "offload_tier",
        "offload_parameters",
        "offload_checkpoints",
        "stages",
    }
)
"""In columns of words further right, or too long for one."""
_SHAPE = frozenset({"tp", "pp", "vpp", "cp", "dp", "ep", "etp", "micro_batch_size"})
"""Axes that a narrow table keeps when others are gone."""
_NEEDED = {
    **_FIRST,
    **{axis.column: _used(axis) for axis in AXES if axis.column not in _SEPARATE.union(_FIRST)},
}
"""When an axis is worth a column: from the left, those that every reader looks for come first."""
_TEXTS: Mapping[str, Callable[[Layout], str]] = {
    "sequence_parallel": lambda layout: "yes" if layout.sequence_parallel else "no",
    "offload_optimizer": lambda layout: share(layout.offload.optimizer),
}
"""Where the cell is not the value as `--layout` takes it."""


def alternatives_table(plan: Plan, cause: Callable[[Candidate], str] | None = None) -> Table:
    """The best layout of each family, fastest first; `~` marks near-ties.

    A report has numbers first, and the `cause` of what each takes more.
    """
    axes = [AXIS_OF_COLUMN[name] for name, needed in _NEEDED.items() if needed(plan)]
    step = plan.best.estimate.step_time_s
    away = any(offloaded_text(candidate.layout) != NEVER for candidate in plan.candidates)
    numbers = (
        number("step", like(step)),
        number("slower", percent, "than the answer"),
        number("MFU", percent),
        number("GiB", gib, "of the fullest GPU"),
        Column("near tie", screen="", hint=f"to the answer: {near_tie_text()}"),
    )
    shape = (
        *(number(axis.word) for axis in axes),
        *((Column("off GPU"),) if away else ()),
        Column("recompute"),
    )
    why = (Column("what makes it slower", hint="of the answer's step"),) if cause else ()
    rows = []
    for one in plan.candidates:
        found = one.estimate
        values: Row = (
            *(found.step_time_s, found.step_time_s / step - 1, found.mfu),
            *(found.memory.peak_reserved_bytes, "~" if one.near_tie else ""),
        )
        folded = (offloaded_text(one.layout),) if away else ()
        parts: Row = (
            *(axis_cell(axis, one.layout) for axis in axes),
            *map(_folded, (*folded, recompute_text(one.layout))),
        )
        rows.append(
            (one.rank, *values, cause(one), *parts) if cause else (one.rank, *parts, *values)
        )
    columns = (number("#"), *numbers, *why, *shape) if cause else (number("#"), *shape, *numbers)
    answers = [place for place, one in enumerate(plan.candidates) if is_answer(plan, one)]
    gone = (axis.word for axis in reversed(axes) if axis.column not in _SHAPE)
    spare = ("MFU", *gone, "slower")
    spare = spare if cause else (*spare, "off GPU", "etp", "mbs", "vpp", "recompute")
    caption = "The best layout of each family; a heading sorts"
    return table(caption, columns, rows, answers[0] if answers else None, spare)


def is_answer(plan: Plan, candidate: Candidate) -> bool:
    """Is it the layout that the plan chose?"""
    return candidate.layout == plan.best.layout


def axis_cell(axis: Axis, layout: Layout) -> Cell:
    """The cell of an axis."""
    text = _TEXTS.get(axis.column, axis.text)(layout)
    return Cell(text, float(text)) if text.isdecimal() else Cell(text)


def _folded(text: str) -> str:
    """A list of modules on lines of three: it reads better than one cut anywhere."""
    words = text.split("+")
    lines = ["+".join(words[i : i + 3]) for i in range(0, len(words), 3)]
    return "+\n".join(lines)


def rivals_lines(plan: Plan) -> Iterator[str]:
    """The fastest layout where the answer is a simpler one, and the fastest with free memory."""
    best, fastest, roomy = plan.best, plan.fastest, plan.roomy
    step = best.estimate.step_time_s
    slack = percent(plan.certificate.objective.slack_fraction)
    if fastest is not best:
        faster = small_percent(1 - fastest.estimate.step_time_s / step)
        cost = plan.certificate.objective.name == "cost"
        least, takes = ("cheapest", "costs") if cost else ("fastest", "takes")
        room = f" and leaves {percent(FREE, 0)} of the memory free" if roomy is fastest else ""
        yield (
            f"The {least} layout {takes} {faster} less{room}: {_named(plan, fastest)}. The answer "
            f"is the simplest within {slack} of it; `--slack 0` takes the {least}."
        )
    if roomy and roomy is not fastest and not best.is_roomy:
        settings, more = plan.certificate.settings, roomy.estimate.step_time_s / step - 1
        bound, pace = ("most", "slower") if more >= 0 else ("least", "faster")
        cut = "" if plan.certificate.room_searched else f"not searched to the end, at {bound} "
        kept = " and the same settings" if settings and len(settings.combinations) > 1 else ""
        yield (
            f"With {percent(FREE, 0)} of the memory free{kept}, {cut}{small_percent(abs(more))} "
            f"{pace}: {_named(plan, roomy)}."
        )


def _named(plan: Plan, one: Candidate) -> str:
    return f"row {one.rank}, {layout_line(one.layout, plan.job.model)}"


def ties_lines(plan: Plan) -> Iterator[str]:
    """What `~` means."""
    if any(candidate.near_tie for candidate in plan.candidates):
        yield (
            "The answer first, then by time. ~ is a tie with it: the model cannot rank "
            f"the two ({near_tie_text()})."
        )


def near_tie_text() -> str:
    """How close a near-tie is."""
    least, most = map(percent, near_tie_range())
    return f"within {least} of the step, {most} for the least similar layouts"


def legend(plan: Plan) -> Iterator[str]:
    """What the short names of the table mean; nothing where none is used."""
    used = {m for candidate in plan.candidates for m in candidate.layout.recompute_modules}
    names = [f"{short} = {m}" for m, short in SHORT_MODULES.items() if m in used and m != short]
    if names:
        yield "recompute: " + ", ".join(names)
    away = {m for candidate in plan.candidates for m in candidate.layout.offload_modules}
    if away:
        names = [f"{short} = {m}" for m, short in SHORT_OFFLOADED.items() if m in away]
        yield "off GPU: " + ", ".join(names)
