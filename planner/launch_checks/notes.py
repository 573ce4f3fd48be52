"""What an edit of a launch needs and rests on: a release of its software, published runs."""

import re
from collections.abc import Iterator

from trainplan.costmodel.calibration import context_for
from trainplan.costmodel.catalog import Release
from trainplan.costmodel.job import Job
from trainplan.costmodel.runtimes import runtime
from trainplan.planner.evidence import unpublished
from trainplan.planner.launch_checks.changed import Run

_MINOR = re.compile(r"0\.(\d+)")


def edit_notes(before: Run, after: Run) -> Iterator[str]:
    """The release that each added setting needs, and limits of published runs that are broken.

    Whether the launch has that release: yes, no, or not known where it states none.
    """
    own = runtime(before.job.runtime)
    stated = own.needs_of(before.job.options)
    for text, needs in own.needs_of(after.job.options).items():
        if own.on_megatron_core and needs.release and text not in stated:
            verdict = _verdict(before.job, needs.release)
            yield f"{text} needs Megatron Core {needs.release}: {verdict}"
    known = {one.text for one in unpublished(context_for(before.job), before.layout)}
    for one in unpublished(context_for(after.job), after.layout):
        if one.text not in known:
            yield f"extrapolated: {one.text}"


def _verdict(job: Job, least: str) -> str:
    core, minor = Release.core_of(job.release), _MINOR.search(least)
    if core is None or minor is None:
        return f"not known whether the launch has it{', give --runtime-version' * (core is None)}"
    has = "the launch has" if core >= int(minor[1]) else "the launch has only"
    return f"{has} 0.{core}"
