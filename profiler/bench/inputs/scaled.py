"""Products in 8 and 4 bits: operands, their scales, and how sums are accumulated.

Both operands lie along the inner size, the one order that Hopper and 4 bits know. In fp8 forward
products accumulate fast, gradients in fp32 and from an output's gradient in e5m2
(NVIDIA/TransformerEngine @d0067d0d `pytorch/module/base.py`, _2X_ACC_FPROP and others,
`common/recipe/__init__.py`, Float8CurrentScaling and Format.HYBRID; pytorch/ao @36027d82
`torchao/float8/config.py`, gemm_config_output). mxfp8 and nvfp4 know one way. What comes before a
product, casts and transposes, the Hadamard transform and the stochastic rounding of nvfp4, is
priced apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from math import ceil
from typing import TYPE_CHECKING

from trainplan.costmodel.job import LOW_PRECISION, Float8Recipe, Precision
from trainplan.profiler.bench.inputs.shapes import Pass, Shape
from trainplan.profiler.bench.inputs.tensors import Tensors
from trainplan.profiler.torch_on_use import torch

if TYPE_CHECKING:
    from torch import Tensor

MULTIPLES = {"fp8": 16, "mxfp8": 32, "nvfp4": 32}
"""Of all sizes of a product.

Source: pytorch/pytorch @0174dfab `aten/src/ATen/native/cuda/ScaledBlas.cpp`, _scaled_mm_out_cuda:
16, of two numbers a byte in 4 bits; blocks of mxfp8 are 32 numbers long.
"""
BLOCKS = {"mxfp8": (32, "float8_e8m0fnu", 127), "nvfp4": (16, "float8_e4m3fn", 0x38)}
"""Numbers with one scale, its type, and the byte that is 1 in it.

Source: as MULTIPLES, is_blockwise_1x32_scaling and is_blockwise_1x16_scaling; derived: 1 is
2^(127 - 127) in a byte of exponent alone, 2^(7 - 7) above 3 bits of mantissa.
"""
PADDED_ROWS, PADDED_BLOCKS = 128, 4
"""Tile in which scales of blocks are stored. Source: as BLOCKS; scales that are all 1 have the same
bytes in any order, so nothing is put into the order of the tile."""


@dataclass(frozen=True, slots=True)
class Way:
    """How a product in low precision accumulates and scales."""

    fast_accumulation: bool = False
    recipe: Float8Recipe = "tensorwise"

    @property
    def text(self) -> str:
        """For the key of a task: nothing for what was measured before there were others."""
        rows = f" {self.recipe}" if self.recipe != "tensorwise" else ""
        return " fast_accumulation" * self.fast_accumulation + rows


SPLIT, FAST = Way(), Way(fast_accumulation=True)
FAST_ROWS = Way(fast_accumulation=True, recipe="rowwise")


def ways(shape: Shape, precision: Precision, parts: frozenset[Pass]) -> Iterator[Way]:
    """Those in which the passes that have this product run it, none where its sizes do not fit.

    With scales of rows both gradients run a kernel without scales.
    Source: `costmodel.kernels.products`.
    """
    if precision not in LOW_PRECISION:
        yield SPLIT
        return
    sizes = (shape.m, shape.n, shape.k)
    if shape.groups > 1 or any(size % MULTIPLES[precision] for size in sizes):
        return
    if precision == "fp8" and "forward" in parts:
        yield from (FAST, FAST_ROWS)
    if precision != "fp8" or parts != {"forward"}:
        yield SPLIT


def scaled(shape: Shape, precision: Precision, way: Way, make: Tensors) -> Callable[[], Tensor]:
    """The product with scales that are all 1; weight gradients are written in fp32 where torch can.

    Raises:
        AttributeError, RuntimeError, TypeError, ValueError: This torch on this device has no such
            product; the first in the call of this function, the others in that of its result too.
    """
    number, gradient = _types(precision, gradient=not way.fast_accumulation)
    kinds = (number, gradient) if shape.weight_gradient else (gradient, number)
    left = _operand(shape.m, shape.k, precision, kinds[0], make)
    right = _operand(shape.n, shape.k, precision, kinds[1], make).t()
    scale_left = _scales(shape.m, shape.k, precision, way, make)
    scale_right = _scales(shape.n, shape.k, precision, way, make)
    if way.recipe == "rowwise":
        scale_right = scale_right.t()
    full = shape.weight_gradient and not torch.version.hip  # hipBLASLt writes 16 bits alone
    written = torch.float32 if full else torch.bfloat16
    return lambda: torch._scaled_mm(
        left,
        right,
        scale_a=scale_left,
        scale_b=scale_right,
        out_dtype=written,
        use_fast_accum=way.fast_accumulation,
    )


@cache
def refusal(precision: Precision, way: Way, device: str) -> str:
    """Why this torch on this device does not multiply the format so; empty where it does."""
    make = Tensors(device, torch.bfloat16, torch.Generator(device=device))
    try:
        for weight in (False,) if way.fast_accumulation else (False, True):
            shape = Shape(128, 128, 128, weight_gradient=weight)
            scaled(shape, precision, way, make)()
    except (AttributeError, RuntimeError, TypeError, ValueError) as error:
        return str(error).strip().partition("\n")[0] or type(error).__name__
    return ""


def _types(precision: Precision, *, gradient: bool) -> tuple[torch.dtype, torch.dtype]:
    """Of numbers, and of the gradient of an output, where it is an operand.

    AMD's CDNA 3 (gfx94x) multiplies formats without negative zero.
    """
    old = torch.version.hip and "gfx94" in torch.cuda.get_device_properties().gcnArchName
    narrow = torch.float8_e4m3fnuz if old else torch.float8_e4m3fn
    if not gradient or precision != "fp8":
        return narrow, narrow
    return narrow, torch.float8_e5m2fnuz if old else torch.float8_e5m2


def _operand(
    rows: int, columns: int, precision: Precision, kind: torch.dtype, make: Tensors
) -> Tensor:
    if precision != "nvfp4":
        return make.normal(rows, columns).to(kind)
    pairs = make.integers(256, rows, columns // 2)  # every byte is two numbers
    return pairs.to(torch.uint8).view(torch.float4_e2m1fn_x2)


def _scales(rows: int, columns: int, precision: Precision, way: Way, make: Tensors) -> Tensor:
    if precision not in BLOCKS:
        size = (rows, 1) if way.recipe == "rowwise" else ()
        return torch.ones(size, device=make.device, dtype=torch.float32)
    length, kind, one = BLOCKS[precision]
    blocks = ceil(columns / length / PADDED_BLOCKS) * PADDED_BLOCKS
    count = ceil(rows / PADDED_ROWS) * PADDED_ROWS * blocks
    bytes_of_one = torch.full((count,), one, device=make.device, dtype=torch.uint8)
    return bytes_of_one.view(getattr(torch, kind))
