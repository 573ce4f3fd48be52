"""Matrix products: the model's own, and some far apart."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import TYPE_CHECKING

from trainplan.costmodel.job import LOW_PRECISION, Precision
from trainplan.costmodel.profiles import Point, ProductPoint
from trainplan.costmodel.shards import CAST_BYTES
from trainplan.profiler.bench.inputs.scaled import SPLIT, Way, refusal, scaled, ways
from trainplan.profiler.bench.inputs.shapes import Pass, Shape, passes, shapes
from trainplan.profiler.bench.inputs.tensors import (
    Tensors,
    check_finite,
    device_of,
    dtype_of,
    multiplied_in,
    rotated,
    task,
    tensors,
    working_precision,
)
from trainplan.profiler.errors import ProfilerError
from trainplan.profiler.task import Clock, Item, MeasurementTask, Place, Request
from trainplan.profiler.torch_on_use import torch

if TYPE_CHECKING:
    from torch import Tensor

SPREAD_PASSES: frozenset[Pass] = frozenset({"forward", "input"})
"""Products of no model are measured as those of all passes would be, where these differ."""


def precisions(request: Request, place: Place) -> tuple[Precision, ...]:
    """Formats of the products: on a GPU always bf16, and what was asked for."""
    if place.device == "cpu":
        return ("fp16",) if request.precision == "fp16" else (working_precision(request, place),)
    if request.precision in ("fp32", "tf32"):
        return "bf16", "tf32", "fp32"
    return ("bf16",) if request.precision == "bf16" else ("bf16", request.precision)


def product_tasks(request: Request, place: Place) -> Iterator[MeasurementTask]:
    """One task for each shape, format and way to accumulate, after one whether there is the format.

    What has sizes that a format does not take, or groups in 8 and 4 bits, is left out.
    """
    parts = passes(request)
    for precision in precisions(request, place):
        if precision in LOW_PRECISION:
            yield task(place, f"kernel {precision}", partial(_offered, precision, place))
        for shape in shapes(request, place.device):
            for way in ways(shape, precision, parts.get(shape, SPREAD_PASSES)):
                measure = partial(_measure, shape, precision, way, place)
                yield task(place, f"{shape.text} {precision}{way.text}", measure)


def _offered(precision: Precision, place: Place, clock: Clock) -> Iterator[Point]:
    """Nothing to measure.

    Raises:
        ProfilerError: This torch on this GPU does not multiply the format.
    """
    reason = refusal(precision, SPLIT, device_of(place))
    if reason:
        name, version = torch.cuda.get_device_name(device_of(place)), torch.__version__
        raise ProfilerError(
            f"torch {version} on {name} does not multiply {precision} ({reason}): products in "
            f"{precision} are not measured, estimates take their speed from the catalog"
        )
    yield from ()


def _measure(
    shape: Shape, precision: Precision, way: Way, place: Place, clock: Clock
) -> Iterator[Point]:
    if not _available(shape, precision, way, place):
        return
    make = tensors(place, precision)
    call = _caller(shape, precision, way, make)
    with multiplied_in(precision):
        check_finite(call()(), f"product {shape.text} {precision}")
        written = make.dtype.itemsize
        read = CAST_BYTES.get(precision, written)
        moved = read * (shape.m * shape.k + shape.k * shape.n) + written * shape.m * shape.n
        time = clock.time(rotated(place, int(shape.groups * moved), call))
    yield ProductPoint(
        m=shape.m,
        n=shape.n,
        k=shape.k,
        groups=shape.groups,
        precision=precision,
        weight_gradient=shape.weight_gradient,
        fast_accumulation=way.fast_accumulation,
        recipe=way.recipe,
        time=time,
    )


def _available(shape: Shape, precision: Precision, way: Way, place: Place) -> bool:
    """Has this torch on this device the kernel? Where not, there is nothing to measure."""
    if shape.groups > 1:
        return grouped_product(device_of(place), dtype_of(precision)) is not None
    return precision not in LOW_PRECISION or not refusal(precision, way, device_of(place))


@cache
def grouped_product(device: str, dtype: torch.dtype) -> Callable[..., Tensor] | None:
    """The product of groups of rows with a matrix each, where torch has it for this device.

    By the name this torch has for it. Whether the device is new enough is asked of a small one.
    """
    kernel: Callable[..., Tensor] | None = getattr(torch.nn.functional, "grouped_mm", None)
    kernel = kernel or getattr(torch, "_grouped_mm", None)
    rows, matrices = (torch.zeros(s, device=device, dtype=dtype) for s in ((32, 16), (2, 16, 16)))
    ends = torch.tensor([16, 32], device=device, dtype=torch.int32)
    try:
        return kernel if kernel and len(kernel(rows, matrices, offs=ends)) else None
    except (RuntimeError, TypeError):
        return None


def _caller(
    shape: Shape, precision: Precision, way: Way, make: Tensors
) -> Callable[[], Callable[[], Tensor]]:
    """Makes buffers and the call on them."""
    if shape.groups > 1:
        return partial(_grouped, shape, make)
    if precision in LOW_PRECISION:
        return partial(scaled, shape, precision, way, make)
    if shape.part == "weight":
        return partial(_weight_gradient, shape, make)
    return partial(_plain, shape, make)


def _plain(shape: Shape, make: Tensors) -> Callable[[], Tensor]:
    """`x W^T` as a linear layer has it, or `dy W`."""
    left = make.normal(shape.m, shape.k)
    if shape.part == "input":
        right = make.normal(shape.k, shape.n)
    else:
        right = make.normal(shape.n, shape.k).t()
    result = torch.empty(shape.m, shape.n, device=make.device, dtype=make.dtype)
    return lambda: torch.mm(left, right, out=result)


def _weight_gradient(shape: Shape, make: Tensors) -> Callable[[], Tensor]:
    """`dy^T x` over `k` tokens, added to an fp32 gradient in the same kernel where torch has it."""
    inputs, outputs = make.normal(shape.k, shape.m), make.normal(shape.k, shape.n)
    size = shape.n, shape.m
    if make.dtype != torch.float32 and _accumulates(make):
        total = torch.zeros(size, device=make.device, dtype=torch.float32)
        return lambda: torch.addmm(total, outputs.t(), inputs, out_dtype=torch.float32, out=total)
    result = torch.zeros(size, device=make.device, dtype=make.dtype)
    return lambda: torch.mm(outputs.t(), inputs, out=result)


def _accumulates(make: Tensors) -> bool:
    """Does `torch.addmm` add a product of 16-bit matrices to an fp32 one here?"""
    factor = torch.zeros(16, 16, device=make.device, dtype=make.dtype)
    total = torch.zeros(16, 16, device=make.device, dtype=torch.float32)
    try:
        torch.addmm(total, factor, factor, out_dtype=torch.float32, out=total)
    except (RuntimeError, TypeError):
        return False
    return True


def _grouped(shape: Shape, make: Tensors) -> Callable[[], Tensor]:
    """The same number of rows for each expert."""
    kernel = grouped_product(make.device, make.dtype)
    assert kernel is not None
    rows = shape.k if shape.weight_gradient else shape.m
    ends = torch.arange(1, 1 + shape.groups, device=make.device, dtype=torch.int32) * rows
    if shape.weight_gradient:
        inputs = make.normal(shape.groups * rows, shape.m).t()
        outputs = make.normal(shape.groups * rows, shape.n)
        return lambda: kernel(inputs, outputs, offs=ends)
    left = make.normal(shape.groups * rows, shape.k)
    if shape.part == "input":
        right = make.normal(shape.groups, shape.n, shape.k).transpose(1, 2)
    else:
        right = make.normal(shape.groups, shape.k, shape.n)
    return lambda: kernel(left, right, offs=ends)


GEMM = Item("gemm", "matrix products of the model, and some far from them", product_tasks)
