"""A whole transformer layer of the model, as the runtimes that are installed train it."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import product

from trainplan.costmodel.profiles import MEASURED_RUNTIME, Point
from trainplan.profiler.bench.attention import DEFAULT, MATH, kernels
from trainplan.profiler.bench.inputs.shapes import caps
from trainplan.profiler.bench.inputs.tensors import check_finite, task, tensors, working_precision
from trainplan.profiler.bench.layers.case import Case, expert_ranks, fits, measured_model
from trainplan.profiler.bench.layers.decoder import Layer
from trainplan.profiler.bench.layers.in_step import Stack, depth_of, layer_point, timed
from trainplan.profiler.bench.layers.modules import Sharding
from trainplan.profiler.bench.megatron_layer import RUNTIME as MEGATRON
from trainplan.profiler.bench.megatron_layer import megatron_tasks
from trainplan.profiler.task import Clock, Item, MeasurementTask, Place, Request

EAGER_KERNELS = ("flash", "efficient", MATH)
"""The kernel that the runtime names, then those for the shapes it refuses."""


def layer_tasks(request: Request, place: Place) -> Iterator[MeasurementTask]:
    """One task for each runtime, micro batch, cut and sort of layer, as far as devices allow."""
    for name in request.runtimes:
        yield from RUNTIMES[name](request, place)


def torch_tasks(request: Request, place: Place) -> Iterator[MeasurementTask]:
    """Layers of plain PyTorch, on slices of any degree: no collective runs."""
    model, limit = measured_model(request.model), caps(place.device, quick=request.quick)
    ep = expert_ranks(model, limit.tensor_bytes)
    sorts = sorted(set(model.moe_layers))
    for size, tp, moe in product(request.micro_batch_sizes, request.tensor_parallel, sorts):
        case = Case(model, moe, Sharding(tp, ep if moe else 1), size, request.seq_length)
        if fits(case, limit):
            precision = working_precision(request, place)
            measure = partial(_measure, case, request, place)
            yield task(place, f"{case.text} {precision}", measure)


def _measure(case: Case, request: Request, place: Place, clock: Clock) -> Iterator[Point]:
    """In the order of a step, and each pass alone."""
    precision = working_precision(request, place)
    with kernels(*(EAGER_KERNELS if place.device == "cuda" else (DEFAULT,))):
        make = tensors(place, precision)
        depth = depth_of(case.weights, place)
        layers = [Layer(make, case.model, case.sharding, moe=case.moe) for _ in range(depth)]
        run = Stack(make, layers, case)
        result, saved = run.kept()
        check_finite(result, f"layer {case.text}")
        check_finite(run.backward_alone(result)[0], f"input gradient of layer {case.text}")
        forward_alone = clock.time(run.forward_alone)
        backward_alone = clock.time(partial(run.backward_alone, result))
        parts = timed(clock, run, ("forward", "backward"), depth)
    alone = {"forward_alone": forward_alone, "backward_alone": backward_alone}
    point = layer_point(case, MEASURED_RUNTIME, precision, parts, saved)
    yield point.model_copy(update=alone)


RUNTIMES: Mapping[str, Callable[[Request, Place], Iterator[MeasurementTask]]] = {
    MEASURED_RUNTIME: torch_tasks,
    MEGATRON: megatron_tasks,
}
"""Runtimes whose layers can be run here, and the tasks that do."""
LAYER = Item("layer", "whole layers: forward, backward, bytes kept", layer_tasks, 2.0)
