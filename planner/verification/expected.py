"""What the cost model counts on every rank of a layout."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from trainplan.costmodel.candidates import Context
from trainplan.costmodel.columns import FloatColumn
from trainplan.costmodel.job import DEFAULT_RUNTIME, Job
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.layouts import LayoutTable, num_microbatches
from trainplan.costmodel.machine import machine_of
from trainplan.costmodel.memory import held_params, rank_params
from trainplan.costmodel.pipeline import ranks_of
from trainplan.costmodel.program import Shape, peak_activation_bytes
from trainplan.costmodel.runtimes import RUNTIMES, RuntimeTraits, traits_of
from trainplan.costmodel.schedules import program_for
from trainplan.costmodel.step import price
from trainplan.costmodel.traffic import sent_bytes
from trainplan.planner.verification.by_megatron import Combination

Traffic = Mapping[tuple[str, str], int]
"""(group, operation) -> bytes in a step."""


@dataclass(frozen=True, slots=True)
class Expected:
    """Of every rank, in order: tensor ranks are neighbours, pipeline ranks furthest apart."""

    parameters: tuple[int, ...]
    sent: tuple[Traffic, ...]
    saved_bytes: tuple[float, ...]
    """Activations of the layers at the peak."""
    share_experts: int
    """Neighbouring ranks that hold the experts of a layer together; 1: each holds all."""


def expected(combination: Combination) -> Expected:
    """What the cost model counts of megatron-core, each rank by itself.

    Source: `rank_params`, `sent_bytes`, `pass_bytes` and `peak_activation_bytes`.
    """
    job, layout = combination.job, combination.layout
    table = LayoutTable.of([layout])
    params = rank_params(ranks_of(job, table, merged=False), held_params(job, table))
    shared = params.shared[:, 0]
    expert = params.expert[:, 0] if params.has_experts else shared * 0
    megatron = RUNTIMES[DEFAULT_RUNTIME]
    each_pass = pass_bytes(job, layout, megatron.without_engine(megatron))
    program = program_for(
        layout.schedule, Shape(layout.pp, layout.vpp, num_microbatches(job, layout))
    )
    saved = peak_activation_bytes(program, 0 * each_pass, each_pass)
    numbers, sent, kept = [], [], []
    for pp_rank in range(layout.pp):
        held = {"dp": float(shared[pp_rank]), "expert dp": float(expert[pp_rank])}
        numbers.append(round(sum(held.values())))
        sent.append(sent_bytes(job, layout, pp_rank, held))
        kept.append(float(saved[pp_rank]))
    each = layout.world_size // layout.pp
    return Expected(
        tuple(one for one in numbers for _ in range(each)),
        tuple(one for one in sent for _ in range(each)),
        tuple(one for one in kept for _ in range(each)),
        share_experts=each if layout.ep > 1 else 1,
    )


def pass_bytes(job: Job, layout: Layout, traits: RuntimeTraits | None = None) -> FloatColumn:
    """Activations of the layers of one micro batch through each virtual stage, plain torch kernels.

    Source: `rank_memory` of a pipeline with a rank for each virtual stage and one micro batch.
    """
    one = {"pp": layout.pp * layout.vpp, "vpp": 1, "schedule": "gpipe"}
    batch = {"precision": "tf32", "global_batch_size": layout.dp * layout.micro_batch_size}
    wide = job.model_copy(update={"training": job.training.model_copy(update=batch)})
    context = Context(wide, machine_of(wide.cluster, "tf32"), traits or traits_of(wide))
    table = LayoutTable.of([layout.model_copy(update=one)])
    return np.asarray(price(context.with_table(table), merged=False).memory.activations[:, 0])
