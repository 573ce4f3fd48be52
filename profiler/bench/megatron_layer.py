"""Whole layers of Megatron-LM, beside their collectives, and with one rank embedding and head."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from itertools import product
from typing import Literal

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.job import Precision
from trainplan.costmodel.profiles import EndPoint, LayerPoint, Point, Timing
from trainplan.profiler.bench.embedding_and_head import head_tokens
from trainplan.profiler.bench.inputs.shapes import caps, padded_rows
from trainplan.profiler.bench.inputs.tensors import difference, task, working_precision
from trainplan.profiler.bench.layers.case import Case, expert_ranks, fits, measured_model
from trainplan.profiler.bench.layers.in_step import depth_of, timed
from trainplan.profiler.bench.layers.megatron import (
    PARTS,
    RUNTIME,
    asked,
    has_engine,
    micro_batch,
    versions,
    why_not,
)
from trainplan.profiler.bench.layers.modules import Sharding
from trainplan.profiler.task import Clock, MeasurementTask, Place, Request

Kernels = Literal["fused", "eager"]
PLAIN_ON_A_GPU = (
    "only jobs without it (--option attention=unfused --option compile=false) take their times"
)


def megatron_tasks(request: Request, place: Place) -> Iterator[MeasurementTask]:
    """One task for each micro batch, cut and sort of layer, as far as device and library allow."""
    precision = working_precision(request, place)
    for case in _cases(request, place):
        if why_not(case, place, precision) is None:
            measure = partial(_measure, case, request, place)
            key = f"{RUNTIME} {case.text} {precision}"
            yield task(place, key, measure, together=True)


def megatron_notes(request: Request, place: Place) -> Iterator[str]:
    """What of the layers is not measured as Megatron-LM trains them, and why: one sentence each."""
    precision = working_precision(request, place)
    cases = tuple(_cases(request, place))
    reasons = dict.fromkeys(filter(None, (why_not(case, place, precision) for case in cases)))
    name = request.model.name
    for reason in reasons if cases else ("they are too much work for this device",):
        yield f"layers of {name} were not measured in {RUNTIME}: {reason}"
    if cases and not reasons:
        engine = has_engine(place)
        plain = "" if engine or place.device == "cpu" else f": {PLAIN_ON_A_GPU}"
        yield f"layers of {name} in {RUNTIME} ran on {versions(engine=engine)}{plain}"


def tensor_ranks(model: ModelSpec, place: Place, *, quick: bool) -> tuple[int, ...]:
    """Tensor-parallel degrees of real ranks: powers of two that fill nodes; the ends if quick."""
    cut = (model.num_attention_heads, model.num_key_value_heads, model.intermediate_size)
    degrees = [1]
    while not any(size % (2 * degrees[-1]) for size in (place.local_world_size, *cut)):
        degrees.append(2 * degrees[-1])
    return tuple(dict.fromkeys((degrees[0], degrees[-1]))) if quick else tuple(degrees)


def _cases(request: Request, place: Place) -> Iterator[Case]:
    """Dense layers on all cuts; layers with experts whole, with the experts of one rank."""
    model, limit = measured_model(request.model), caps(place.device, quick=request.quick)
    ep = expert_ranks(model, limit.tensor_bytes)
    sorts = sorted(set(model.moe_layers))
    degrees = tensor_ranks(model, place, quick=request.quick)
    for tp, size, moe in product(degrees, request.micro_batch_sizes, sorts):
        case = Case(model, moe, Sharding(tp, ep if moe else 1), size, request.seq_length)
        if fits(case, limit) and not (moe and tp > 1):
            yield case


def _measure(case: Case, request: Request, place: Place, clock: Clock) -> Iterator[Point]:
    precision = working_precision(request, place)
    limit, tp = caps(place.device, quick=request.quick), case.sharding.tp
    depth = depth_of(case.weights, place)
    first = tp == 1 and case.moe == min(case.model.moe_layers)  # ends are those of all sorts
    ends = first and head_tokens(case.model, tp, case.tokens, limit) == case.tokens
    wanted = asked(case, place, depth, precision, whole_vocabulary=ends)
    with micro_batch(wanted, place) as run:
        parts = timed(clock, run, PARTS, depth, together=True)
        saved = run.saved_bytes() / depth
    kernels: Kernels = "fused" if has_engine(place) else "eager"
    yield LayerPoint(
        model=case.model,
        moe=case.moe,
        runtime=RUNTIME,
        kernels=kernels,
        attention="flash" if has_engine(place) else "unfused",
        tp=tp,
        ep=case.sharding.ep,
        micro_batch_size=case.micro_batch_size,
        seq_length=case.seq_length,
        precision=precision,
        sequence_parallel=tp > 1,
        in_step=True,
        collectives_inside=tp > 1,
        forward=parts["forward"],
        backward=parts["backward"],
        weight=difference(parts["backward"], parts["inputs"]),
        saved_bytes=saved,
    )
    if ends:
        yield from _ends(case, precision, kernels, parts)


def _ends(
    case: Case, precision: Precision, kernels: Kernels, parts: Mapping[str, Timing]
) -> Iterator[EndPoint]:
    kinds: tuple[Literal["embedding", "head"], ...] = ("embedding", "head")
    for kind in kinds:
        yield EndPoint(
            kind=kind,
            tokens=case.tokens,
            hidden_size=case.model.hidden_size,
            vocab_size=padded_rows(case.model, case.sharding.tp),
            runtime=RUNTIME,
            kernels=kernels,
            precision=precision,
            in_step=True,
            forward=parts[kind],
            backward=parts[f"{kind}_backward"],
        )
