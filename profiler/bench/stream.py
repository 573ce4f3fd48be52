"""Kernels bound by memory: norm, activation, addition, copy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from trainplan.costmodel.profiles import Point, StreamPoint
from trainplan.profiler.bench.inputs.tensors import (
    Tensors,
    check_finite,
    rotated,
    task,
    tensors,
    working_precision,
)
from trainplan.profiler.task import Clock, Item, MeasurementTask, Place, Request
from trainplan.profiler.torch_on_use import torch

if TYPE_CHECKING:
    from torch import Tensor

WIDTH = 4096
"""Elements of a row. Source: `hidden_size` of models of 7 and 8 billion parameters."""
ROWS = {"cuda": (2**12, 2**14, 2**16), "cpu": (2**8, 2**10, 2**12)}
"""Rows of one tensor: 32, 128 and 512 MiB in bf16 on a GPU, 4, 16 and 64 MiB in fp32 on a CPU."""


@dataclass(frozen=True, slots=True)
class Stream:
    """A kernel without reuse."""

    passes: int
    """Tensors it reads and writes. Source: `RESIDUAL_PASSES` of `costmodel.blocks.attention.core`:
    a norm reads one and writes one, an addition reads two and writes one."""
    prepare: Callable[[Tensors, int], Callable[[], Tensor]]


def _norm(make: Tensors, rows: int) -> Callable[[], Tensor]:
    """RMSNorm; on a CPU, where torch has no kernel for it, LayerNorm."""
    x, weight, functional = make.normal(rows, WIDTH), make.normal(WIDTH), torch.nn.functional
    if x.is_cuda:
        return lambda: functional.rms_norm(x, (WIDTH,), weight, 1e-5)
    return lambda: functional.layer_norm(x, (WIDTH,), weight)


def _activation(make: Tensors, rows: int) -> Callable[[], Tensor]:
    x = make.normal(rows, WIDTH)
    return lambda: torch.nn.functional.silu(x)


def _add(make: Tensors, rows: int) -> Callable[[], Tensor]:
    x, y = make.normal(rows, WIDTH), make.normal(rows, WIDTH)
    return lambda: x + y


def _copy(make: Tensors, rows: int) -> Callable[[], Tensor]:
    x = make.normal(rows, WIDTH)
    y = torch.empty_like(x)
    return lambda: y.copy_(x)


STREAMS: Mapping[str, Stream] = {
    "norm": Stream(2, _norm),
    "activation": Stream(2, _activation),
    "add": Stream(3, _add),
    "copy": Stream(2, _copy),
}


def stream_tasks(request: Request, place: Place) -> Iterator[MeasurementTask]:
    """One task for each kernel and size; the two smaller sizes only if quick."""
    for rows in ROWS[place.device][: 2 if request.quick else None]:
        for name in STREAMS:
            measure = partial(_measure, name, rows, request, place)
            yield task(place, f"{name} rows={rows}", measure)


def _measure(name: str, rows: int, request: Request, place: Place, clock: Clock) -> Iterator[Point]:
    stream, make = STREAMS[name], tensors(place, working_precision(request, place))
    moved = stream.passes * rows * WIDTH * make.dtype.itemsize
    prepare = partial(stream.prepare, make, rows)
    check_finite(prepare()(), f"{name} of {rows} rows")
    yield StreamPoint(name=name, moved_bytes=moved, time=clock.time(rotated(place, moved, prepare)))


STREAM = Item("stream", "kernels bound by memory: norm, activation, add, copy", stream_tasks)
