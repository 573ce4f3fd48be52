"""What supports the answer: what was refused, measured runs near it, sources, settings."""

from collections.abc import Iterator

from trainplan.cli.blocks import Block, Columns, Folded, Paragraph, Section, number, table
from trainplan.cli.pages.figures import DOWN, bars, chart, folded
from trainplan.cli.pages.parts.objective import ladder_table, settings_text, sizes_table
from trainplan.cli.pages.plan import binding_text, refused_table
from trainplan.cli.words import gib, plural, seconds, signed
from trainplan.costmodel.catalog import fitted_constants
from trainplan.planner.evidence import Evidence
from trainplan.planner.plan import Plan

SHOWN_RULES = 12
"""Bars; the numbers have all."""


def refused_section(plan: Plan) -> Iterator[Section]:
    """Which rules refused most layouts; nothing where none was."""
    if not plan.refused:
        return
    numbers = refused_table(plan.job, plan.refused)
    counts, rules, whys = zip(*numbers.rows[:SHOWN_RULES], strict=True)
    size = plan.certificate.space_size
    drawn = bars(
        "layouts",
        [folded(rule.text.replace("_", " "), 26) for rule in rules],
        [plan.refused[rule.text] for rule in rules],
        "@grey",
        "%{customdata}<extra></extra>",
        customdata=[folded(why.text, 50) for why in whys],
        text=[count.text for count in counts],
        textposition="auto",
    )
    found = chart(
        "refused-by-rule",
        "Layouts refused, by the first rule that each breaks",
        f"{sum(plan.refused.values()):,} of {plural(size, 'layout')} are refused; most, "
        f"{counts[0].text}, by {rules[0].text}: {whys[0].text}.",
        [drawn],
        numbers,
        x="layouts",
        yaxis=DOWN,
        height=90 + 44 * len(rules),
    )
    yield Section("refused", "What was refused", (found,))


def evidence_section(plan: Plan) -> Iterator[Section]:
    """Measured runs near the answer; nothing where they were not requested."""
    if plan.evidence is not None:
        blocks = tuple(_evidence(plan.evidence))
        yield Section("evidence", "Measured runs", blocks)


def _evidence(evidence: Evidence) -> Iterator[Block]:
    yield Paragraph(
        f"The cost model is compared with {plural(evidence.num_runs, 'published run')}. Distance "
        "counts one for every factor of two and every thing that differs; the error is what the "
        "estimate of that run is off its measured step, which is of its own batch and precision."
    )
    measured = (number("measured step", seconds), number("estimate off by", signed))
    columns: Columns = (
        *("model", number("GPUs"), "GPU", "runtime", "precision", number("batch"), "layout"),
        *(*measured, number("distance", "{:.1f}".format), "source"),
    )
    rows = [
        (
            *(run.model, run.num_gpus, run.gpu, run.runtime, run.precision),
            *(run.global_batch_size, run.layout),
            *(run.step_time_s, run.error_fraction, run.distance, f"{run.source}, {run.id}"),
        )
        for run in evidence.nearest
    ]
    yield table("Nearest runs", columns, rows)
    if evidence.beyond:
        lines = "; ".join(one.text for one in evidence.beyond)
        yield Paragraph(f"Out of distribution: {lines}.", "doubtful")
    else:
        yield Paragraph(
            "In distribution: each axis, for such a runtime, GPU and model.",
            "good",
        )


def others_section(plan: Plan) -> Iterator[Section]:
    """The answer's degrees under schedules that its runtime lacks."""
    if not plan.other_schedules:
        return
    step = plan.best.estimate.step_time_s
    rows = [
        (
            other.schedule,
            other.vpp,
            "not simulated" if other.step_time_s is None else other.step_time_s,
            "" if other.step_time_s is None else other.step_time_s / step,
            other.peak_reserved_bytes,
            "yes" if other.fits else "no",
            ", ".join(other.executed_by) or "no runtime",
        )
        for other in plan.other_schedules
    ]
    columns: Columns = (
        "schedule",
        number("vpp"),
        number("step", seconds),
        number("against the answer", lambda ratio: signed(ratio - 1)),
        number("GiB", gib),
        "fits",
        "runs on",
    )
    caption = f"This layout under schedules that {plan.job.runtime} lacks"
    yield Section("schedules", "Other schedules", (table(caption, columns, rows),))


def sources_section(plan: Plan) -> Section:
    """Where every number of the machine and of the formulas comes from."""
    machine = table(
        "Numbers of the machine",
        ("number", "kind", "source"),
        [(one.quantity, one.kind, one.source) for one in plan.sources],
    )
    constants = table(
        "Constants of the formulas, of this version",
        ("constant", number("value"), "source"),
        [(name, one.value, one.source) for name, one in fitted_constants().items()],
    )
    note = (
        f"Rules and options of {plan.job.runtime} are those of version {plan.runtime_version}. "
        "Measured: by your profile. Fitted: to published measurements. Datasheet: by the maker. "
        "Assumed: no number of this GPU is known."
    )
    return Section(
        "sources",
        "Sources",
        (Paragraph(note), machine, Folded("Constants of the formulas", (constants,))),
    )


def settings_section(plan: Plan) -> Iterator[Section]:
    """Settings of the runtime that were searched; nothing where none was."""
    settings = plan.certificate.settings
    if settings is None:
        return
    rows = [
        (
            " ".join(one.options) or "the runtime's defaults",
            "none is faster" if one.value is None else one.value,
            "covered by another" if one.lower_bound is None else one.lower_bound,
        )
        for one in settings.combinations
    ]
    found = (number(head, seconds) for head in ("best step", "no layout is below"))
    columns: Columns = ("settings", *found)
    some = (table("Combinations of settings", columns, rows),) if rows else ()
    yield Section("settings", "Settings", (Paragraph(settings_text(plan)), *some))


def notes_section(plan: Plan) -> Iterator[Section]:
    """Assumptions and warnings."""
    if plan.notes:
        yield Section("notes", "Good to know", tuple(Paragraph(note) for note in plan.notes))


def limits_section(plan: Plan) -> Section:
    """Largest cost and memory."""
    lines = binding_text(plan).split("\n")
    return Section("limits", "What limits it", tuple(map(Paragraph, lines)))


def objective_section(plan: Plan) -> Iterator[Section]:
    """Sizes of the cluster, or lengths with ever more techniques; nothing for the step time."""
    target = plan.certificate.objective
    sizes = len(target.tried) > 1 and target.name != "time"
    tried = (sizes_table(target),) if sizes else ()
    tables = (*tried, ladder_table(target)) if target.ladder else tried
    if tables:
        yield Section("objective", "The objective", tables)
