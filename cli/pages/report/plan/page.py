"""The page of a plan: the answer and its certainty, then where time and memory go, and the rest."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace

from trainplan.cli.blocks import Code, Folded, Page, Section
from trainplan.cli.pages.report.plan.alternatives import alternatives_section
from trainplan.cli.pages.report.plan.answer import certainty, facts, job_section
from trainplan.cli.pages.report.plan.buys import buys_section
from trainplan.cli.pages.report.plan.launch import launch_section
from trainplan.cli.pages.report.plan.links import links_section
from trainplan.cli.pages.report.plan.memory import memory_section, rank_capacities
from trainplan.cli.pages.report.plan.reproduce import reproduce_section
from trainplan.cli.pages.report.plan.step import step_section
from trainplan.cli.pages.report.plan.timeline import timeline_section
from trainplan.cli.pages.report.plan.why import (
    evidence_section,
    limits_section,
    notes_section,
    objective_section,
    others_section,
    refused_section,
    settings_section,
    sources_section,
)
from trainplan.cli.words import layout_line
from trainplan.costmodel.calibration import NOTHING, Measured
from trainplan.planner.documents import plan_from_json
from trainplan.planner.plan import Plan

LARGEST_DOCUMENT = 300_000
"""Characters of a document that the page holds whole."""


def plan_page(name: str, text: str, measured: Measured = NOTHING) -> Page:
    """The report of a plan document of a file `name`.

    Raises:
        SpecError: The text is no plan of this version.
    """
    plan = plan_from_json(text)
    return replace(top_of(plan), sections=tuple(_sections(plan, name, text, measured)))


def top_of(plan: Plan) -> Page:
    """The answer and its certainty alone."""
    return Page(
        title=f"{plan.job.model.name} on {plan.job.num_gpus:,} GPUs",
        answer=layout_line(plan.best.layout, plan.job.model),
        certainty=tuple(certainty(plan)),
        sections=(),
        facts=facts(plan),
    )


def _sections(plan: Plan, name: str, text: str, measured: Measured) -> Iterator[Section]:
    yield job_section(plan)
    yield from objective_section(plan)
    yield step_section(plan.best.estimate, measured_step(json.loads(text)))
    yield memory_section(plan, rank_capacities(plan.job, plan.best.layout))
    yield timeline_section(plan, measured, name)
    yield links_section(plan, measured)
    yield alternatives_section(plan)
    yield limits_section(plan)
    yield buys_section(plan, text, measured, name)
    yield from others_section(plan)
    yield from refused_section(plan)
    yield from evidence_section(plan)
    yield sources_section(plan)
    yield from settings_section(plan)
    yield from notes_section(plan)
    yield launch_section(plan)
    yield reproduce_section(plan, name)
    if len(text) <= LARGEST_DOCUMENT:
        yield Section("document", "The document", (Folded(name, (Code(name, text),)),))


def measured_step(values: Mapping[str, object]) -> float | None:
    """Seconds of the fastest step that `plan tune` measured; null: none was."""
    for key in ("tuned", "best", "measured_step_time_s"):
        found = values.get(key)
        if not isinstance(found, dict):
            return float(found) if isinstance(found, int | float) else None
        values = found
    return None
