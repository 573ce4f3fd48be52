"""What the cost model says of the reference decoder."""

from dataclasses import replace

from trainplan.costmodel.blocks.rows import row_blocks
from trainplan.costmodel.candidates.context import Candidates
from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.costmodel.job.job import Job, TrainingSpec
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.machine import machine_of
from trainplan.costmodel.runtimes.registry import traits_of
from trainplan.costmodel.step import price

RECOMPUTE = {
    "none": {},
    "core_attn": {"recompute": "selective", "recompute_modules": ("core_attn",)},
    "full": {"recompute": "full", "recompute_method": "uniform", "recompute_num_layers": 1},
}
COMPOSED_NORM = {"norm_fp32_copies": 2, "shared_layer_input": False}
"""A norm of single operations keeps x in fp32 (for `pow`) and the normed x in fp32 (for `mul`
with the weight), so it does not keep its input."""


def arguments(model, micro_batch_size, seq_length, *, fused, recompute):
    job = Job(
        model=model,
        training=TrainingSpec(seq_length=seq_length, global_batch_size=micro_batch_size),
        cluster=parse_cluster("1x1:h100-sxm"),
        runtime="torch-eager",
    )
    traits = traits_of(job)
    if not fused:
        traits = replace(traits, autograd=replace(traits.autograd, **COMPOSED_NORM))
    layout = Layout(zero_stage=0, micro_batch_size=micro_batch_size, **RECOMPUTE[recompute])
    machine = machine_of(job.cluster, job.training.precision)
    return job, machine, traits, LayoutTable.of([layout])


def blocks(model, micro_batch_size, seq_length):
    """Seconds of one micro batch in every kind of block."""
    given = arguments(model, micro_batch_size, seq_length, fused=True, recompute="full")
    return row_blocks(Candidates(*given)).kinds


def layer_kept_bytes(model, micro_batch_size, seq_length, *, fused=True):
    """Bytes the last layer keeps; layers of a model are alike in these tests."""
    given = arguments(model, micro_batch_size, seq_length, fused=fused, recompute="none")
    blocks = row_blocks(Candidates(*given))
    return blocks.layers[-1].saved_bytes[0]


def memory(model, micro_batch_size, seq_length, *, fused=True, recompute="none"):
    """Memory of the one rank."""
    given = arguments(model, micro_batch_size, seq_length, fused=fused, recompute=recompute)
    return price(Candidates(*given)).memory
