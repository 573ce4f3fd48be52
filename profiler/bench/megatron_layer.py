"""Whole layers of Megatron-LM, beside their collectives, and with one rank embedding and head."""

from collections.abc import Iterator, Mapping
from functools import partial
from itertools import product
from typing import Literal

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.hardware import parse_cluster
from trainplan.costmodel.job import DEFAULT_RUNTIME, Job, Precision, TrainingSpec
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.profiles import EndPoint, Point, Timing
from trainplan.profiler.bench.embedding_and_head import head_tokens
from trainplan.profiler.bench.inputs.shapes import caps, padded_rows
from trainplan.profiler.bench.inputs.tensors import task, working_precision
from trainplan.profiler.bench.layers.case import Case, expert_ranks, fits, measured_model
from trainplan.profiler.bench.layers.in_step import depth_of, layer_point, timed
from trainplan.profiler.bench.layers.modules import Sharding
from trainplan.profiler.task import Clock, MeasurementTask, Place, Request
from trainplan.profiler.train import (
    PARTS,
    TrainingRequest,
    has_engine,
    is_installed,
    micro_batch,
    refusal,
    versions,
)

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
    wanted = training_request(case, place, depth, precision, whole_vocabulary=ends)
    with micro_batch(wanted, place) as run:
        parts = timed(clock, run, PARTS, depth, together=True)
        saved = run.saved_bytes() / depth
    kernels: Kernels = "fused" if has_engine(place) else "eager"
    point = layer_point(case, RUNTIME, precision, parts, saved)
    yield point.model_copy(
        update={
            "kernels": kernels,
            "attention": "flash" if has_engine(place) else "unfused",
            "sequence_parallel": tp > 1,
            "collectives_inside": tp > 1,
        }
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


RUNTIME = DEFAULT_RUNTIME
MOST_RANKS = 64
"""Source: derived; the library makes every group of all ranks on every rank, some dozens for each,
and has to be done long before a task's time is up."""
ANY_GPU = "h100-sxm"
"""A job has to name one; none of its numbers is read here."""
FEW_WORDS = 1024
"""Of a model whose embedding and head are not measured."""


def why_not(case: Case, place: Place, precision: Precision) -> str | None:
    """Why its layer is not measured; null where it is."""
    if not is_installed():
        return "it needs megatron-core: pip install 'trainplan[train]'"
    if place.world_size > MOST_RANKS:
        return f"its groups are made for up to {MOST_RANKS} ranks: profile fewer nodes as well"
    return refusal(training_request(case, place, 1, precision))


def training_request(
    case: Case, place: Place, depth: int, precision: Precision, *, whole_vocabulary: bool = False
) -> TrainingRequest:
    """A job of some layers alike, on all ranks."""
    tp = case.sharding.tp
    model = model_of(case, depth)
    if not whole_vocabulary:
        model = model.model_copy(update={"vocab_size": FEW_WORDS})
    dp, size = place.world_size // tp, case.micro_batch_size
    training = TrainingSpec(
        seq_length=case.seq_length, global_batch_size=dp * size, precision=precision
    )
    cluster = parse_cluster(f"{place.num_nodes}x{place.local_world_size}:{ANY_GPU}")
    layout = Layout(tp=tp, dp=dp, micro_batch_size=size, sequence_parallel=tp > 1, zero_stage=0)
    job = Job(model=model, training=training, cluster=cluster, runtime=RUNTIME)
    return TrainingRequest(trainer="megatron-core", job=job, layout=layout, steps=1)


def model_of(case: Case, depth: int) -> ModelSpec:
    """Layers of the case's sort alone, with the experts of one rank.

    As many rows as the rank would send come back to it: it has fewer experts, each has more rows.
    """
    changed: dict[str, object] = {"num_hidden_layers": depth, "moe": None}
    moe = case.model.moe
    if case.moe and moe:
        local = {"num_experts": max(moe.num_experts_per_tok, moe.num_experts // case.sharding.ep)}
        every = {"first_k_dense_replace": 0, "moe_layer_freq": 1, "n_group": None}
        changed["moe"] = {**moe.model_dump(), **local, **every, "topk_group": None}
    return ModelSpec.model_validate({**case.model.model_dump(), **changed})
