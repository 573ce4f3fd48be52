"""Plans of torch's own parallelism: layouts that use what they use, and what the model counts."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import combinations as chosen_of

import numpy as np

from trainplan.costmodel.base import BYTES_FP32
from trainplan.costmodel.blocks import norm_extra_bytes
from trainplan.costmodel.job import Job, RuntimeOptions
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.layouts import LayoutTable, num_microbatches
from trainplan.costmodel.memory import held_params, rank_params
from trainplan.costmodel.pipeline import ranks_of
from trainplan.costmodel.program import Shape, peak_activation_bytes
from trainplan.costmodel.runtimes import RuntimeTraits, traits_of
from trainplan.costmodel.schedules import program_for
from trainplan.costmodel.traffic import torch_sent_bytes
from trainplan.planner.verification.by_megatron import (
    Combination,
    Combinations,
    Refuse,
    Request,
    gathered,
)
from trainplan.planner.verification.expected import Expected, pass_bytes

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

    Source: `rank_params`, `torch_sent_bytes`, `pass_bytes`, `head_pass_bytes`, and, for the moment
    when they add up to most, `peak_activation_bytes`.
    """
    job, layout = one.job, one.layout
    table = LayoutTable.of([layout])
    params = rank_params(ranks_of(job, table, merged=False), held_params(job, table)).shared[:, 0]
    traits = traits_of(job)
    layers, (head, loss) = pass_bytes(job, layout), head_pass_bytes(job, traits, layout)
    shape = Shape(layout.pp, layout.vpp, num_microbatches(job, layout))
    program = program_for(layout.schedule, shape)
    last = np.arange(len(layers)) == len(layers) - 1
    kept = peak_activation_bytes(program, last * loss, layers + last * head)
    each = layout.world_size // layout.pp
    ranks = [pp_rank for pp_rank in range(layout.pp) for _ in range(each)]
    return Expected(
        parameters=tuple(round(float(params[pp_rank])) for pp_rank in ranks),
        sent=tuple(torch_sent_bytes(job, traits, layout, pp_rank) for pp_rank in ranks),
        saved_bytes=tuple(float(kept[pp_rank]) for pp_rank in ranks),
        share_experts=1,
    )


def head_pass_bytes(job: Job, traits: RuntimeTraits, layout: Layout) -> tuple[float, float]:
    """Bytes that a pass keeps of the last norm and the head, and of the loss.

    Of the norm the input and the output, which the gradient of the head's weight waits for; of the
    loss the log-softmax, which the gradient of the stage's input is the last to read.
    Source: pytorch v2.13.0 derivatives.yaml, `_log_softmax` (its result), `mm` (both factors);
    torch.distributed.pipelining `_backward.py`, stage_backward_input, which drops the loss.
    """
    model, autograd = job.model, traits.autograd
    tokens = layout.micro_batch_size * job.training.seq_length / layout.cp
    storage, cut = job.training.storage_bytes, layout.tp if layout.sequence_parallel else 1
    row = storage * model.hidden_size
    norm = (row + norm_extra_bytes(model, autograd, storage)) / cut + row
    return tokens * norm, tokens * BYTES_FP32 * model.vocab_size / layout.tp
