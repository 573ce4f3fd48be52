"""Pipeline schedules by name. To add one: write its module, add one line to `SCHEDULES`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from costmodel.schedules import interleaved, one_f_one_b
from costmodel.schedules.program import PassOrder, Program, one_forward_one_backward
from costmodel.table import FloatColumn, IntColumn


@dataclass(frozen=True, slots=True)
class Schedule:
    """A schedule: the order of passes, and how many forward passes come first."""

    order: Callable[[int, int, int], PassOrder]
    """(pp, vpp, num_microbatches) -> order of passes."""
    warmup: Callable[[int, int], IntColumn]
    """(pp, vpp) -> forward passes of each rank before its first backward."""
    rounds_to_fill: int
    """After this many times pp micro batches no rank ever holds more. Source: derived, tested."""


SCHEDULES: Mapping[str, Schedule] = MappingProxyType(
    {
        "1f1b": Schedule(one_f_one_b.order, one_f_one_b.warmup, 1),
        "interleaved": Schedule(interleaved.order, interleaved.warmup, 2),
    }
)


def program(name: str, pp: int, vpp: int, num_microbatches: int) -> Program:
    """Ops of every rank under the named schedule."""
    schedule = SCHEDULES[name]
    return one_forward_one_backward(
        schedule.order(pp, vpp, num_microbatches), schedule.warmup(pp, vpp), pp, vpp
    )


def held_passes(
    name: str, pp: int, num_microbatches: int, layers: NDArray[np.int64]
) -> FloatColumn:
    """Passes in flight on each rank when it holds most layers; shape (rank, chunk).

    `layers` are the layers of each chunk of each rank, shape (rank, chunk). After the warm-up every
    forward pass is followed by a backward pass, so only the moments behind a forward pass count;
    they repeat every `pp * vpp` passes.
    Source: derived from the order of passes; tested against the simulated program.
    """
    vpp = layers.shape[1]
    order = SCHEDULES[name].order(pp, vpp, num_microbatches)
    passes = num_microbatches * vpp
    chunks = np.arange(vpp)
    zero = np.zeros((1, vpp), dtype=np.int64)
    started = np.concatenate([zero, np.cumsum(order.forward_chunk[:, None] == chunks, axis=0)])
    finished = np.concatenate([zero, np.cumsum(order.backward_chunk[:, None] == chunks, axis=0)])
    warmed = np.minimum(SCHEDULES[name].warmup(pp, vpp) + 1, passes)
    moment = np.minimum(np.arange(pp * vpp)[None, :], (passes - warmed)[:, None])
    held = started[warmed[:, None] + moment] - finished[moment]
    fullest = np.argmax(np.einsum("rmc,rc->rm", held, layers), axis=1)
    return np.asarray(held[np.arange(pp), fullest], dtype=np.float64)
