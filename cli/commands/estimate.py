"""`plan estimate`: what one layout costs."""

from collections.abc import Iterator
from dataclasses import replace

import click

from trainplan.cli.options import JSON, completions, job_options, memory_margin, page
from trainplan.cli.terminal import imported_on_answer

with imported_on_answer():
    from trainplan.cli.blocks import answer
    from trainplan.cli.documents import EstimateDocument
    from trainplan.cli.pages import screen
    from trainplan.cli.terminal import Clock, command_seconds
    from trainplan.cli.values import Question, parse_layout
    from trainplan.cli.words import gib, seconds
    from trainplan.costmodel.base import PlanError
    from trainplan.costmodel.calibration import machine_for
    from trainplan.costmodel.layout import Layout
    from trainplan.costmodel.outer import island_job, with_rounds
    from trainplan.planner.cases import Case
    from trainplan.planner.comparisons import Remedy, Side, remedies
    from trainplan.planner.goals import SearchContext, part_alone
    from trainplan.planner.plan import OuterStep, SearchOptions
    from trainplan.planner.questions import StepFacts, layout_notes
    from trainplan.planner.questions import estimate as estimate_of

REMEDY_SECONDS = 5.0
"""Until then what would make a layout fit is looked for, or a part of the cluster that is faster
alone; most take less than one."""


@page(
    "estimate",
    "plan estimate --model llama3-70b --cluster 8x8:h100-sxm \\",
    "  --global-batch-size 128 --seq-length 8192 \\",
    "  --layout tp=8,pp=4,vpp=2,sequence_parallel=true,recompute_modules=core_attn+mlp",
)
@job_options(length_required=True)
@click.option(
    "--layout",
    required=True,
    shell_complete=completions.LAYOUT,
    metavar="LAYOUT",
    help="tp=8,pp=4,vpp=2,micro_batch_size=1, a layout as it was printed, or @plan.json:3, the "
    "third of a plan's table. Left out: dp fills the cluster, zero_stage=1, the rest 1 or off.",
)
@memory_margin(0.0)
@JSON
def command(question: Question, layout: str, memory_margin: float, *, as_json: bool) -> None:
    """Price one layout: time, memory, fit.

    A layout that does not fit is priced too, with what would make it fit. Fields: tp pp vpp cp dp
    ep etp dp_replicate zero_stage sequence_parallel micro_batch_size schedule recompute
    recompute_modules recompute_method recompute_num_layers offload offload_modules stages
    (layers of every virtual stage, such as 2+3*10+0).
    """
    measured, job = question.measured, island_job(question.job)
    chosen = parse_layout(layout, job.cluster)
    estimate = estimate_of(job, chosen, measured, memory_margin=memory_margin)
    rounds = with_rounds(job, machine_for(job, measured), estimate.local_step_s)
    if rounds != job:
        job = rounds
        estimate = estimate_of(job, chosen, measured, memory_margin=memory_margin)
    question = replace(question, job=job)
    outer = OuterStep.of(job, machine_for(job, measured), estimate)
    alongside = tuple(_with_sequence_parallel(question, layout, chosen, memory_margin))
    notes = (*alongside, *layout_notes(job, chosen, estimate, measured), *question.notes)
    found: tuple[Remedy, ...] | None = None
    options = SearchOptions(memory_margin=memory_margin, search_options="none", only_written=False)
    with Clock(command_seconds() + REMEDY_SECONDS) as clock:
        if not estimate.memory.fits:
            found = remedies(Case(job, options, measured), chosen, clock)
        searched = bool(found) or not clock.spent()
        notes = (*part_alone(SearchContext.of(job, options, measured, clock), estimate), *notes)
    facts = StepFacts.of(job, chosen, estimate, measured)
    side = Side(job, chosen, estimate)
    page = screen(estimate, side, notes, found, facts=facts, outer=outer, searched=searched)
    remedied = (found or ()) if searched else None
    document = EstimateDocument.of(side, notes, remedied, facts, outer).json()
    answer(document, page, as_json=as_json, found=estimate)


def _with_sequence_parallel(
    question: Question, text: str, layout: Layout, memory_margin: float
) -> Iterator[str]:
    """What sequence parallelism would change, where a layout with tp does not state it."""
    printed = "=" not in text  # then it says all: SP, or no SP
    if printed or layout.tp == 1 or layout.sequence_parallel or "sequence_parallel" in text:
        return
    other = layout.model_copy(update={"sequence_parallel": True})
    try:
        priced = estimate_of(question.job, other, question.measured, memory_margin=memory_margin)
    except PlanError:
        return
    yield (
        f"sequence_parallel is not in the layout, so it is off: with sequence_parallel=true a step "
        f"takes {seconds(priced.step_time_s)} and "
        f"{gib(priced.memory.peak_reserved_bytes)} GiB"
    )
