"""The launch files of a plan, to copy: those of `plan export` with its default launcher."""

from collections.abc import Iterator

from trainplan.cli.blocks import Block, Code, Paragraph, Section
from trainplan.costmodel.base import PlanError
from trainplan.planner.launchers import LAUNCHERS, hostfile
from trainplan.planner.plan import NO_EXPORT, Plan
from trainplan.planner.questions import check, no_files
from trainplan.planner.runtimes import EXPORTERS

LAUNCHER = "torchrun"
"""Default of `plan export`."""


def launch_section(plan: Plan) -> Section:
    """The files, or why there are none."""
    return Section("launch", "Launch files", tuple(_blocks(plan)))


def _blocks(plan: Plan) -> Iterator[Block]:
    job, order = plan.job, plan.placement.nodes if plan.placement else ()
    if plan.apart:
        yield Paragraph(f"{NO_EXPORT}.", "doubtful")
        return
    if job.runtime not in EXPORTERS:
        yield Paragraph(f"{no_files(job.runtime)}.", "doubtful")
        return
    try:
        check(job, plan.best.layout)
        config = EXPORTERS[job.runtime](job, plan.best.layout)
        script = LAUNCHERS[LAUNCHER](config, job.cluster, order)
        hosts = hostfile(job.cluster, order) if order else None
    except PlanError as error:
        yield Paragraph(f"No launch files are written: {error}.", "doubtful")
        return
    yield Paragraph(
        f"For {config.runtime} {config.runtime_version}, started by {LAUNCHER}; `plan export` "
        f"writes these files, and those for {', '.join(n for n in LAUNCHERS if n != LAUNCHER)}."
    )
    for variable in config.required_environment:
        yield Paragraph(f"Set first: {variable.name}: {variable.sentence}")
    yield Code(script.name, script.text)
    if hosts:
        yield Code(hosts.name, hosts.text)
    yield from (Code(file.name, file.text) for file in config.files)
    yield from (Paragraph(note) for note in config.notes)
