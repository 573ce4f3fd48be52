"""`plan why-not`: what a layout lacks against a plan's."""

from pathlib import Path

import click

from trainplan.cli.options import JSON, PLAN, PROFILE, completions, page, time_limit
from trainplan.cli.terminal import imported_on_answer

with imported_on_answer():
    from trainplan.cli.blocks import answer
    from trainplan.cli.documents import WhyNotDocument
    from trainplan.cli.files import errors_of, load_measured
    from trainplan.cli.pages import screen
    from trainplan.cli.terminal import Clock
    from trainplan.cli.values import load_written, parse_choices, parse_layout, remark_change
    from trainplan.costmodel.axes import NAMED_AXES
    from trainplan.costmodel.base import SpecError
    from trainplan.planner.cases import Case
    from trainplan.planner.comparisons import why_not
    from trainplan.planner.space import Choice


@page("why-not", "plan why-not plan.json tp=8,vpp=2")
@PLAN
@click.argument("wanted", required=False, metavar="[LAYOUT]", shell_complete=completions.LAYOUT)
@click.option(
    "--layout",
    shell_complete=completions.LAYOUT,
    metavar="LAYOUT",
    help="The same, as an option.",
)
@PROFILE
@time_limit(20.0, "Look for changes that make it run until then.")
@JSON
def command(
    plan: Path,
    wanted: str | None,
    layout: str | None,
    profiles: tuple[Path, ...],
    time_limit: float,
    *,
    as_json: bool,
) -> None:
    """Explain why a layout is not the answer.

    PLAN is a file written by `plan search --output`. LAYOUT is FIELD=VALUE,..., whose other fields
    are free: the best such layout is searched; or a whole layout, printed or @plan.json:3. Prints
    the rule that refuses it, the bytes it lacks, or the seconds it loses against the plan.
    """
    if (wanted is None) == (layout is None):
        raise SpecError("give one layout, such as tp=8, a printed one or @plan.json:3")
    text = wanted or layout or ""
    measured = load_measured(profiles)
    found = load_written(plan)
    request, fields = parse_layout(text, found.job.cluster), _fields(text)
    case = Case(found.job, found.options, measured)
    with errors_of(plan), Clock(time_limit) as clock:
        reasons = why_not(case, found, request, clock, fields)
    remark_change(plan, found, measured)
    document = WhyNotDocument.of(reasons).json()
    answer(document, screen(reasons), as_json=as_json, found=reasons)


def _fields(text: str) -> tuple[Choice, ...]:
    """Fields that a text names; none of a whole layout, and where no search is held to one.

    A whole layout names all fields but those of what is recomputed and offloaded.

    Then it is compared in a layout that is filled in as for an estimate: `stages=2+3*10`.
    """
    if "=" not in text or text.strip().startswith("@"):
        return ()
    try:
        choices = parse_choices(text.split(","), ())[0]
    except SpecError:
        return ()
    return choices if len(choices) < len(NAMED_AXES) else ()
