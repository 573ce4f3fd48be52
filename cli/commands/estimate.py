"""`plan estimate`: what one layout costs."""

from __future__ import annotations

import click

from trainplan.cli.options.help import example
from trainplan.cli.options.layout_text import parse_layout
from trainplan.cli.options.shared import JSON, Question, job_options
from trainplan.cli.options.shared import memory_margin as with_memory_margin
from trainplan.cli.render.estimate import estimate_document, estimate_page
from trainplan.cli.terminal.clock import Clock
from trainplan.cli.terminal.output import show, show_json
from trainplan.planner.plan.options import SearchOptions
from trainplan.planner.questions import search as answer
from trainplan.planner.questions.changes.variations import Case
from trainplan.planner.questions.remedies import Remedy, remedies

REMEDY_SECONDS = 5.0
"""Until then what would make a layout fit is looked for; most take less than one."""


@click.command(
    "estimate",
    epilog=example(
        "plan estimate --model llama3-70b --cluster 8x8:h100-sxm \\",
        "  --global-batch-size 128 --seq-length 8192 \\",
        "  --layout tp=8,pp=4,vpp=2,sequence_parallel=true,recompute_modules=core_attn+mlp",
    ),
)
@job_options
@click.option(
    "--layout",
    required=True,
    metavar="LAYOUT",
    help="FIELD=VALUE,... such as tp=8,pp=4,vpp=2,micro_batch_size=1. Left out: dp fills the "
    "cluster, vpp > 1 is interleaved, zero_stage=1, the rest 1 or off.",
)
@with_memory_margin(0.0)
@JSON
def command(
    question: Question,
    layout: str,
    memory_margin: float,
    *,
    as_json: bool,
) -> None:
    """Price one layout: time, memory, fit.

    A layout that does not fit is priced too, with what would make it fit. Fields: tp pp vpp cp dp
    ep etp dp_replicate zero_stage sequence_parallel micro_batch_size schedule recompute
    recompute_modules recompute_method recompute_num_layers offload offload_modules.
    """
    job = question.job
    chosen = parse_layout(layout, job.cluster)
    measured = question.measured
    estimate = answer.estimate(job, chosen, measured, memory_margin=memory_margin)
    notes = (*answer.notes(job, measured), *question.notes)
    found: tuple[Remedy, ...] | None = None
    if not estimate.memory.fits:
        case = Case(job, SearchOptions(memory_margin=memory_margin), measured)
        with Clock(REMEDY_SECONDS) as clock:
            found = remedies(case, chosen, clock)
    if as_json:
        show_json(estimate_document(job, chosen, estimate, notes, found))
    else:
        show(*estimate_page(job, chosen, estimate, notes, found))
