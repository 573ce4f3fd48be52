"""The page of a plan: the answer and its certainty, then where time and memory go, and the rest."""

from __future__ import annotations

from trainplan.cli.render.parts.text import layout_line
from trainplan.cli.report.blocks import Page
from trainplan.cli.report.plan.answer import certainty, facts
from trainplan.costmodel.measured import NOTHING, Measured
from trainplan.planner.plan.read_back import plan_from_json


def plan_page(name: str, text: str, measured: Measured = NOTHING) -> Page:
    """The report of a plan document of a file `name`.

    Raises:
        SpecError: The text is no plan of this version.
    """
    plan = plan_from_json(text)
    return Page(
        title=f"{plan.job.model.name} on {plan.job.cluster.num_gpus:,} GPUs",
        answer=layout_line(plan.best.layout, plan.job.model),
        certainty=tuple(certainty(plan)),
        sections=(),
        facts=facts(plan),
    )
