"""`plan estimate`: its options and help page."""

from __future__ import annotations

import click

from trainplan.cli.options import completions
from trainplan.cli.options.help import page
from trainplan.cli.options.shared import JSON, job_options, memory_margin
from trainplan.cli.options.where import needs_a_machine


@page(
    "estimate",
    "plan estimate --model llama3-70b --cluster 8x8:h100-sxm \\",
    "  --global-batch-size 128 --seq-length 8192 \\",
    "  --layout tp=8,pp=4,vpp=2,sequence_parallel=true,recompute_modules=core_attn+mlp",
    needs=needs_a_machine,
)
@job_options
@click.option(
    "--layout",
    required=True,
    shell_complete=completions.LAYOUT,
    metavar="LAYOUT",
    help="FIELD=VALUE,... such as tp=8,pp=4,vpp=2,micro_batch_size=1. Left out: dp fills the "
    "cluster, vpp > 1 is interleaved, zero_stage=1, the rest 1 or off. Or a layout as it was "
    "printed, or @plan.json:3, the third of a plan's table.",
)
@memory_margin(0.0)
@JSON
def command() -> None:
    """Price one layout: time, memory, fit.

    A layout that does not fit is priced too, with what would make it fit. Fields: tp pp vpp cp dp
    ep etp dp_replicate zero_stage sequence_parallel micro_batch_size schedule recompute
    recompute_modules recompute_method recompute_num_layers offload offload_modules stages
    (layers of every virtual stage, such as 2+3*10+0).
    """
