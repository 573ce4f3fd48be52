"""What the cost model counts on every rank of a layout."""

from collections.abc import Mapping
from dataclasses import dataclass

from trainplan.costmodel.candidates import Context
from trainplan.costmodel.job import DEFAULT_RUNTIME, Job
from trainplan.costmodel.layouts import LayoutTable
from trainplan.costmodel.machine import machine_of
from trainplan.costmodel.memory import held_params, rank_params
from trainplan.costmodel.pipeline import ranks_of
from trainplan.costmodel.runtimes import RUNTIMES
from trainplan.costmodel.step import price
from trainplan.costmodel.traffic import sent_bytes, stages_of
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

    Source: `rank_params`, `sent_bytes` and `rank_memory`.
    """
    job, layout = combination.job, combination.layout
    table = LayoutTable.of([layout])
    params = rank_params(ranks_of(job, table, merged=False), held_params(job, table))
    shared = params.shared[:, 0]
    expert = params.expert[:, 0] if params.has_experts else shared * 0
    saved = _saved(job, table)
    numbers, sent, kept = [], [], []
    for pp_rank in range(layout.pp):
        balancing = sum(
            _balancing(job) * sum(stage.moe_layers) for stage in stages_of(job, layout, pp_rank)
        )
        held = {"dp": float(shared[pp_rank]) - balancing, "expert dp": float(expert[pp_rank])}
        numbers.append(round(sum(held.values())))
        sent.append(sent_bytes(job, layout, pp_rank, held))
        kept.append(saved[pp_rank])
    each = layout.world_size // layout.pp
    return Expected(
        tuple(one for one in numbers for _ in range(each)),
        tuple(one for one in sent for _ in range(each)),
        tuple(one for one in kept for _ in range(each)),
        share_experts=each if layout.ep > 1 else 1,
    )


def _balancing(job: Job) -> int:
    """Numbers of a router that balance experts: parameters of the model, but none is trained.

    Source: Megatron Core `moe/router.py`, expert_bias is a buffer.
    """
    moe = job.model.moe
    return moe.num_experts if moe and moe.router_bias else 0


def _saved(job: Job, table: LayoutTable) -> list[float]:
    """Activations of every pipeline rank, in kernels of plain torch."""
    wide = job.model_copy(
        update={"training": job.training.model_copy(update={"precision": "tf32"})}
    )
    megatron = RUNTIMES[DEFAULT_RUNTIME]
    context = Context(wide, machine_of(wide.cluster, "tf32"), megatron.without_engine(megatron))
    memory = price(context.with_table(table), merged=False).memory
    return [float(one) for one in memory.activations[:, 0]]
