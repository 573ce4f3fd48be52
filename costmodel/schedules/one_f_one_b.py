"""1F1B: start a backward pass as soon as one is ready."""

from __future__ import annotations

import numpy as np

from costmodel.schedules.program import PassOrder
from costmodel.table import IntColumn


def order(pp: int, vpp: int, num_microbatches: int) -> PassOrder:
    """Micro batches in turn. Source: Narayanan et al., arXiv:2006.09503, section 2."""
    microbatches = np.arange(num_microbatches)
    chunk = np.zeros(num_microbatches, dtype=np.int64)
    return PassOrder(chunk, microbatches, chunk, microbatches)


def warmup(pp: int, vpp: int) -> IntColumn:
    """Forward passes of each rank before its first backward. Source: as `order`."""
    return pp - 1 - np.arange(pp)
