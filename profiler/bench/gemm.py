"""Matrix products: the model's own, and some far apart."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import TYPE_CHECKING

from trainplan.costmodel.spec.evidence.profile import Point, ProductPoint
from trainplan.costmodel.spec.job import Precision
from trainplan.profiler.bench.inputs.shapes import Shape, shapes
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
from trainplan.profiler.task import Clock, Item, MeasurementTask, Place, Request
from trainplan.profiler.torch_on_use import torch

if TYPE_CHECKING:
    from torch import Tensor

FP8_MULTIPLE = 16
"""Dimensions that `torch._scaled_mm` takes. Source: its error message."""


def precisions(request: Request, place: Place) -> tuple[Precision, ...]:
    """Formats of the products: on a GPU always bf16, and what was asked for."""
    if place.device == "cpu":
        return ("fp16",) if request.precision == "fp16" else (working_precision(request, place),)
    if request.precision in ("fp32", "tf32"):
        return "bf16", "tf32", "fp32"
    asked = (request.precision,) if request.precision in ("fp16", "fp8") else ()
    return "bf16", *asked


def product_tasks(request: Request, place: Place) -> Iterator[MeasurementTask]:
    """One task for each shape and format; fp8 takes multiples of 16 alone, one product a call."""
    for precision in precisions(request, place):
        for shape in shapes(request, place.device):
            aligned = not any(size % FP8_MULTIPLE for size in (shape.m, shape.n, shape.k))
            if precision == "fp8" and (shape.groups > 1 or not aligned):
                continue
            measure = partial(_measure, shape, precision, place)
            yield task(place, f"{shape.text} {precision}", measure)


def _measure(shape: Shape, precision: Precision, place: Place, clock: Clock) -> Iterator[Point]:
    if not _available(shape, precision, place):
        return
    make = tensors(place, precision)
    call = _caller(shape, precision, make)
    with multiplied_in(precision):
        check_finite(call()(), f"product {shape.text} {precision}")
        moved = make.dtype.itemsize * shape.groups
        moved *= shape.m * shape.k + shape.k * shape.n + shape.m * shape.n
        time = clock.time(rotated(place, moved, call))
    yield ProductPoint(
        m=shape.m,
        n=shape.n,
        k=shape.k,
        groups=shape.groups,
        precision=precision,
        weight_gradient=shape.weight_gradient,
        time=time,
    )


def _available(shape: Shape, precision: Precision, place: Place) -> bool:
    """Has this torch on this device the kernel? Where not, there is nothing to measure."""
    if shape.groups > 1:
        return grouped_product(device_of(place), dtype_of(precision)) is not None
    if precision != "fp8":
        return True
    newest = torch.cuda.get_device_capability() >= (8, 9)  # Ada, Hopper and on; CDNA 3 is 9.4
    return hasattr(torch, "_scaled_mm") and newest


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
    shape: Shape, precision: Precision, make: Tensors
) -> Callable[[], Callable[[], Tensor]]:
    """Makes buffers and the call on them."""
    if shape.groups > 1:
        return partial(_grouped, shape, make)
    if precision == "fp8":
        return partial(_scaled, shape, make)
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


def _scaled(shape: Shape, make: Tensors) -> Callable[[], Tensor]:
    """fp8 with one scale for each operand; the cast of the operands is priced apart."""
    low, one = _fp8(), torch.ones((), device=make.device, dtype=torch.float32)
    left = make.normal(shape.m, shape.k).to(low)
    right = make.normal(shape.n, shape.k).to(low).t()
    return lambda: torch._scaled_mm(left, right, scale_a=one, scale_b=one, out_dtype=torch.bfloat16)


def _fp8() -> torch.dtype:
    """AMD's CDNA 3 (gfx94x) multiplies a format without negative zero."""
    if torch.version.hip and "gfx94" in torch.cuda.get_device_properties().gcnArchName:
        return torch.float8_e4m3fnuz
    return torch.float8_e4m3fn


GEMM = Item("gemm", "matrix products of the model, and some far apart", product_tasks)
