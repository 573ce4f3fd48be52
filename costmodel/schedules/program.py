"""What each pipeline rank does, in order: the common form of every schedule."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from costmodel.table import BoolColumn, IntColumn

IntMatrix = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Program:
    """Ops of every rank in issue order; matrices have shape (rank, position)."""

    is_backward: BoolColumn
    stage: IntMatrix
    """Virtual stage; stage `s` lives on rank `s % pp`."""
    microbatch: IntMatrix
    num_stages: int
    num_microbatches: int

    @property
    def pp(self) -> int:
        """Pipeline ranks."""
        return len(self.stage)


@dataclass(frozen=True, slots=True)
class PassOrder:
    """Order of the forward passes of any rank, and of its backward passes.

    `forward_chunk[i]` and `forward_microbatch[i]` are the chunk (which of the rank's virtual
    stages) and the micro batch of the i-th forward pass.
    """

    forward_chunk: IntColumn
    forward_microbatch: IntColumn
    backward_chunk: IntColumn
    backward_microbatch: IntColumn


def one_forward_one_backward(order: PassOrder, warmup: IntColumn, pp: int, vpp: int) -> Program:
    """Program that runs `warmup[rank]` forward passes, alternates, then drains.

    Source: Narayanan et al., PipeDream-Flush, arXiv:2006.09503, section 2; the same frame carries
    the interleaved schedule of Narayanan et al., SC 2021, arXiv:2104.04473, section 2.2.2.
    """
    passes = len(order.forward_chunk)
    position = np.arange(2 * passes)[None, :]
    first = np.minimum(warmup, passes)[:, None]
    steady = position - first
    in_steady = (steady >= 0) & (steady < 2 * (passes - first))
    is_backward = np.where(in_steady, steady % 2 == 1, position >= first)
    forward_index = np.where(in_steady, first + steady // 2, np.minimum(position, passes - 1))
    backward_index = np.where(in_steady, steady // 2, np.maximum(position - passes, 0))
    index = np.where(is_backward, backward_index, forward_index)
    chunk = np.where(is_backward, order.backward_chunk[index], order.forward_chunk[index])
    microbatch = np.where(
        is_backward, order.backward_microbatch[index], order.forward_microbatch[index]
    )
    return Program(
        is_backward=is_backward,
        stage=chunk * pp + np.arange(pp)[:, None],
        microbatch=microbatch,
        num_stages=pp * vpp,
        num_microbatches=passes // vpp,
    )
