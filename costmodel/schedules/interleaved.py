"""Interleaved 1F1B: each rank holds `vpp` virtual stages and walks them in groups of `pp`."""

from __future__ import annotations

import numpy as np

from costmodel.schedules.program import PassOrder
from costmodel.table import IntColumn


def order(pp: int, vpp: int, num_microbatches: int) -> PassOrder:
    """Groups of `pp` micro batches through chunk 0, 1, ...; backward from the last chunk.

    Source: Narayanan et al., SC 2021, arXiv:2104.04473, section 2.2.2, figure 4; needs
    `num_microbatches` to be a multiple of `pp`.
    """
    index = np.arange(num_microbatches * vpp)
    group, inside = np.divmod(index, pp * vpp)
    chunk, member = np.divmod(inside, pp)
    microbatch = group * pp + member
    return PassOrder(chunk, microbatch, vpp - 1 - chunk, microbatch)


def warmup(pp: int, vpp: int) -> IntColumn:
    """Forward passes of each rank before its first backward. Source: as `order`."""
    return 2 * (pp - 1 - np.arange(pp)) + (vpp - 1) * pp
