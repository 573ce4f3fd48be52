"""What a placement of experts is held against: rows as counted, summed by rank."""

import numpy as np

from trainplan.costmodel.columns import FloatColumn
from trainplan.costmodel.routing.placement import Placement


def rank_loads(counts: FloatColumn, placement: Placement) -> FloatColumn:
    """Rows of each rank over the mean of all ranks, as counted: [step, layer, rank].

    counts: rows or probabilities [step, layer, expert]. Chance within a micro batch is not in it.

    Source: derived; rows of a rank are the sum of its shares of the rows of experts.
    """
    shares = np.broadcast_to(placement.shares, (counts.shape[1], *placement.shares.shape[1:]))
    rows = np.einsum("sle,ler->slr", counts, shares)
    return np.asarray(rows / rows.mean(axis=-1, keepdims=True))
