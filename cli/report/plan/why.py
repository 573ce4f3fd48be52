"""What stands behind the answer: what was refused, measured runs near it, sources, settings."""

from __future__ import annotations

from collections.abc import Iterator

from trainplan.cli.render.parts.settings import settings_text
from trainplan.cli.render.parts.text import gib, plural, seconds
from trainplan.cli.render.plan import YOUR_CHOICE, rule_texts
from trainplan.cli.report.blocks import (
    Block,
    Cell,
    Chart,
    Column,
    Folded,
    Paragraph,
    Section,
    Table,
)
from trainplan.cli.report.charts import figure, folded, layout
from trainplan.costmodel.catalog import fitted_constants
from trainplan.planner.evidence.evidence import Evidence
from trainplan.planner.plan import Plan

SHOWN_RULES = 12
"""Bars; the numbers have all."""


def refused_section(plan: Plan) -> Iterator[Section]:
    """Which rules refused most layouts; nothing where none was."""
    if not plan.refused:
        return
    says = rule_texts(plan.job, plan.refused)
    rows = [(name, count, says.get(name, YOUR_CHOICE)) for name, count in plan.refused.items()]
    shown = rows[:SHOWN_RULES]
    first, count, text = rows[0]
    size = plan.certificate.space_size
    chart = Chart(
        name="refused-by-rule",
        caption="Layouts refused, by the first rule that each breaks",
        says=(
            f"{sum(plan.refused.values()):,} of {plural(size, 'layout')} are refused; most, "
            f"{count:,}, by {first}: {text}."
        ),
        figure=figure(
            [
                {
                    "type": "bar",
                    "orientation": "h",
                    "y": [folded(name.replace("_", " "), 26) for name, _, _ in shown],
                    "x": [count for _, count, _ in shown],
                    "customdata": [folded(text, 50) for _, _, text in shown],
                    "text": [f"{count:,}" for _, count, _ in shown],
                    "textposition": "auto",
                    "marker": {"color": "@grey"},
                    "hovertemplate": "%{customdata}<extra></extra>",
                }
            ],
            layout(x="layouts", yaxis={"autorange": "reversed"}),
        ),
        numbers=Table(
            "Layouts refused",
            (Column("refused", numeric=True), Column("rule"), Column("why")),
            tuple((Cell(f"{n:,}", n), Cell(name), Cell(text)) for name, n, text in rows),
        ),
        height=90 + 44 * len(shown),
    )
    yield Section("refused", "What was refused", (chart,))


def evidence_section(plan: Plan) -> Iterator[Section]:
    """Measured runs near the answer; nothing where they were not asked for."""
    if plan.evidence is not None:
        blocks = tuple(_evidence(plan.evidence))
        yield Section("evidence", "How far from measured runs", blocks)


def _evidence(evidence: Evidence) -> Iterator[Block]:
    yield Paragraph(
        f"The cost model is compared with {plural(evidence.num_runs, 'published run')}. Distance "
        "counts one for every factor of two and every thing that differs; the error is what the "
        "estimate of that run is off its measured step."
    )
    yield Table(
        "Nearest runs",
        (
            Column("model"),
            Column("GPUs", numeric=True),
            Column("GPU"),
            Column("runtime"),
            Column("layout"),
            Column("measured step", numeric=True),
            Column("estimate off by", numeric=True),
            Column("distance", numeric=True),
            Column("source"),
        ),
        tuple(
            (
                Cell(run.model),
                Cell(f"{run.num_gpus:,}", run.num_gpus),
                Cell(run.gpu),
                Cell(run.runtime),
                Cell(run.layout),
                Cell(seconds(run.step_time_s), run.step_time_s),
                Cell(f"{run.error_fraction * 100:+.1f} %", run.error_fraction),
                Cell(f"{run.distance:.1f}", run.distance),
                Cell(f"{run.source}, {run.id}"),
            )
            for run in evidence.nearest
        ),
    )
    if evidence.beyond:
        lines = "; ".join(one.text for one in evidence.beyond)
        yield Paragraph(f"Beyond what was measured: {lines}.", "doubtful")
    else:
        yield Paragraph("Inside what was measured, each axis asked alone.", "good")


def others_section(plan: Plan) -> Iterator[Section]:
    """The answer's degrees under schedules that its runtime lacks."""
    if not plan.other_schedules:
        return
    step = plan.best.estimate.step_time_s
    rows = tuple(
        (
            Cell(other.schedule),
            Cell(str(other.vpp), other.vpp),
            Cell("not simulated") if time is None else Cell(seconds(time), time),
            Cell("") if time is None else Cell(f"{(time / step - 1) * 100:+.1f} %", time / step),
            Cell(gib(other.peak_reserved_bytes), other.peak_reserved_bytes),
            Cell("yes" if other.fits else "no"),
            Cell(", ".join(other.executed_by) or "no runtime"),
        )
        for other in plan.other_schedules
        for time in (other.step_time_s,)
    )
    table = Table(
        f"This layout under schedules that {plan.job.runtime} lacks",
        (
            Column("schedule"),
            Column("vpp", numeric=True),
            Column("step", numeric=True),
            Column("against the answer", numeric=True),
            Column("GiB", numeric=True),
            Column("fits"),
            Column("runs on"),
        ),
        rows,
    )
    yield Section("schedules", "Other schedules", (table,))


def sources_section(plan: Plan) -> Section:
    """Where every number of the machine and of the formulas comes from."""
    machine = Table(
        "Numbers of the machine",
        (Column("number"), Column("kind"), Column("source")),
        tuple((Cell(one.quantity), Cell(one.kind), Cell(one.source)) for one in plan.sources),
    )
    constants = Table(
        "Constants of the formulas, of this version",
        (Column("constant"), Column("value", numeric=True), Column("source")),
        tuple(
            (Cell(name), Cell(f"{one.value:.4g}", one.value), Cell(one.source))
            for name, one in fitted_constants().items()
        ),
    )
    note = (
        f"Rules and options of {plan.job.runtime} are those of version {plan.runtime_version}. "
        "Measured: by your profile. Fitted: to published measurements. Datasheet: by the maker. "
        "Assumed: no number of this GPU is known."
    )
    return Section(
        "sources",
        "Sources of every number",
        (Paragraph(note), machine, Folded("Constants of the formulas", (constants,))),
    )


def settings_section(plan: Plan) -> Iterator[Section]:
    """Settings of the runtime that were searched; nothing where none was."""
    settings = plan.certificate.settings
    if settings is None:
        return
    rows = tuple(
        (
            Cell(" ".join(one.options) or "the runtime's defaults"),
            Cell("none is faster") if one.value is None else Cell(seconds(one.value), one.value),
            Cell("covered by another")
            if one.lower_bound is None
            else Cell(seconds(one.lower_bound), one.lower_bound),
        )
        for one in settings.combinations
    )
    table = Table(
        "Combinations of settings",
        (
            Column("settings"),
            Column("best step", numeric=True),
            Column("no layout is below", numeric=True),
        ),
        rows,
    )
    blocks = (Paragraph(settings_text(plan)), *((table,) if rows else ()))
    yield Section("settings", "Settings", blocks)


def notes_section(plan: Plan) -> Iterator[Section]:
    """Assumptions and warnings."""
    if plan.notes:
        yield Section("notes", "Good to know", tuple(Paragraph(note) for note in plan.notes))
