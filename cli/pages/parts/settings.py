"""What a plan says of settings of its runtime: those chosen, those searched, those left out."""

from __future__ import annotations

from trainplan.cli.words import plural
from trainplan.costmodel.runtimes import runtime
from trainplan.planner.plan import Plan


def settings_text(plan: Plan) -> str:
    """The settings of the answer and how sure they are; empty where none was varied."""
    settings = plan.certificate.settings
    if settings is None:
        return ""
    chosen = " ".join(settings.chosen) or "the runtime's defaults"
    if not settings.combinations:
        return f"Settings of the fastest layout with even stages: {chosen}."
    count = plural(len(settings.combinations), "combination")
    return f"Of {count} of settings, chosen: {chosen}{_left_out(plan)}."


def _left_out(plan: Plan) -> str:
    """Settings the runtime has for the job that were not varied."""
    settings, job = plan.certificate.settings, plan.job
    if settings is None or settings.level != "safe":
        return ""
    others = [one for one in runtime(job.runtime).settings if one.level == "all"]
    free = (one.name for one in others if getattr(job.options, one.name) is None)
    names = ", ".join(dict.fromkeys(free))
    return f"; not searched (`--search-options all`): {names}" if names else ""
