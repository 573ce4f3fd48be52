"""The attention core: the fastest kernel torch has for it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from itertools import product
from typing import TYPE_CHECKING

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.job import Precision
from trainplan.costmodel.model import query_columns, value_columns
from trainplan.costmodel.profiles import AttentionPoint, Point, Timing
from trainplan.profiler.bench.inputs.shapes import caps
from trainplan.profiler.bench.inputs.tensors import check_finite, task, tensors, working_precision
from trainplan.profiler.task import Clock, Item, MeasurementTask, Place, Request
from trainplan.profiler.torch_on_use import torch

if TYPE_CHECKING:
    from torch import Tensor

DEFAULT = "default"
KERNELS = ("cudnn", "flash", "efficient")
"""Kernels tried on a GPU. The fastest counts: the cost model takes a slower one as a share of it
(`flash2_on_hopper`)."""
MATH = "math"
"""Single operations, which take every shape."""


@dataclass(frozen=True, slots=True)
class Core:
    """Shape of the attention core on one rank."""

    micro_batch_size: int
    seq_length: int
    num_heads: int
    num_key_value_heads: int
    head_dim: int
    value_dim: int

    @property
    def text(self) -> str:
        """For the key of a task."""
        heads = f"heads={self.num_heads} kv_heads={self.num_key_value_heads}"
        dims = f"dim={self.head_dim} value_dim={self.value_dim}"
        return f"batch={self.micro_batch_size} seq={self.seq_length} {heads} {dims}"

    @property
    def flop(self) -> float:
        """Forward. Source: `costmodel.blocks.attention.core.attention_flop`."""
        dims = self.head_dim + self.value_dim
        return self.micro_batch_size * self.seq_length**2 * self.num_heads * float(dims)


def core_of(model: ModelSpec, tp: int, micro_batch_size: int, seq_length: int) -> Core:
    """The core of one layer of the model; with latent attention every head has its own keys."""
    heads = model.num_attention_heads
    return Core(
        micro_batch_size=micro_batch_size,
        seq_length=seq_length,
        num_heads=max(1, heads // tp),
        num_key_value_heads=max(1, (heads if model.mla else model.num_key_value_heads) // tp),
        head_dim=query_columns(model) // heads,
        value_dim=value_columns(model) // heads,
    )


def attention_tasks(request: Request, place: Place) -> Iterator[MeasurementTask]:
    """One task for each micro batch and number of heads, and three lengths: a curve needs them.

    On a CPU one more, as its kernel takes larger blocks from 768 tokens on and is faster then.
    Source: PyTorch v2.13.0 `aten/src/ATen/native/cpu/FlashAttentionKernel.cpp`,
    flash_attention_kernel_impl; one core of an Intel Xeon, fp32: 52 GFLOP/s at 256 and 512 tokens,
    75 at 1024.
    """
    precision = working_precision(request, place)
    length = request.seq_length
    others, on_cpu = (length // 2, 2 * length), place.device == "cpu"
    limit = caps(place.device, quick=request.quick)
    sizes, degrees = request.micro_batch_sizes, request.tensor_parallel
    cases = [*product((length,), sizes, degrees)]
    cases += (
        product(others, sizes[:1], degrees[:1])
        if request.quick
        else product(others, sizes, degrees)
    )
    cases += [(4 * length, sizes[0], degrees[-1])] if on_cpu else []  # few heads: little work
    cores = [core_of(request.model, tp, size, tokens) for tokens, size, tp in cases if tokens]
    for core in dict.fromkeys(cores):
        if core.flop <= limit.flop:
            yield task(place, f"{core.text} {precision}", partial(_measure, core, precision, place))


def _measure(core: Core, precision: Precision, place: Place, clock: Clock) -> Iterator[Point]:
    """Times of the kernel whose passes together are fastest."""
    names = KERNELS if place.device == "cuda" else (DEFAULT,)
    found = [times for name in names if (times := _times(core, precision, place, clock, name))]
    if not found:
        raise ValueError(f"no attention kernel of torch takes {core.text} {precision}")
    forward, backward = min(found, key=lambda times: times[0].seconds + times[1].seconds)
    yield AttentionPoint(**asdict(core), precision=precision, forward=forward, backward=backward)


def _times(
    core: Core, precision: Precision, place: Place, clock: Clock, kernel: str
) -> tuple[Timing, Timing] | tuple[()]:
    """Forward and backward by one kernel; nothing where it refuses the shape."""
    make = tensors(place, precision)
    size, length = core.micro_batch_size, core.seq_length

    def heads(count: int, dim: int) -> Tensor:
        return make.normal(size, length, count, dim).transpose(1, 2).requires_grad_()

    query = heads(core.num_heads, core.head_dim)
    key = heads(core.num_key_value_heads, core.head_dim)
    value = heads(core.num_key_value_heads, core.value_dim)

    def forward() -> Tensor:
        return torch.nn.functional.scaled_dot_product_attention(
            query, key, value, is_causal=True, enable_gqa=core.num_heads != core.num_key_value_heads
        )

    with kernels(kernel):
        try:
            result = forward()
            gradient, given = torch.randn_like(result), (query, key, value)
            backward = partial(torch.autograd.grad, result, given, gradient, retain_graph=True)
            gradients = backward()
        except RuntimeError as error:
            if _refuses(error):
                return ()
            raise
        check_finite(result, f"attention {core.text} {precision}")
        check_finite(gradients[0], f"attention backward {core.text} {precision}")
        return clock.time(forward), clock.time(backward)


def _refuses(error: RuntimeError) -> bool:
    """Does a kernel not take the shape ("No available kernel"), and the device is well?"""
    if isinstance(error, torch.OutOfMemoryError):
        return False
    return not any(sick in str(error) for sick in ("CUDA error", "HIP error", "timed out"))


@contextmanager
def kernels(*names: str) -> Iterator[None]:
    """Only these kernels of attention, without the warnings why the others are not used."""
    if names == (DEFAULT,):
        yield
        return
    switches = torch.backends.cuda  # `torch.nn.attention` does the same, and loads a compiler
    states: tuple[Callable[[], bool], ...] = (
        switches.cudnn_sdp_enabled,
        switches.flash_sdp_enabled,
        switches.mem_efficient_sdp_enabled,
        switches.math_sdp_enabled,
    )
    before = [state() for state in states]
    try:
        _switch(*(name in names for name in (*KERNELS, MATH)))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            yield
    finally:
        _switch(*before)


def _switch(*enabled: bool) -> None:
    """Each kernel on or off, in the order of `KERNELS` and `MATH` last."""
    switches, (cudnn, flash, efficient, single) = torch.backends.cuda, enabled
    switches.enable_cudnn_sdp(cudnn)
    switches.enable_flash_sdp(flash)
    switches.enable_mem_efficient_sdp(efficient)
    switches.enable_math_sdp(single)


ATTENTION = Item("attention", "core of causal attention", attention_tasks, 1.2)
