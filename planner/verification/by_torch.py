"""Plans of torch's own parallelism: layouts that use what they use, and what the model counts."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import combinations as chosen_of

import numpy as np

from trainplan.costmodel.base import BYTES_FP32
from trainplan.costmodel.blocks import norm_extra_bytes
from trainplan.costmodel.candidates import context_of
from trainplan.costmodel.columns import FloatColumn
from trainplan.costmodel.job import Job, RuntimeOptions
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.layouts import LayoutTable, num_microbatches, stage_layers
from trainplan.costmodel.machine import machine_of
from trainplan.costmodel.memory import held_params, rank_params
from trainplan.costmodel.pipeline import ranks_of
from trainplan.costmodel.program import placed
from trainplan.costmodel.runtimes import RuntimeTraits
from trainplan.costmodel.schedules import SCHEDULES, held_passes
from trainplan.costmodel.step import price
from trainplan.costmodel.traffic import torch_sent_bytes
from trainplan.planner.verification.by_megatron import (
    Combination,
    Combinations,
    Refuse,
    Request,
    gathered,
)
from trainplan.planner.verification.expected import Expected

AXES = ("tp", "cp", "pp", "dp")
"""Degrees that fill the processes."""
MOST_TENSOR_RANKS = 4
"""As many as the tiny model has key-value heads."""
SHARES: Mapping[int, Sequence[tuple[int, ...]]] = {1: ((1,),), 2: ((2, 0), (0, 2)), 3: ((2, 2, 0),)}
"""Processes of each of some axes at once; 0: what is left."""
RING = "the exchange of cp: a ring of sends takes its place, for torch's own does not run on gloo"


def torch_combinations(job: Job, layout: Layout, nproc: int, refuse: Refuse) -> Combinations:
    """What a plan uses, on so many processes.

    Raises:
        SpecError: The trainer cannot run the model at all, or nothing of the layout.
    """
    layouts, reasons = _layouts(layout, nproc), partial(_not_run, layout)
    own = {"runtime": job.runtime, "options": RuntimeOptions()}
    return gathered(job, layout, layouts, refuse, reasons, **own)


def _not_run(plan: Layout, request: Sequence[Request]) -> Iterator[str]:
    """Degrees of the plan that no layout has, each with the first reason, and the rest."""
    for axis in AXES:
        reasons = [why for one, why in request if getattr(one.layout, axis) > 1]
        if reasons and all(reasons):
            yield f"{axis}: {reasons[0]}"
    if plan.cp > 1:
        yield RING
    if plan.recompute == "selective":
        yield "selective recomputation: run without, since it goes by operation"
    if plan.offload != type(plan.offload)() or plan.offload_modules:
        yield "offload: it moves tensors and changes no sum"


def _layouts(plan: Layout, nproc: int) -> Iterator[Layout]:
    """Each degree by itself, then as many together as the processes hold."""
    axes = [axis for axis in AXES if getattr(plan, axis) > 1]
    most = min(len(axes), nproc.bit_length() - 1)
    for count in dict.fromkeys((1, most)):
        for chosen in chosen_of(axes, count):
            for share in SHARES.get(count, ()):
                yield from _of_degrees(plan, _filled(chosen, share, nproc))
    if plan.recompute == "full":
        yield _layout(plan, {}, recomputed=True)


def _filled(chosen: Sequence[str], share: Sequence[int], nproc: int) -> dict[str, int]:
    """Degrees of some axes that fill the processes."""
    left = nproc // int(np.prod([max(1, one) for one in share])) if 0 in share else nproc
    return {axis: one if one > 1 else left for axis, one in zip(chosen, share, strict=True)}


def _of_degrees(plan: Layout, degrees: dict[str, int]) -> Iterator[Layout]:
    degrees["tp"] = min(degrees.get("tp", 1), MOST_TENSOR_RANKS)
    yield _layout(plan, degrees, recomputed=False)
    if plan.recompute == "full" and len([one for one in degrees.values() if one > 1]) > 1:
        yield _layout(plan, degrees, recomputed=True)


def _layout(plan: Layout, degrees: Mapping[str, int], *, recomputed: bool) -> Layout:
    """With the knobs of the plan that mean something at these degrees."""
    cp, pp, dp = (degrees.get(axis, 1) for axis in ("cp", "pp", "dp"))
    stated: dict[str, object] = {
        **degrees,
        "zero_stage": _zero_stage(plan, cp * dp, pp),
        "micro_batch_size": min(plan.micro_batch_size, 2),
        "sequence_parallel": plan.sequence_parallel and degrees.get("tp", 1) > 1,
    }
    if plan.dp_replicate > 1 and dp % 2 == 0 and cp * dp > 2:
        stated["dp_replicate"] = 2
    if pp > 1:
        stated |= {"schedule": plan.schedule, "vpp": min(plan.vpp, 2)}
    if recomputed:
        stated |= {
            "recompute": "full",
            "recompute_method": plan.recompute_method,
            "recompute_num_layers": 1,
        }
    return Layout.model_validate(stated)


def _zero_stage(plan: Layout, ranks: int, pp: int) -> int:
    """That of the plan; without a pipeline FSDP that keeps gradients whole has no other word."""
    if ranks == 1:
        return 0
    return 2 if plan.zero_stage == 1 and plan.pp > 1 and pp == 1 else plan.zero_stage


def torch_expected(one: Combination) -> Expected:
    """What the cost model counts of FSDP2, DTensor and torch's pipelining, each rank by itself.

    Source: `rank_params`, `torch_sent_bytes`, `rank_memory` and `head_kept_bytes`.
    """
    job, layout = one.job, one.layout
    table = LayoutTable.of([layout])
    params = rank_params(ranks_of(job, table, merged=False), held_params(job, table)).shared[:, 0]
    wide = job.model_copy(
        update={"training": job.training.model_copy(update={"precision": "tf32"})}
    )
    context = context_of(wide, machine_of(wide.cluster, "tf32"))
    traits = context.traits
    memory = price(context.with_table(table), merged=False).memory
    kept = memory.activations[:, 0] + head_kept_bytes(job, traits, layout)
    each = layout.world_size // layout.pp
    ranks = [pp_rank for pp_rank in range(layout.pp) for _ in range(each)]
    return Expected(
        parameters=tuple(round(float(params[pp_rank])) for pp_rank in ranks),
        sent=tuple(torch_sent_bytes(job, traits, layout, pp_rank) for pp_rank in ranks),
        saved_bytes=tuple(float(kept[pp_rank]) for pp_rank in ranks),
        share_experts=1,
    )


def head_kept_bytes(job: Job, traits: RuntimeTraits, layout: Layout) -> FloatColumn:
    """Bytes that the last norm, the head and the loss keep on each pipeline rank at its peak.

    Of every micro batch in flight on the last stage the input and the output of the norm, which
    the gradient of the head's weight waits for; of those whose backward pass has not begun the
    log-softmax. It begins at once, but where all forward passes come first.
    Source: pytorch v2.13.0 derivatives.yaml, `_log_softmax` (its result), `mm` (both factors).
    """
    model, autograd = job.model, traits.autograd
    one, m = SCHEDULES[layout.schedule], num_microbatches(job, layout)
    stages = placed(one.placement, layout.pp, layout.vpp)
    layers = np.array(stage_layers(model, layout))[stages]
    last = stages == layout.pp * layout.vpp - 1
    flying = (held_passes(layout.schedule, m, layers) * last).sum(axis=1)
    waiting = flying if one.forward_first else 1
    tokens = layout.micro_batch_size * job.training.seq_length / layout.cp
    storage, cut = job.training.storage_bytes, layout.tp if layout.sequence_parallel else 1
    row = storage * model.hidden_size
    norm = (row + norm_extra_bytes(model, autograd, storage)) / cut + row
    logits = BYTES_FP32 * model.vocab_size / layout.tp
    result = tokens * last.any(axis=1) * (flying * norm + waiting * logits)
    return np.asarray(result, dtype=np.float64)
